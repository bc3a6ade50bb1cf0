//! Notifications to systemd.

use sd_notify::NotifyState;

/// Notifies systemd; does nothing unless it started the agent.
pub(super) fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

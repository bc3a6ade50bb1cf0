//! CPUs that go offline and come online while a recording goes on.

use crate::error::Error;
use crate::sys::{Poller, Uevents};
use std::collections::BTreeSet;

/// Which CPUs are sampled, and which of them the kernel has taken our events from.
#[derive(Debug)]
pub(super) struct Cpus {
    uevents: Option<Uevents>,
    /// Whose ticks are counted: now, or earlier in the recording.
    pub(super) sampled: BTreeSet<u32>,
    /// Went offline since their events were opened, which ends those for good.
    pub(super) stale: BTreeSet<u32>,
    /// Came online when the recording was under way.
    pub(super) joined: BTreeSet<u32>,
}

impl Cpus {
    /// `cpus` are sampled.
    pub(super) fn new(cpus: &[u32]) -> Self {
        let sampled = cpus.iter().copied().collect();
        Self { uevents: Uevents::listen().ok(), sampled, stale: BTreeSet::new(), joined: BTreeSet::new() }
    }

    /// Whether the kernel says what becomes of CPUs. Where it does not, those that come later are not sampled.
    pub(super) fn are_watched(&self) -> bool {
        self.uevents.is_some()
    }

    /// Wakes `poller` when something happens to a device.
    pub(super) fn watch(&self, poller: &Poller) -> Result<(), Error> {
        use std::os::fd::AsFd;
        let watched = self.uevents.as_ref().map_or(Ok(()), |uevents| poller.add(uevents.as_fd()));
        watched.map_err(Error::system("watching the CPUs"))
    }

    /// Reads what happened; says whether any of it was about CPUs.
    pub(super) fn note_events(&mut self) -> bool {
        let mut has_changed = false;
        while let Some(message) = self.uevents.as_ref().and_then(Uevents::next) {
            match event_of(&message) {
                Some((Action::Offline, cpu)) => has_changed |= self.stale.insert(cpu),
                Some((Action::Online, _)) => has_changed = true,
                None if message.is_empty() => {
                    // Any of them may have been offline.
                    self.stale.extend(&self.sampled);
                    has_changed = true;
                }
                None => {}
            }
        }
        has_changed
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Online,
    Offline,
}

/// `offline@/devices/system/cpu/cpu1`, up to the first zero byte.
fn event_of(message: &[u8]) -> Option<(Action, u32)> {
    let head = std::str::from_utf8(message.split(|&byte| byte == 0).next()?).ok()?;
    let (action, device) = head.split_once('@')?;
    let cpu = device.strip_prefix("/devices/system/cpu/cpu")?.parse().ok()?;
    match action {
        "online" => Some((Action::Online, cpu)),
        "offline" => Some((Action::Offline, cpu)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that messages about CPUs are told from those about other devices, and rubbish is none.
    #[test]
    fn messages_about_cpus() {
        let online = b"online@/devices/system/cpu/cpu12\0ACTION=online\0DEVPATH=/devices/system/cpu/cpu12\0";
        assert_eq!(event_of(online), Some((Action::Online, 12)));
        assert_eq!(event_of(b"offline@/devices/system/cpu/cpu1"), Some((Action::Offline, 1)));
        let others: [&[u8]; 6] = [
            b"",
            b"add@/devices/system/cpu/cpu1",
            b"online@/devices/system/memory/memory1",
            b"online@/devices/system/cpu/cpufreq",
            b"\xff@\0",
            b"online@/devices/system/cpu/cpu99999999999",
        ];
        assert!(others.iter().all(|message| event_of(message).is_none()));
    }
}

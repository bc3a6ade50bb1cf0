//! Names of signals.

use nix::sys::signal::Signal;

/// The name of a signal, such as `SIGSEGV`; its number if it has none. See signal(7).
#[must_use]
pub fn signal_name(signal: i32) -> String {
    Signal::try_from(signal).map_or_else(|_| format!("signal {signal}"), |signal| signal.as_str().to_owned())
}

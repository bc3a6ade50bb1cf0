//! CPUs that go offline and come online during a recording.

use crate::error::Error;
use crate::proc::online_cpus;
use crate::sys::{Poller, Uevents};
use fpprof_recording::model::CpuCounters;
use std::collections::BTreeSet;

/// Which CPUs are sampled, and on which of them the kernel has removed our events.
#[derive(Debug)]
pub(crate) struct Cpus {
    uevents: Option<Uevents>,
    /// CPUs whose ticks are counted, sampled now or earlier in the recording.
    pub(crate) sampled: BTreeSet<u32>,
    /// CPUs that went offline since their events were opened, which ends the events for good.
    stale: BTreeSet<u32>,
    /// CPUs that came online during the recording.
    pub(crate) joined: BTreeSet<u32>,
    /// Whether to look without a message: at first, and after a failure.
    must_look: bool,
}

impl Cpus {
    /// Starts with `cpus` sampled.
    pub(crate) fn new(cpus: &[u32]) -> Self {
        let sampled = cpus.iter().copied().collect();
        let (stale, joined) = Default::default();
        // A CPU may have come online before the messages were listened to.
        Self { uevents: Uevents::listen().ok(), sampled, stale, joined, must_look: true }
    }

    /// Whether the kernel reports CPU changes. If not, CPUs that come online later are not sampled.
    pub(crate) fn are_watched(&self) -> bool {
        self.uevents.is_some()
    }

    /// Wakes `poller` when a device changes.
    pub(crate) fn watch(&self, poller: &Poller) -> Result<(), Error> {
        use std::os::fd::AsFd;
        let watched = self.uevents.as_ref().map_or(Ok(()), |uevents| poller.add(uevents.as_fd()));
        watched.map_err(Error::system("watching the CPUs"))
    }

    /// CPUs that are online without being sampled, if the kernel has reported changes since the last call, or one of them could
    /// not be sampled.
    pub(crate) fn take_unsampled(&mut self) -> Vec<u32> {
        let has_changed = self.note_events();
        if !std::mem::take(&mut self.must_look) && !has_changed {
            return Vec::new();
        }
        self.unsampled()
    }

    /// CPUs that are online without being sampled, as far as the kernel has reported changes.
    pub(crate) fn unsampled(&self) -> Vec<u32> {
        let is_sampled = |cpu: &u32| self.sampled.contains(cpu) && !self.stale.contains(cpu);
        online_cpus().into_iter().filter(|cpu| !is_sampled(cpu)).collect()
    }

    /// Notes that a CPU is sampled from now on.
    pub(crate) fn opened(&mut self, cpu: u32) {
        self.stale.remove(&cpu);
        self.sampled.insert(cpu);
        self.joined.insert(cpu);
    }

    /// Notes that a CPU could not be sampled.
    pub(crate) fn failed(&mut self) {
        self.must_look = true;
    }

    /// The counters of the sampled event on CPUs that were online throughout: on others, missing ticks are not known.
    pub(crate) fn all_along(&self, cpus: &[CpuCounters]) -> Vec<CpuCounters> {
        let online = online_cpus();
        let is_one = |cpu: &&CpuCounters| {
            let is_offline = self.sampled.contains(&cpu.cpu) && !online.contains(&cpu.cpu);
            cpu.event == 0 && !self.joined.contains(&cpu.cpu) && !is_offline
        };
        cpus.iter().filter(is_one).cloned().collect()
    }

    /// Reads pending messages; returns whether any of them was about CPUs.
    fn note_events(&mut self) -> bool {
        let mut has_changed = false;
        while let Some(message) = self.uevents.as_ref().and_then(Uevents::next) {
            has_changed |= self.note(&message);
        }
        has_changed
    }

    /// Notes a message; returns whether it was about CPUs.
    ///
    /// # Sources
    /// `freeze_secondary_cpus` and `thaw_secondary_cpus` in `kernel/cpu.c`: when the machine is suspended, the kernel takes CPUs
    /// offline without reporting it, and reports that they are online again.
    fn note(&mut self, message: &[u8]) -> bool {
        match event_of(message) {
            Some((Action::Offline, cpu)) => self.stale.insert(cpu),
            Some((Action::Online, cpu)) => {
                self.stale.insert(cpu);
                true
            }
            // Messages were lost: any CPU may have been offline.
            None if message.is_empty() => {
                self.stale.extend(&self.sampled);
                true
            }
            None => false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Online,
    Offline,
}

/// Parses `offline@/devices/system/cpu/cpu1`, up to the first zero byte.
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

    /// Check that the events of a CPU are opened again when it comes online, also if nothing said that it was offline.
    #[test]
    fn cpus_return_after_a_suspension() {
        let mut cpus = Cpus { uevents: None, ..Cpus::new(&[0]) };
        assert!(!cpus.unsampled().contains(&0) && !cpus.note(b"change@/devices/system/cpu/cpu0"));
        assert!(cpus.note(b"online@/devices/system/cpu/cpu0\0") && cpus.unsampled().contains(&0));
        cpus.opened(0);
        assert!(!cpus.unsampled().contains(&0));
    }

    /// Check that CPUs are looked for once without a message, and again after a failure.
    #[test]
    fn failures_are_tried_again() {
        let mut cpus = Cpus { uevents: None, ..Cpus::new(&[]) };
        let n_online = online_cpus().len();
        assert_eq!([cpus.take_unsampled().len(), cpus.take_unsampled().len()], [n_online, 0]);
        cpus.failed();
        assert_eq!([cpus.take_unsampled().len(), cpus.take_unsampled().len()], [n_online, 0]);
    }

    /// Check that messages about CPUs are distinguished from those about other devices, and that rubbish is ignored.
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

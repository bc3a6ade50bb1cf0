//! What a recording says of its run, apart from samples.

use anyhow::Context as _;
use fpprof_recording::Recording;
use fpprof_recording::model::{CaptureMode, Collector, Comm, Exit, Fork, Meta, Sideband};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// What a recording says of its run.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The sampling event.
    pub(super) event: String,
    pub(super) collector: Collector,
    pub(super) mode: CaptureMode,
    /// From the exec of the command to the end of its last thread, seconds; `None` if the exec or an end was lost. Since Linux
    /// 6.16 a thread's end is reported before its memory is freed.
    pub(super) command_s: Option<f64>,
    /// The last name of each process.
    pub(super) names: HashMap<u32, String>,
}

impl Recorded {
    /// Reads a recording of a command.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let context = || path.display().to_string();
        let mut recording = Recording::open(BufReader::new(File::open(path).with_context(context)?))?;
        let Meta { events, collector, mode, .. } = recording.meta();
        let event = events.first().map(|event| event.name.clone()).unwrap_or_default();
        let (collector, mode) = (*collector, *mode);
        let mut seen = Seen::default();
        recording.sideband(|event| seen.add(event)).with_context(context)?;
        let Seen { command, names } = seen;
        let command_s = command.and_then(|command| command.seconds());
        Ok(Self { event, collector, mode, command_s, names })
    }
}

/// The state after some events.
#[derive(Debug, Default)]
struct Seen {
    command: Option<Times>,
    /// Names of threads; those of processes' first threads are the processes'.
    names: HashMap<u32, String>,
}

/// The command's process.
#[derive(Debug)]
struct Times {
    pid: u32,
    began_ns: u64,
    /// Threads that have not ended.
    threads: HashSet<u32>,
    /// The end of the last one so far.
    ended_ns: u64,
}

impl Times {
    /// `None` if a thread has no end.
    fn seconds(&self) -> Option<f64> {
        let ns = self.ended_ns.checked_sub(self.began_ns).filter(|_| self.threads.is_empty())?;
        #[expect(clippy::cast_precision_loss, reason = "some hours at most")]
        Some(ns as f64 / 1e9)
    }
}

impl Seen {
    fn add(&mut self, event: &Sideband) {
        match event {
            Sideband::Comm(Comm { time_ns, pid, tid, comm, exec, .. }) => {
                if *exec && self.command.is_none() {
                    self.command =
                        Some(Times { pid: *pid, began_ns: *time_ns, threads: HashSet::from([*pid]), ended_ns: 0 });
                }
                self.names.insert(*tid, String::from_utf8_lossy(comm).into_owned());
            }
            Sideband::Fork(Fork { pid, tid, parent_tid, .. }) => {
                if let Some(command) = self.command.as_mut().filter(|command| command.pid == *pid) {
                    command.threads.insert(*tid);
                }
                if let Some(name) = self.names.get(parent_tid).cloned() {
                    self.names.insert(*tid, name);
                }
            }
            Sideband::Exit(Exit { time_ns, pid, tid }) => {
                if let Some(command) = self.command.as_mut().filter(|command| command.pid == *pid) {
                    command.threads.remove(tid);
                    command.ended_ns = *time_ns;
                }
            }
            Sideband::Mmap(_) | Sideband::Cgroup(_) | Sideband::Module(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the time is that of the command, from its exec to the end of its last thread, and not of what it starts; and
    /// that a process has its first thread's name, or its parent's until it gets one.
    #[test]
    fn the_command_has_a_time_and_names() {
        let comm = |time_ns, pid, tid, name: &str, exec| {
            Sideband::Comm(Comm { time_ns, pid, tid, comm: name.into(), exec, start_ticks: 0 })
        };
        let fork = |time_ns, pid, tid, parent_pid, parent_tid| {
            Sideband::Fork(Fork { time_ns, pid, tid, parent_pid, parent_tid })
        };
        let exit = |time_ns, pid, tid| Sideband::Exit(Exit { time_ns, pid, tid });
        let mut seen = Seen::default();
        let events = [
            comm(5, 10, 10, "recorder", false),
            comm(10, 10, 10, "java", true),
            fork(11, 10, 11, 10, 10),
            comm(12, 10, 11, "GC Thread", false),
            fork(13, 20, 20, 10, 10),
            fork(14, 30, 30, 10, 10),
            comm(15, 20, 20, "sh", true),
            exit(16, 20, 20),
            exit(17, 10, 10),
            exit(18, 10, 11),
            exit(30, 30, 30),
        ];
        let (most, [last, after]) = events.split_at(9) else { panic!("eleven events") };
        let seconds = |seen: &Seen| seen.command.as_ref().and_then(Times::seconds);
        most.iter().for_each(|event| seen.add(event));
        assert_eq!(seconds(&seen), None, "a thread has no end");
        seen.add(last);
        seen.add(after);
        assert_eq!(seconds(&seen), Some(8e-9));
        assert_eq!([10, 20, 30].map(|pid| seen.names[&pid].as_str()), ["java", "sh", "java"]);
    }
}

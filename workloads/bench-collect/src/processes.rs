//! A profiler's processes: their CPU time and memory, and their end.

use crate::run::TICKS_PER_S;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// A process that is killed on drop, together with its descendants.
#[derive(Debug)]
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        for pid in tree(self.0.id()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.0.wait();
    }
}

/// The most memory that all processes of a profiler have together at one time, in MB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    /// Pages that the processes share are counted for each.
    pub(crate) rss_mb: f64,
    /// The same, with each page counted once.
    pub(crate) pss_mb: f64,
    /// The BPF maps in it, at the end of the time.
    pub(crate) mapped_maps_mb: f64,
}

/// How often memory is read.
const READ_EVERY: Duration = Duration::from_secs(1);
/// How often it is read while processes may live for a moment only.
const READ_CLOSELY_EVERY: Duration = Duration::from_millis(20);
/// The last part of the time that is watched, in which the agent analyses its interval.
const CLOSELY: Duration = Duration::from_secs(4);

impl Memory {
    /// Waits for `time`, reading the memory of a process and of its descendants.
    pub(crate) fn watch(pid: u32, time: Duration) -> Self {
        let end = Instant::now() + time;
        let mut memory = Self::default();
        loop {
            memory.add(pid);
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Self { mapped_maps_mb: mapped_maps_mb(pid), ..memory };
            }
            let far = left.saturating_sub(CLOSELY);
            std::thread::sleep(if far.is_zero() { READ_CLOSELY_EVERY.min(left) } else { READ_EVERY.min(far) });
        }
    }

    /// The same until the process ends. It is not reaped, so that its CPU time can still be read.
    pub(crate) fn watch_end(child: &Child) -> rustix::io::Result<Self> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let mut memory = Self::default();
        while rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), options)?.is_none() {
            memory.add(child.id());
            std::thread::sleep(READ_CLOSELY_EVERY);
        }
        Ok(memory)
    }

    fn add(&mut self, pid: u32) {
        let root = i32::try_from(pid).unwrap_or(0);
        let all: Vec<i32> = tree(pid).into_iter().filter(|&pid| pid == root || has_own_memory(pid)).collect();
        let of_all = |file: &str, name: &str| {
            all.iter().filter_map(|pid| memory_kb(&format!("/proc/{pid}/{file}"), name)).sum::<f64>() * 1024.0 / 1e6
        };
        self.rss_mb = self.rss_mb.max(of_all("status", "VmRSS:"));
        self.pss_mb = self.pss_mb.max(of_all("smaps_rollup", "Pss:"));
    }
}

/// Whether a child has run its program: before that, its memory is its parent's (`vfork(2)`), and would be counted twice.
fn has_own_memory(pid: i32) -> bool {
    let command = |pid: &str| fs::read(format!("/proc/{pid}/cmdline")).ok();
    let parent = stat(pid).and_then(|fields| command(fields.get(1)?));
    command(&pid.to_string()) != parent
}

/// How much of BPF maps a process and its descendants have mapped, in MB.
fn mapped_maps_mb(pid: u32) -> f64 {
    let of_process = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap_or_default();
        let mut is_map = false;
        let mut kb = 0.0;
        for line in text.lines() {
            // A mapping's first line begins with its addresses, all others with a name and a colon.
            if line.split(' ').next().is_some_and(|first| !first.ends_with(':')) {
                is_map = line.ends_with("anon_inode:bpf-map");
            } else if let Some(value) = line.strip_prefix("Pss:").filter(|_| is_map) {
                kb += value.trim().trim_end_matches(" kB").parse().unwrap_or(0.0);
            }
        }
        kb
    };
    tree(pid).into_iter().map(of_process).sum::<f64>() * 1024.0 / 1e6
}

/// The pids of a process and of all its living descendants.
fn tree(pid: u32) -> Vec<i32> {
    let mut parents: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = stat(pid).and_then(|fields| fields.get(1)?.parse().ok()) {
            parents.entry(parent).or_default().push(pid);
        }
    }
    let mut all = vec![i32::try_from(pid).unwrap_or(0)];
    let mut n = 0;
    while let Some(pid) = all.get(n) {
        all.extend(parents.get(pid).into_iter().flatten().copied().collect::<Vec<_>>());
        n += 1;
    }
    all
}

/// Fields of `/proc/PID/stat` from the state onwards.
fn stat(pid: i32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// CPU time of a process, of its living descendants, and of reaped children of both: fields 14 to 17 of `stat`.
pub(crate) fn cpu_s(pid: u32) -> f64 {
    let ticks = |pid| {
        let fields = stat(pid).unwrap_or_default();
        fields.get(11..15).unwrap_or_default().iter().filter_map(|field| field.parse::<f64>().ok()).sum::<f64>()
    };
    tree(pid).into_iter().map(ticks).sum::<f64>() / TICKS_PER_S
}

/// A number of kilobytes in a file of `/proc`.
fn memory_kb(path: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

//! Selects samples of a recording.

use crate::address_space::{Place, Timeline};
use fpprof_recording::model::Sample;
use std::fmt;

/// Selects samples by process, thread, thread name, control group or time. The default matches all samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Process IDs; empty for all.
    pub pids: Vec<u32>,
    /// Thread IDs; empty for all.
    pub tids: Vec<u32>,
    /// Names of threads at the time of the sample; empty for all.
    pub comms: Vec<String>,
    /// Control groups at the time of the sample; a group includes the groups below it. Empty for all. `/a/b`, `a/b` and
    /// `/a/b/` are the same.
    pub cgroups: Vec<String>,
    /// Time range.
    pub time: TimeRange,
    /// Only samples whose stack was copied ([`Sample::is_copied`]).
    pub copied: bool,
}

/// A time range, in nanoseconds since the start of the recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// Start, inclusive; `None` for the start of the recording.
    pub from_ns: Option<u64>,
    /// End, exclusive; `None` for no end.
    pub to_ns: Option<u64>,
}

impl Filter {
    /// Whether it matches every sample.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it matches a sample of a recording that started at `start_ns`.
    #[must_use]
    pub fn has(&self, sample: &Sample, place: &Place, timeline: &Timeline, start_ns: u64) -> bool {
        let any = |list: &[u32], id| list.is_empty() || list.contains(&id);
        any(&self.pids, sample.pid)
            && any(&self.tids, sample.tid)
            && (self.comms.is_empty() || place.comm.is_some_and(|comm| self.has_comm(timeline.comm(comm))))
            && (self.cgroups.is_empty() || place.cgroup.is_some_and(|group| self.has_cgroup(timeline.cgroup(group))))
            && (!self.copied || sample.is_copied())
            && self.time.has(sample.time_ns.saturating_sub(start_ns))
    }

    /// Whether it matches samples of which only these are known. Conditions on threads and times are ignored.
    #[must_use]
    pub fn has_some_of(&self, pid: u32, comm: &str, cgroup: &str) -> bool {
        (self.pids.is_empty() || self.pids.contains(&pid))
            && (self.comms.is_empty() || self.has_comm(comm.as_bytes()))
            && (self.cgroups.is_empty() || self.has_cgroup(cgroup.as_bytes()))
    }

    fn has_cgroup(&self, path: &[u8]) -> bool {
        self.cgroups.iter().any(|group| is_in(path, group))
    }

    fn has_comm(&self, name: &[u8]) -> bool {
        // As names are shown: a long one may be cut within a character.
        let name = String::from_utf8_lossy(name);
        self.comms.iter().any(|comm| *comm == name)
    }
}

/// Whether a control group is `group` or below it.
fn is_in(path: &[u8], group: &str) -> bool {
    let group = group.trim_matches('/').as_bytes();
    let below = path.strip_prefix(b"/").and_then(|path| path.strip_prefix(group));
    below.is_some_and(|below| group.is_empty() || below.is_empty() || below.starts_with(b"/"))
}

impl TimeRange {
    /// Length of the part of a recording of length `all_ns` that is in the range.
    pub(crate) fn length(self, all_ns: u64) -> u64 {
        self.to_ns.unwrap_or(all_ns).min(all_ns).saturating_sub(self.from_ns.unwrap_or(0))
    }

    fn has(self, ns: u64) -> bool {
        self.from_ns.is_none_or(|from| ns >= from) && self.to_ns.is_none_or(|to| ns < to)
    }
}

/// Formats the options as typed: `--comm fio --comm 'other name' --time 2..5`. There is no option for copied stacks.
impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pids, tids, comms, cgroups, time, copied } = self;
        let seconds = |ns: Option<u64>| ns.map_or_else(String::new, |ns| (ns as f64 / 1e9).to_string());
        let mut words: Vec<String> = comms.iter().map(|comm| format!("--comm {}", quoted(comm))).collect();
        words.extend(cgroups.iter().map(|group| format!("--cgroup {}", quoted(group))));
        words.extend(pids.iter().map(|pid| format!("--pid {pid}")));
        words.extend(tids.iter().map(|tid| format!("--tid {tid}")));
        if *time != TimeRange::default() {
            words.push(format!("--time {}..{}", seconds(time.from_ns), seconds(time.to_ns)));
        }
        words.extend(copied.then(|| "with a copied stack".to_owned()));
        f.write_str(&words.join(" "))
    }
}

/// Quotes a name for a shell if necessary.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+,@".contains(c);
    if !name.is_empty() && name.chars().all(is_plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::{Cgroup, Comm, Sideband};

    fn sample(pid: u32, tid: u32, time_ns: u64) -> Sample {
        Sample { pid, tid, time_ns, ..Sample::default() }
    }

    /// Check that every condition must hold, that any value of a list suffices, that a thread's name is the one at the
    /// time of the sample, and that the end of a range is exclusive.
    #[test]
    fn samples_are_chosen() {
        let named = |tid, time_ns, name: &[u8]| {
            Sideband::Comm(Comm { pid: 7, tid, time_ns, comm: name.into(), exec: false, start_ticks: 0 })
        };
        let timeline = Timeline::new([
            named(7, 100, b"main"),
            named(8, 100, b"worker"),
            named(8, 150, b"fio"),
            named(8, 160, b"caf\xc3"),
        ]);
        let has = |filter: &Filter, sample: Sample| {
            let place = timeline.place(sample.pid, sample.tid, sample.time_ns);
            filter.has(&sample, &place, &timeline, 100)
        };
        let all = Filter::default();
        assert!(all.is_all() && has(&all, sample(9, 9, 0)));
        let of_pids = Filter { pids: vec![7, 5], ..Filter::default() };
        assert!(has(&of_pids, sample(7, 8, 120)) && !has(&of_pids, sample(8, 7, 120)));
        let named = Filter { comms: vec!["worker".to_owned(), "x".to_owned()], ..Filter::default() };
        assert!(has(&named, sample(7, 8, 149)) && !has(&named, sample(7, 8, 150)) && !has(&named, sample(7, 7, 120)));
        let cut = Filter { comms: vec!["caf\u{fffd}".to_owned()], ..Filter::default() };
        assert!(has(&cut, sample(7, 8, 160)) && !has(&cut, sample(7, 8, 150)), "cut within a character");
        let both = Filter { tids: vec![8], time: TimeRange { from_ns: Some(20), to_ns: Some(50) }, ..named };
        assert!(has(&both, sample(7, 8, 120)) && has(&both, sample(7, 8, 149)));
        assert!(!has(&both, sample(7, 8, 119)) && !has(&both, sample(7, 8, 150)));
        let range = |from_ns, to_ns| TimeRange { from_ns, to_ns }.length(40);
        assert_eq!([range(None, None), range(Some(10), Some(30)), range(Some(10), Some(50))], [40, 20, 30]);
        assert_eq!([range(Some(50), None), range(None, Some(15))], [0, 15]);
        let unnamed = Filter { comms: Vec::new(), ..both };
        assert!(has(&unnamed, sample(7, 8, 149)) && !has(&unnamed, sample(7, 8, 150)));
        assert_eq!(unnamed.to_string(), "--tid 8 --time 0.00000002..0.00000005");
        let names = ["fio", "it's one"].map(str::to_owned).to_vec();
        let cgroups = vec!["/system.slice/a b.service".to_owned()];
        assert_eq!(
            Filter { comms: names, cgroups, ..all }.to_string(),
            r"--comm fio --comm 'it'\''s one' --cgroup '/system.slice/a b.service'"
        );
    }

    /// Check that a control group includes its own processes and those of groups below it, however it is written, but
    /// not those of a group whose name merely has the same prefix, or of an unknown group.
    #[test]
    fn control_groups_have_what_is_below() {
        let groups = [
            (1, "/"),
            (2, "/system.slice/nginx.service"),
            (3, "/system.slice/nginx.service/worker"),
            (4, "/system.slice/nginx.service2"),
            (5, "/system.slice"),
        ];
        let timeline =
            Timeline::new(groups.map(|(pid, path)| {
                Sideband::Cgroup(Cgroup { time_ns: 1, pid, path: path.into(), ..Cgroup::default() })
            }));
        let chosen = |groups: &[&str]| -> Vec<u32> {
            let filter =
                Filter { cgroups: groups.iter().map(|&group| group.to_owned()).collect(), ..Filter::default() };
            let has = |&pid: &u32| filter.has(&sample(pid, pid, 5), &timeline.place(pid, pid, 5), &timeline, 0);
            (1..=6).filter(has).collect()
        };
        for nginx in ["/system.slice/nginx.service", "system.slice/nginx.service", "/system.slice/nginx.service/"] {
            assert_eq!(chosen(&[nginx]), [2, 3], "{nginx}");
        }
        assert_eq!(chosen(&["/system.slice"]), [2, 3, 4, 5]);
        assert_eq!(chosen(&["/system.slice/nginx.service/worker", "/system.slice/nginx.service2"]), [3, 4]);
        assert_eq!(chosen(&["/"]), [1, 2, 3, 4, 5]);
        assert!(chosen(&["/nginx.service"]).is_empty());
    }
}

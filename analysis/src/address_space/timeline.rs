//! Looks up a sample's process, name and address space by time.

use super::files::FileIx;
use super::interned::Interned;
use super::{Embedded, MappedFile};
use crate::symbols::JitCodes;
use fpprof_recording::compiled::Compiled;
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// An address space at a moment: a log of edits, and how many of them apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceKey {
    pub(crate) log: u32,
    pub(super) edits: u32,
}

/// Index of a process. A reused pid is another process; an exec does not make another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessIx(pub u32);

/// Index of a name, see [`Timeline::comm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommIx(pub u32);

/// Index of a control group, see [`Timeline::cgroup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupIx(pub u32);

/// The process, address space and names of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// Its process; `None` if no event named it.
    pub process: Option<ProcessIx>,
    /// Its address space at that moment; `None` if no event named the process.
    pub space: Option<SpaceKey>,
    /// Name of its thread at that moment; `None` if no event gave one.
    pub comm: Option<CommIx>,
    /// Control group of its process at that moment; `None` if no event gave one.
    pub cgroup: Option<CgroupIx>,
    /// Whether its process may be a kernel thread: one that is known from events, has executed no program, has never
    /// mapped anything, and descends from none that did.
    pub may_be_of_kernel: bool,
}

/// One change of an address space's executable mappings.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edit {
    pub(super) time_ns: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// `None` if something not executable replaced it.
    pub(super) executable: Option<Backing>,
}

/// The file behind an executable mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backing {
    pub(super) file: Option<FileIx>,
    pub(super) file_offset: u64,
}

/// The edits of one address space since its creation (fork, exec), in order of time.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Its process.
    pub(super) pid: u32,
    pub(super) base: Option<SpaceKey>,
    pub(super) edits: Vec<Edit>,
    /// Number of users: the process, and the logs forked from this one.
    pub(super) n_users: u32,
}

/// A period of a pid's use: from a fork or an exec to the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lifetime {
    pub(super) from_ns: u64,
    pub(super) process: ProcessIx,
    pub(super) log: u32,
    /// See [`Place::may_be_of_kernel`].
    pub(super) may_be_of_kernel: bool,
}

/// The history of all processes of a recording.
#[derive(Debug, Default)]
pub struct Timeline {
    pub(super) lifetimes: FxHashMap<u32, Vec<Lifetime>>,
    pub(super) logs: Vec<Log>,
    pub(super) thread_comms: FxHashMap<u32, Vec<(u64, CommIx)>>,
    /// By process, with the time from which it holds; `None` means unknown from then on.
    pub(super) process_cgroups: FxHashMap<u32, Vec<(u64, Option<CgroupIx>)>>,
    pub(super) comms: Interned,
    /// Paths, and after a zero byte what is kept of the environment, if anything: no path contains a zero byte.
    pub(super) cgroups: Interned,
    pub(super) process_pids: Vec<u32>,
    pub(super) process_comms: Vec<Option<CommIx>>,
    pub(super) files: Vec<MappedFile>,
    pub(super) embedded: Vec<Embedded>,
    pub(super) jit_codes: Arc<JitCodes>,
    pub(super) n_impossible: u64,
    pub(super) n_left_by_exec: u64,
}

impl Timeline {
    /// The process, address space and names of a sample of this thread at this time.
    #[must_use]
    pub fn place(&self, pid: u32, tid: u32, time_ns: u64) -> Place {
        let lifetime = self
            .lifetimes
            .get(&pid)
            .and_then(|lifetimes| latest(lifetimes, time_ns, |lifetime| lifetime.from_ns))
            .copied();
        let comm = self.comm_at(tid, time_ns).or_else(|| self.comm_at(pid, time_ns));
        Place {
            process: lifetime.map(|lifetime| lifetime.process),
            space: lifetime.map(|lifetime| self.space_key(lifetime.log, time_ns)),
            comm,
            cgroup: self.cgroup_at(pid, time_ns),
            may_be_of_kernel: lifetime.is_some_and(|lifetime| lifetime.may_be_of_kernel),
        }
    }

    /// A name, up to 15 bytes chosen by the process.
    #[must_use]
    pub fn comm(&self, ix: CommIx) -> &[u8] {
        self.comms.get(ix.0)
    }

    /// All names.
    pub fn comms(&self) -> impl Iterator<Item = &[u8]> {
        self.comms.iter()
    }

    /// The path of a control group, such as `/system.slice/nginx.service`, at most 4096 bytes.
    #[must_use]
    pub fn cgroup(&self, ix: CgroupIx) -> &[u8] {
        path_and_environment(self.cgroups.get(ix.0)).0
    }

    /// What is kept of the environment of a process in that group, as in
    /// [`Cgroup::environment`](fpprof_recording::model::Cgroup::environment).
    #[must_use]
    pub fn environment(&self, ix: CgroupIx) -> &[u8] {
        path_and_environment(self.cgroups.get(ix.0)).1
    }

    /// All control groups.
    pub fn cgroups(&self) -> impl Iterator<Item = &[u8]> {
        self.cgroups.iter().map(|both| path_and_environment(both).0)
    }

    /// The pid of a process.
    #[must_use]
    pub fn pid(&self, process: ProcessIx) -> u32 {
        self.process_pids.get(process.0 as usize).copied().unwrap_or(0)
    }

    /// The pids of all processes, with the last name of their first thread.
    pub(crate) fn processes(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let named = self.process_pids.iter().zip(&self.process_comms);
        named.map(|(&pid, comm)| (pid, comm.map_or(b"?".as_slice(), |comm| self.comm(comm))))
    }

    /// The last name of the process's first thread.
    #[must_use]
    pub fn last_comm(&self, process: ProcessIx) -> Option<CommIx> {
        self.process_comms.get(process.0 as usize).copied().flatten()
    }

    /// All mapped files, indexed by [`FileIx`].
    #[must_use]
    pub fn files(&self) -> &[MappedFile] {
        &self.files
    }

    /// Modules whose bytes are in the recording.
    #[must_use]
    pub fn embedded(&self) -> &[Embedded] {
        &self.embedded
    }

    /// JIT-compiled code, from the processes' dumps.
    #[must_use]
    pub fn jit_codes(&self) -> &Arc<JitCodes> {
        &self.jit_codes
    }

    /// The processes whose tables or dumps of compiled code are in the recording, by the logs of the spaces with that code: their
    /// own, and those forked from them.
    pub(crate) fn compiled_by(&self) -> FxHashMap<u32, u32> {
        let pids = self.embedded.iter().filter_map(|module| Compiled::of_path(&module.path)).map(Compiled::pid);
        let pids: FxHashSet<u32> = pids.collect();
        if pids.is_empty() {
            return FxHashMap::default();
        }
        let mut owners: FxHashMap<u32, Option<u32>> = FxHashMap::default();
        for (number, _) in (0..).zip(&self.logs) {
            let (mut next, mut ancestors) = (Some(number), Vec::new());
            let mut owner = None;
            while let Some((number, log)) = next.and_then(|number| Some((number, self.logs.get(number as usize)?))) {
                owner = owners.get(&number).copied().unwrap_or_else(|| pids.contains(&log.pid).then_some(log.pid));
                if owner.is_some() || owners.contains_key(&number) {
                    break;
                }
                ancestors.push(number);
                next = log.base.map(|base| base.log);
            }
            owners.extend(ancestors.into_iter().chain([number]).map(|number| (number, owner)));
        }
        owners.into_iter().filter_map(|(number, owner)| Some((number, owner?))).collect()
    }

    /// Invalid mappings: empty, or beyond the end of the address space. They were left out.
    #[must_use]
    pub fn n_impossible(&self) -> u64 {
        self.n_impossible
    }

    /// Processes without any events after they executed a program: the kernel removes a task's perf events when a
    /// program gains privileges (setuid).
    ///
    /// # Sources
    /// `begin_new_exec` in `fs/exec.c` of Linux 6.18.
    #[must_use]
    pub fn n_left_by_exec(&self) -> u64 {
        self.n_left_by_exec
    }

    fn comm_at(&self, tid: u32, time_ns: u64) -> Option<CommIx> {
        self.thread_comms.get(&tid).and_then(|comms| latest(comms, time_ns, |comm| comm.0)).map(|comm| comm.1)
    }

    fn cgroup_at(&self, pid: u32, time_ns: u64) -> Option<CgroupIx> {
        self.process_cgroups.get(&pid).and_then(|groups| latest(groups, time_ns, |group| group.0))?.1
    }

    /// The state of a log at a time. If none of its edits applies yet, the space it was forked from.
    fn space_key(&self, log: u32, time_ns: u64) -> SpaceKey {
        let Some(entry) = self.logs.get(log as usize) else { return SpaceKey { log, edits: 0 } };
        let edits = entry.edits.partition_point(|edit| edit.time_ns <= time_ns);
        match (edits, entry.base) {
            (0, Some(base)) => base,
            _ => SpaceKey { log, edits: u32::try_from(edits).unwrap_or(u32::MAX) },
        }
    }
}

fn path_and_environment(both: &[u8]) -> (&[u8], &[u8]) {
    match both.iter().position(|&byte| byte == 0).and_then(|end| both.split_at_checked(end)) {
        Some((path, environment)) => (path, environment.get(1..).unwrap_or_default()),
        None => (both, &[]),
    }
}

/// The last of `entries`, in order of time, that is not after `time_ns`.
fn latest<T>(entries: &[T], time_ns: u64, time: impl Fn(&T) -> u64) -> Option<&T> {
    let n = entries.partition_point(|entry| time(entry) <= time_ns);
    entries.get(n.checked_sub(1)?)
}

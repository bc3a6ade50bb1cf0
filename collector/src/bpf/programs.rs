//! Loading the programs and communicating with them.

use super::layout::Layout;
use super::skeleton::{FpprofSkel, FpprofSkelBuilder, types};
use crate::event::Opened;
use crate::request::MAX_EXCLUDED;
use crate::rules::{MAX_FILES, MAX_JIT_PROCESSES, N_RULES, RULES_BYTES, RuleTable, sets_bytes};
use crate::sys::{ObjectStorage, OnDemandMap, ProgramStatistics, SharedMap, program_statistics};
use fpprof_recording::model::CaptureMode;
use libbpf_rs::skel::{OpenSkel, Skel as _, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut};
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What to sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Everything, see [`Programs::exclude`].
    System,
    /// Processes that are tracked.
    Tracked,
    /// Threads that are tracked.
    Threads,
    /// A control group, likewise: the group's ID, and in version 1 the ID of a controller of its hierarchy.
    Cgroup { id: u64, subsystem: Option<u32> },
}

/// Configuration of the programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramConfig {
    pub(crate) mode: CaptureMode,
    pub(crate) kernel_stacks: bool,
    pub(crate) filter: Filter,
    pub(crate) layout: Layout,
    /// CPUs from 0 on that have a ring.
    pub(crate) n_ring_cpus: u32,
    /// CPUs from 0 on that can ever come online.
    pub(crate) n_possible_cpus: u32,
    /// How the event is opened, and so which program samples.
    pub(crate) opened: Opened,
    /// For a tracepoint or probe, one tick per this many hits.
    pub(crate) tick_hits: u64,
    /// Also copy stacks of non-dumpable processes.
    pub(crate) includes_privileged: bool,
    /// Only copy stacks of this user's processes.
    pub(crate) only_user: Option<u32>,
    /// [`Filter::System`] and [`Filter::Cgroup`] leave out the children of this process.
    pub(crate) excluded_parent: Option<u32>,
    /// How waits are sampled; `None` if they are not.
    pub(crate) waits: Option<WaitSpec>,
    /// Number of sets of rules for walks by call frame information, a power of two.
    pub(crate) n_rule_sets: u32,
}

/// How waits are sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitSpec {
    /// The shortest wait to sample, nanoseconds.
    pub(crate) least_ns: u64,
    /// Copy stacks when the thread blocks, for want of `sched_exit`.
    pub(crate) stacks_at_block: bool,
}

/// The most threads tracked for waits: some 100 bytes of kernel memory each.
const MAX_WAITS: u32 = 1 << 16;

impl ProgramConfig {
    /// Number of events.
    pub(crate) fn n_events(&self) -> u16 {
        1 + u16::from(self.waits.is_some())
    }

    /// Number of rings.
    pub(crate) fn n_rings(&self) -> u32 {
        self.n_ring_cpus.saturating_mul(u32::from(self.n_events()))
    }

    /// Number of control blocks.
    fn n_controls(&self) -> u32 {
        self.n_possible_cpus.saturating_mul(u32::from(self.n_events()))
    }

    /// Number of segments of all rings.
    fn n_segments(&self) -> u32 {
        self.n_rings().saturating_mul(u32::try_from(self.layout.n_segments).unwrap_or(u32::MAX))
    }
}

/// The loaded programs. Dropping the value removes them from the kernel.
pub(crate) struct Programs<'a> {
    pub(super) skeleton: FpprofSkel<'a>,
    filter: Filter,
    opened: Opened,
    pub(super) waits: Option<WaitSpec>,
    links: Vec<Link>,
    pub(super) wait_links: RefCell<Vec<Link>>,
}

impl<'a> Programs<'a> {
    /// Loads the programs into the kernel; nothing runs yet.
    pub(crate) fn load(storage: &'a mut ObjectStorage, config: &ProgramConfig) -> libbpf_rs::Result<Self> {
        super::collect_messages();
        let mut open = FpprofSkelBuilder::default().open(storage)?;
        if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
            configure(rodata, config);
        }
        let value_bytes = u32::try_from(config.layout.value_bytes).unwrap_or(u32::MAX);
        open.maps.segments.set_value_size(value_bytes)?;
        open.maps.segments.set_max_entries(config.n_segments())?;
        open.maps.controls.set_max_entries(config.n_controls())?;
        if matches!(config.mode, CaptureMode::Cfi { .. }) {
            open.maps.rule_sets.set_max_entries(config.n_rule_sets)?;
            open.maps.rules.set_max_entries(N_RULES)?;
            open.maps.code_files.set_max_entries(MAX_FILES)?;
            open.maps.jit_processes.set_max_entries(MAX_JIT_PROCESSES)?;
        }
        let takes_waits = config.waits.is_some();
        let at_switch = config.waits.is_some_and(|waits| waits.stacks_at_block);
        open.maps.waits.set_max_entries(if takes_waits { MAX_WAITS } else { 1 })?;
        open.progs.note_wait.set_autoload(takes_waits && !at_switch);
        open.progs.take_wait.set_autoload(takes_waits && !at_switch);
        open.progs.switch_waits.set_autoload(at_switch);
        open.progs.begin_waits.set_autoload(takes_waits);
        open.progs.end_waits.set_autoload(takes_waits);
        let follows = config.filter == Filter::Tracked;
        open.progs.follow_fork.set_autoload(follows);
        open.progs.follow_exec.set_autoload(follows || takes_waits);
        open.progs.follow_free.set_autoload(follows || takes_waits || config.filter == Filter::Threads);
        open.progs.take_sample.set_autoload(config.opened == Opened::OnEachCpu);
        open.progs.take_tracepoint.set_autoload(config.opened == Opened::Tracepoint);
        open.progs.take_probe.set_autoload(config.opened == Opened::Probe);
        let (filter, opened, wait_links) = (config.filter, config.opened, RefCell::default());
        Ok(Self { skeleton: open.load()?, filter, opened, waits: config.waits, links: Vec::new(), wait_links })
    }

    /// The programs that maintain the tables of tracked tasks and of waits.
    fn followers(&self) -> Vec<&ProgramMut<'a>> {
        let programs = &self.skeleton.progs;
        match self.filter {
            Filter::Tracked => vec![&programs.follow_fork, &programs.follow_exec, &programs.follow_free],
            _ if self.waits.is_some() => vec![&programs.follow_exec, &programs.follow_free],
            Filter::Threads => vec![&programs.follow_free],
            Filter::System | Filter::Cgroup { .. } => Vec::new(),
        }
    }

    /// Starts following tracked tasks.
    pub(crate) fn follow(&mut self) -> libbpf_rs::Result<()> {
        self.links = self.followers().into_iter().map(|program| program.attach_trace()).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Tracks a process or, with [`Filter::Threads`], a thread: at once or from its next `execve` on.
    pub(crate) fn track(&self, pid: u32, is_active: bool) -> libbpf_rs::Result<()> {
        let state =
            if is_active { types::tracked_state::TRACKED_ACTIVE } else { types::tracked_state::TRACKED_UNTIL_EXEC };
        let mut value = [0u8; size_of::<types::tracked>()];
        let at = std::mem::offset_of!(types::tracked, state);
        if let Some(field) = value.get_mut(at..at + 4) {
            field.copy_from_slice(&state.0.to_ne_bytes());
        }
        self.skeleton.maps.tracked.update(&pid.to_ne_bytes(), &value, MapFlags::ANY)
    }

    /// The program that takes samples.
    pub(crate) fn sampler(&self) -> BorrowedFd<'_> {
        let programs = &self.skeleton.progs;
        match self.opened {
            Opened::OnEachCpu => programs.take_sample.as_fd(),
            Opened::Tracepoint => programs.take_tracepoint.as_fd(),
            Opened::Probe => programs.take_probe.as_fd(),
        }
    }

    /// Maps the rings and their control blocks.
    pub(crate) fn map_memory(&self, config: &ProgramConfig) -> io::Result<(SharedMap, SharedMap)> {
        let overflow = || io::Error::from_raw_os_error(libc::EOVERFLOW);
        let value_bytes = usize::try_from(config.layout.value_bytes).map_err(|_| overflow())?;
        let segments = (config.n_segments() as usize).checked_mul(value_bytes).ok_or_else(overflow)?;
        let controls = config.n_controls() as usize;
        let controls = controls.checked_mul(size_of::<types::cpu_control>()).ok_or_else(overflow)?;
        Ok((
            SharedMap::new(self.skeleton.maps.segments.as_fd(), segments, false)?,
            SharedMap::new(self.skeleton.maps.controls.as_fd(), controls.next_multiple_of(4096), true)?,
        ))
    }

    /// Maps the stack hints, which user space writes.
    pub(crate) fn map_stack_hints(&self, bytes: usize) -> io::Result<SharedMap> {
        SharedMap::new(self.skeleton.maps.stack_hints.as_fd(), bytes.next_multiple_of(4096), true)
    }

    /// Maps the sets of rules, of which there are `n_sets`, and the rules.
    pub(crate) fn map_rules(&self, n_sets: u32) -> io::Result<RuleTable> {
        let maps = &self.skeleton.maps;
        let sets = OnDemandMap::new(maps.rule_sets.as_fd(), sets_bytes(n_sets))?;
        let rules = OnDemandMap::new(maps.rules.as_fd(), RULES_BYTES)?;
        Ok(RuleTable::new(sets, n_sets, rules))
    }

    /// The map of files with rules.
    pub(crate) fn code_files(&self) -> libbpf_rs::Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.code_files)
    }

    /// The map of processes whose JIT-compiled code is walked.
    pub(crate) fn jit_processes(&self) -> libbpf_rs::Result<MapHandle> {
        MapHandle::try_from(&self.skeleton.maps.jit_processes)
    }

    /// Sets the processes that [`Filter::System`] and [`Filter::Cgroup`] leave out; 0 is none.
    pub(crate) fn exclude(&self, pids: [u32; MAX_EXCLUDED]) -> libbpf_rs::Result<()> {
        self.skeleton.maps.data.update(&[0; 4], pids.map(u32::to_ne_bytes).as_flattened(), MapFlags::ANY)
    }

    /// The map that wakes the reader.
    pub(crate) fn doorbell(&self) -> &dyn MapCore {
        &self.skeleton.maps.doorbell
    }

    /// Memory of all maps, bytes; `None` if the kernel does not report it.
    ///
    /// # Sources
    /// `bpf_map_show_fdinfo` in `kernel/bpf/syscall.c`.
    pub(crate) fn map_bytes(&self) -> Option<u64> {
        let bytes = |map: libbpf_rs::Map<'_>| -> Option<u64> {
            let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
            let info = std::fs::read_to_string(path).ok()?;
            info.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse().ok()
        };
        self.skeleton.object().maps().map(bytes).sum()
    }

    /// The kernel's statistics of the programs.
    pub(crate) fn statistics(&self) -> io::Result<Statistics> {
        let mut followers_ns = 0;
        for program in self.followers() {
            followers_ns += program_statistics(program.as_fd())?.run_ns;
        }
        let waiters = self.waiters().into_iter().map(|program| program_statistics(program.as_fd()));
        let waits = waiters.collect::<io::Result<Vec<_>>>()?;
        let waits = waits.last().map(|at_switch| WaitStatistics {
            run_ns: waits.iter().map(|program| program.run_ns).sum(),
            switches: at_switch.runs,
        });
        Ok(Statistics { sampler: program_statistics(self.sampler())?, followers_ns, waits })
    }
}

/// Resource usage of the programs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statistics {
    /// The sampling program.
    pub(crate) sampler: ProgramStatistics,
    /// Run time of the programs that follow processes.
    pub(crate) followers_ns: u64,
    /// Of the programs that sample waits.
    pub(crate) waits: Option<WaitStatistics>,
}

/// Resource usage of the programs that sample waits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitStatistics {
    /// Their run time.
    pub(crate) run_ns: u64,
    /// Context switches they saw.
    pub(crate) switches: u64,
}

/// Fill level at which a segment is left for the next while the reader keeps up: few segments then hold unread data.
const HOT_SEGMENT_BYTES: u64 = 128 << 10;
/// As in `maps.bpf.h`.
const CGROUP_UNIFIED: u32 = u32::MAX;

fn configure(rodata: &mut types::rodata, config: &ProgramConfig) {
    crate::arch::configure(rodata);
    let (chunk, frames) = (types::collect_flag::COLLECT_CHUNK.0, types::collect_flag::COLLECT_FRAMES.0);
    let cfi = types::collect_flag::COLLECT_CFI.0;
    rodata.collect = match config.mode {
        CaptureMode::Fp => frames,
        CaptureMode::Dwarf { .. } => chunk,
        CaptureMode::Both { .. } => chunk | frames,
        CaptureMode::Cfi { frame_pointers: false, .. } => cfi,
        CaptureMode::Cfi { frame_pointers: true, .. } => cfi | frames,
    };
    if let CaptureMode::Cfi { .. } = config.mode {
        rodata.rule_set_mask = config.n_rule_sets - 1;
    }
    rodata.copy_every = match config.mode {
        CaptureMode::Cfi { verify, .. } => verify.into(),
        CaptureMode::Both { every, .. } => every.into(),
        CaptureMode::Fp | CaptureMode::Dwarf { .. } => 1,
    };
    if config.kernel_stacks {
        rodata.collect |= types::collect_flag::COLLECT_KERNEL.0;
    }
    rodata.filter = match config.filter {
        Filter::System => types::filter::FILTER_SYSTEM.0,
        Filter::Tracked => types::filter::FILTER_TRACKED.0,
        Filter::Threads => types::filter::FILTER_THREADS.0,
        Filter::Cgroup { id, subsystem } => {
            rodata.cgroup_id = id;
            rodata.cgroup_subsystem = subsystem.unwrap_or(CGROUP_UNIFIED);
            types::filter::FILTER_CGROUP.0
        }
    };
    rodata.n_ring_cpus = config.n_ring_cpus;
    rodata.n_possible_cpus = config.n_possible_cpus;
    rodata.n_segments = u32::try_from(config.layout.n_segments).unwrap_or(0);
    rodata.takes_waits = config.waits.is_some();
    rodata.stacks_at_block = config.waits.is_some_and(|waits| waits.stacks_at_block);
    rodata.least_wait_ns = config.waits.map_or(u64::MAX, |waits| waits.least_ns);
    rodata.tick_hits = config.tick_hits.max(1);
    rodata.max_chunk_bytes = config.layout.max_chunk_bytes;
    rodata.includes_privileged = config.includes_privileged;
    (rodata.has_only_user, rodata.only_user) = (config.only_user.is_some(), config.only_user.unwrap_or(0));
    rodata.excluded_parent = config.excluded_parent.unwrap_or(0);
    rodata.max_record_bytes = config.layout.max_record_bytes;
    rodata.segment_bytes = config.layout.segment_bytes;
    rodata.hot_bytes = config.layout.segment_bytes.min(HOT_SEGMENT_BYTES);
    rodata.segment_shift = config.layout.segment_bytes.trailing_zeros();
    rodata.all_segments = config.layout.all_segments();
    rodata.ring_bytes = config.layout.ring_bytes();
    rodata.segment_room = config.layout.segment_room;
    rodata.wakeup_bytes = config.layout.ring_bytes() / 2;
}

impl std::fmt::Debug for Programs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("links", &self.links.len()).finish_non_exhaustive()
    }
}

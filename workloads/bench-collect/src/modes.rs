//! The measured modes.

use std::fmt;
use std::path::PathBuf;

/// A profiler in one of its modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Mode {
    /// No profiler.
    None,
    /// `fpprof record`, with eBPF or perf events.
    Ours { collector: Collector, call_graph: CallGraph },
    /// `perf record`, with or without `-z`.
    Perf { call_graph: CallGraph, zips: bool },
    /// A script that counts stacks in the kernel by frame pointers.
    Bpftrace,
    /// `samply record`.
    Samply,
    /// `lightswitch` for the whole machine: it walks by call frame information in the kernel, using precomputed tables.
    Lightswitch,
    /// The OpenTelemetry eBPF profiler for the whole machine: it walks in the kernel, too.
    OtelProfiler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Collector {
    Ebpf,
    PerfEvent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CallGraph {
    Fp,
    Dwarf(u32),
    Both(u32),
    Cfi,
}

impl fmt::Display for CallGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fp => f.write_str("fp"),
            Self::Dwarf(bytes) => write!(f, "dwarf,{bytes}"),
            Self::Both(bytes) => write!(f, "both,{bytes}"),
            Self::Cfi => f.write_str("cfi,1048576"),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Ours { collector: Collector::Ebpf, call_graph } => write!(f, "fpprof {call_graph}"),
            Self::Ours { collector: Collector::PerfEvent, call_graph } => write!(f, "fpprof perf-event {call_graph}"),
            Self::Perf { call_graph, zips: false } => write!(f, "perf {call_graph}"),
            Self::Perf { call_graph, zips: true } => write!(f, "perf -z {call_graph}"),
            Self::Bpftrace => f.write_str("bpftrace ustack"),
            Self::Samply => f.write_str("samply"),
            Self::Lightswitch => f.write_str("lightswitch"),
            Self::OtelProfiler => f.write_str("OTel profiler"),
        }
    }
}

impl Mode {
    /// The same tool by frame pointers; `None` for that mode itself, and for tools without a choice.
    pub(crate) fn by_frame_pointers(self) -> Option<Self> {
        let fp = match self {
            Self::Ours { collector, .. } => Self::Ours { collector, call_graph: CallGraph::Fp },
            Self::Perf { zips, .. } => Self::Perf { call_graph: CallGraph::Fp, zips },
            Self::None | Self::Bpftrace | Self::Samply | Self::Lightswitch | Self::OtelProfiler => return None,
        };
        (fp != self).then_some(fp)
    }

    /// The strategy by which its stacks are judged; `None` if our unwinder cannot judge them.
    pub(crate) fn strategy(self) -> Option<&'static str> {
        match self {
            Self::Ours { call_graph, .. } | Self::Perf { call_graph, .. } => Some(match call_graph {
                CallGraph::Fp => "fp",
                CallGraph::Dwarf(_) | CallGraph::Both(_) => "dwarf",
                CallGraph::Cfi => "cfi",
            }),
            Self::None | Self::Bpftrace | Self::Samply | Self::Lightswitch | Self::OtelProfiler => None,
        }
    }
}

/// Largest chunk of a perf event: the size is a `u16` and must be a multiple of 8.
///
/// # Sources
/// `perf_sample_ustack_size` in the kernel's `kernel/events/core.c`.
pub(crate) const PERF_LARGEST: u32 = 65_528;

/// All modes whose programs are installed; only with the largest chunks unless `every_size`.
pub(crate) fn all(every_size: bool) -> Vec<Mode> {
    let sizes: &[u32] = if every_size { &[4096, 8192, 16_384, 32_768] } else { &[] };
    let dwarfs = |largest| sizes.iter().copied().chain([largest]).map(CallGraph::Dwarf);
    let ours = |call_graph| Mode::Ours { collector: Collector::Ebpf, call_graph };
    let without_bpf = |call_graph| Mode::Ours { collector: Collector::PerfEvent, call_graph };
    let mut modes = vec![Mode::None, ours(CallGraph::Fp)];
    modes.extend(dwarfs(65_536).map(ours));
    modes.extend(sizes.iter().map(|&bytes| ours(CallGraph::Both(bytes))));
    modes.push(ours(CallGraph::Both(65_536)));
    modes.extend([CallGraph::Fp, CallGraph::Dwarf(PERF_LARGEST), CallGraph::Both(PERF_LARGEST)].map(without_bpf));
    if is_installed("perf") {
        for zips in [false, true] {
            let perf = |call_graph| Mode::Perf { call_graph, zips };
            modes.push(perf(CallGraph::Fp));
            modes.extend(dwarfs(PERF_LARGEST).map(perf));
        }
    }
    modes.extend(is_installed("bpftrace").then_some(Mode::Bpftrace));
    modes.extend(is_installed("samply").then_some(Mode::Samply));
    modes
}

/// Whether a program is in `PATH`.
pub(crate) fn is_installed(program: &str) -> bool {
    find_installed(program).is_some()
}

/// The first program of that name in `PATH`.
pub(crate) fn find_installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Check that no mode is listed twice, that names are distinct, and that fewer sizes give fewer modes.
    #[test]
    fn modes_are_distinct() {
        let modes = all(true);
        let names: HashSet<String> = modes.iter().map(Mode::to_string).collect();
        assert_eq!(names.len(), modes.len());
        let few = all(false);
        assert!(few.len() < modes.len() && few.iter().all(|mode| modes.contains(mode)));
        assert!(few.iter().any(|mode| mode.to_string() == "fpprof perf-event both,65528"));
    }
}

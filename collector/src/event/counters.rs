//! Names of counters, as in perf.

use perf_event_open_sys::bindings as b;

/// What a counter counts, which decides how it is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Time, in nanoseconds: a timer fires.
    Timer,
    /// Hardware events of the processor.
    Hardware,
    /// Software events, counted one by one by the kernel.
    Occurrences,
    /// Likewise, but events that happen only in the kernel, never in a program.
    KernelOccurrences,
}

/// A named counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    /// perf's name.
    pub(crate) name: &'static str,
    /// perf's alias; empty if there is none.
    alias: &'static str,
    pub(crate) class: Class,
    config: u32,
}

const fn counter(name: &'static str, alias: &'static str, class: Class, config: u32) -> Counter {
    Counter { name, alias, class, config }
}

/// All named counters.
///
/// # Sources
/// `enum perf_hw_id` and `enum perf_sw_ids` in `include/uapi/linux/perf_event.h`; names: `perf list` of Linux 6.1.
pub(crate) const COUNTERS: [Counter; 19] = [
    counter("cpu-clock", "", Class::Timer, b::PERF_COUNT_SW_CPU_CLOCK),
    counter("task-clock", "", Class::Timer, b::PERF_COUNT_SW_TASK_CLOCK),
    counter("page-faults", "faults", Class::Occurrences, b::PERF_COUNT_SW_PAGE_FAULTS),
    counter("minor-faults", "", Class::Occurrences, b::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    counter("major-faults", "", Class::Occurrences, b::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    counter("context-switches", "cs", Class::KernelOccurrences, b::PERF_COUNT_SW_CONTEXT_SWITCHES),
    counter("cpu-migrations", "migrations", Class::KernelOccurrences, b::PERF_COUNT_SW_CPU_MIGRATIONS),
    counter("alignment-faults", "", Class::Occurrences, b::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    counter("emulation-faults", "", Class::Occurrences, b::PERF_COUNT_SW_EMULATION_FAULTS),
    counter("cycles", "cpu-cycles", Class::Hardware, b::PERF_COUNT_HW_CPU_CYCLES),
    counter("instructions", "", Class::Hardware, b::PERF_COUNT_HW_INSTRUCTIONS),
    counter("cache-references", "", Class::Hardware, b::PERF_COUNT_HW_CACHE_REFERENCES),
    counter("cache-misses", "", Class::Hardware, b::PERF_COUNT_HW_CACHE_MISSES),
    counter("branches", "branch-instructions", Class::Hardware, b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    counter("branch-misses", "", Class::Hardware, b::PERF_COUNT_HW_BRANCH_MISSES),
    counter("bus-cycles", "", Class::Hardware, b::PERF_COUNT_HW_BUS_CYCLES),
    counter(
        "stalled-cycles-frontend",
        "idle-cycles-frontend",
        Class::Hardware,
        b::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    counter("stalled-cycles-backend", "idle-cycles-backend", Class::Hardware, b::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    counter("ref-cycles", "", Class::Hardware, b::PERF_COUNT_HW_REF_CPU_CYCLES),
];

impl Counter {
    /// Finds the counter by its name or alias.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        COUNTERS.iter().find(|counter| counter.name == name || (!counter.alias.is_empty() && counter.alias == name))
    }

    /// `type` and `config` of a `perf_event_attr`.
    pub(crate) fn attributes(&self) -> (u32, u64) {
        let is_hardware = self.class == Class::Hardware;
        (if is_hardware { b::PERF_TYPE_HARDWARE } else { b::PERF_TYPE_SOFTWARE }, u64::from(self.config))
    }
}

/// The `PERF_TYPE_HW_CACHE` config of a cache event such as `L1-dcache-load-misses`.
///
/// # Sources
/// `perf_event_open(2)`: cache | operation << 8 | result << 16; names: `perf list` of Linux 6.1.
pub(crate) fn cache_config(name: &str) -> Option<u64> {
    let caches = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
    let (cache, rest) = (0u64..).zip(caches).find_map(|(number, cache)| {
        let rest = name.strip_prefix(cache)?.strip_prefix('-')?;
        Some((number, rest))
    })?;
    let (operation, result) = match rest {
        "loads" => (0, 0),
        "load-misses" => (0, 1),
        "stores" => (1, 0),
        "store-misses" => (1, 1),
        "prefetches" => (2, 0),
        "prefetch-misses" => (2, 1),
        _ => return None,
    };
    Some(cache | operation << 8 | result << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no name means two counters, that names and aliases are known, and that caches are distinguished.
    #[test]
    fn names_are_perfs() {
        for (n, counter) in COUNTERS.iter().enumerate() {
            assert_eq!(Counter::named(counter.name), COUNTERS.get(n));
            assert!(counter.alias.is_empty() || Counter::named(counter.alias) == COUNTERS.get(n), "{counter:?}");
        }
        assert_eq!((Counter::named(""), Counter::named("nonsense")), (None, None));
        assert_eq!(cache_config("L1-dcache-load-misses"), Some(0x1_0000));
        assert_eq!(cache_config("LLC-store-misses"), Some(0x1_0102));
        assert_eq!((cache_config("L1-dcache"), cache_config("L1-dcache-nonsense")), (None, None));
    }
}

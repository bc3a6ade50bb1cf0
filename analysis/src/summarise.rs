//! Computes the summary of a recording.

use crate::events::{Selection, is_clock};
use crate::folded::Unit;
use crate::overhead::{Overhead, Setting, Ticks};
use crate::replay::Input;
use crate::signal_name;
use crate::summary::{Cost, Environment, Filtered, Summary, Volume, Waits, lost_by_cause};
use crate::totals::Totals;
use fpprof_recording::model::{
    CaptureMode, Collector, CpuCounters, End, EndReason, Event, LossCause, Measure, Meta, NotCounted, OwnCost,
    Sampling, Target, Uncounted,
};
use fpprof_recording::{Recording, balance};
use std::collections::BTreeMap;

/// Everything that does not need stacks: balance, volume, cost, environment, how it ended.
///
/// `strategies`, `processes`, `chunk_sizes`, `agreements` and `hottest` of the result are empty; `warnings` has only
/// those about the balance and the recorder's notes.
pub(crate) fn summarise(recording: &Recording<dyn Input + '_>, totals: &Totals, selection: &Selection) -> Summary {
    let is_blocked = selection.unit() == Unit::BlockedNs;
    let (meta, end, checkpoint) = (recording.meta(), recording.end(), recording.checkpoint());
    let is_imported = meta.collector == Collector::Imported;
    let all = balance(end, checkpoint, &totals.tally);
    let waits = Waits::new(&meta.events, &all, totals.blocked_ns);
    let in_file = all.iter().fold(0, |sum: u64, cpu| sum.saturating_add(cpu.recorded));
    // The files written by `import` and `verify --recording` have no figure for the bytes handed over.
    let ring_bytes = end.filter(|_| selection.unit() == Unit::Samples).map(|end| end.own_cost.ring_bytes);
    let ring_bytes = ring_bytes.filter(|&bytes| bytes > 0);
    // Whatever is selected: the cost is that of the first event's interrupts.
    let of_first = |of: fn(&CpuCounters) -> u64| {
        all.iter().filter(|cpu| cpu.event == 0).fold(0, |sum: u64, cpu| sum.saturating_add(of(cpu)))
    };
    let ticks = Ticks { fired: of_first(|cpu| cpu.fired), skipped: of_first(|cpu| cpu.skipped) };
    let cpus: Vec<CpuCounters> = all.into_iter().filter(|cpu| selection.has(cpu.event)).collect();
    let damage = recording.damage();
    let duration_ns = end_ns(recording).max(totals.last_ns).saturating_sub(meta.start_ns);
    let sideband_lost = end.map(|end| end.sideband_lost).or(checkpoint.map(|checkpoint| checkpoint.sideband_lost));
    let sum = |of: fn(&CpuCounters) -> u64| cpus.iter().fold(0, |sum: u64, cpu| sum.saturating_add(of(cpu)));
    let (recorded, duration_s) = (sum(|cpu| cpu.recorded), seconds(duration_ns));
    let lost_by_cpu = cpus.iter().map(|cpu| ((cpu.event, cpu.cpu), lost_by_kernel(cpu)));
    Summary {
        fired: sum(|cpu| cpu.fired),
        recorded,
        lost: lost_by_cause(&cpus),
        skipped: sum(|cpu| cpu.skipped),
        dropped: sum(|cpu| cpu.dropped),
        unaccounted: cpus.iter().map(unaccounted).fold(0, i64::saturating_add),
        lost_gaps: totals.lost_gaps(lost_by_cpu),
        shed: totals.shed,
        ticks_missing: end.map_or(0, |end| end.uncounted.ticks),
        withheld: totals.withheld,
        sideband_lost: sideband_lost.map_or(0, |lost| lost.events).saturating_add(damage.lost_sideband),
        file_bytes: recording.file_bytes(),
        duration_s,
        ended: end.map_or("early: the recorder was killed, or the file is truncated".to_string(), ended),
        ended_in_order: end.is_some_and(|end| !matches!(end.reason, EndReason::WriteFailed(_))),
        damage: damage.lines(),
        environment: environment(meta, selection),
        volume: Volume {
            bytes_per_sample: ratio(recording.file_bytes() as f64, in_file as f64),
            ..volume(recording.file_bytes(), recorded, duration_s, ring_bytes, totals)
        },
        cost: end.filter(|_| !is_imported).map(|end| Cost::new(&end.own_cost, ticks, Setting::of(meta, duration_s))),
        strategies: BTreeMap::new(),
        processes: Vec::new(),
        chunk_sizes: Vec::new(),
        agreements: Vec::new(),

        kernel_walks: None,
        no_call_before: BTreeMap::new(),
        waits,
        blocked_ns: is_blocked.then_some(totals.blocked_ns),
        filtered: (!selection.filter().is_all()).then(|| Filtered {
            filter: selection.filter().to_string(),
            samples: totals.shown,
            duration_s: seconds(selection.filter().time.length(duration_ns)),
            blocked_ns: is_blocked.then_some(totals.shown_blocked_ns),
        }),
        hottest: Vec::new(),
        hottest_strategy: String::new(),
        warnings: warnings(meta, end, &cpus, totals),
    }
}

/// Total losses of each CPU in the kernel, and the end of the recording as far as it is known.
pub(crate) fn lost_in_the_end(
    recording: &Recording<dyn Input + '_>,
    totals: &Totals,
    selection: &Selection,
) -> (Vec<(u32, u64)>, u64) {
    let cpus = balance(recording.end(), recording.checkpoint(), &totals.tally);
    let cpus = cpus.iter().filter(|cpu| selection.has(cpu.event));
    (cpus.map(|cpu| (cpu.cpu, lost_by_kernel(cpu))).collect(), end_ns(recording))
}

/// Time of the end; 0 if the file lacks it.
fn end_ns(recording: &Recording<dyn Input + '_>) -> u64 {
    let checkpoint = recording.checkpoint().map(|checkpoint| checkpoint.time_ns);
    recording.end().map(|end| end.time_ns).or(checkpoint).unwrap_or(0)
}

/// Samples lost in the kernel, without those that could not be written.
fn lost_by_kernel(cpu: &CpuCounters) -> u64 {
    let causes = cpu.lost.iter().filter(|(cause, _)| !matches!(cause, LossCause::Unwritten));
    causes.fold(0, |sum, (_, &n)| sum.saturating_add(n))
}

fn unaccounted(cpu: &CpuCounters) -> i64 {
    let lost = cpu.lost.values().fold(0_i128, |sum, &n| sum + i128::from(n));
    let accounted = i128::from(cpu.recorded) + lost + i128::from(cpu.skipped) + i128::from(cpu.dropped);
    let difference = i128::from(cpu.fired) - accounted;
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

/// A warning about stacks that were deliberately not copied.
fn withheld(meta: &Meta, totals: &Totals) -> Option<String> {
    // The kernel tells a BPF program what it may copy; for perf events the recorder asks `/proc`, while the process
    // lives.
    let ended = match meta.collector {
        Collector::PerfEvent => "; processes that ended before they could be checked are among them",
        _ => "",
    };
    (totals.withheld > 0).then(|| {
        format!(
            "{} stacks were not recorded, of setuid and other programs that must not be dumped, or, where fpprof has file \
             capabilities, of other users{ended}; as root, record with --include-privileged to have them",
            totals.withheld
        )
    })
}

/// A warning about stacks that the recording truncated, not the program.
fn shed(totals: &Totals) -> Option<String> {
    (totals.shed > 0).then(|| {
        format!(
            "{} stacks were copied in part because the ring buffer was filling up; those that do not reach their root count as \
             truncated (shed), and chunk sizes are judged by the others",
            totals.shed
        )
    })
}

/// A warning about losses that are large enough to change shares.
fn lost(cpus: &[CpuCounters]) -> Option<String> {
    let sum = |of: &dyn Fn(&CpuCounters) -> u64| cpus.iter().fold(0, |sum: u64, cpu| sum.saturating_add(of(cpu)));
    let lost = sum(&|cpu| cpu.lost.values().fold(cpu.dropped, |sum, &n| sum.saturating_add(n)));
    let all = lost.saturating_add(sum(&|cpu| cpu.recorded));
    let percent = 100.0 * lost as f64 / all.max(1) as f64;
    (percent > 1.0)
        .then(|| format!("{lost} of {all} samples were lost ({percent:.1} %); shares are those of the others"))
}

/// A warning about a CPU whose counters are inconsistent; two such CPUs could cancel out in the sum.
fn imbalance(cpu: &CpuCounters) -> Option<String> {
    let difference = unaccounted(cpu);
    (difference != 0).then(|| format!("CPU {}: {difference} of {} ticks are unaccounted for", cpu.cpu, cpu.fired))
}

fn warnings(meta: &Meta, end: Option<&End>, cpus: &[CpuCounters], totals: &Totals) -> Vec<String> {
    let not_counted =
        meta.not_counted.iter().map(not_counted).chain(end.into_iter().flat_map(|end| uncounted(end, meta)));
    not_counted
        .chain(cpus.iter().filter_map(imbalance))
        .chain(lost(cpus))
        .chain(varying(meta, cpus))
        .chain(shed(totals))
        .chain(withheld(meta, totals))
        .collect()
}

/// A warning about events whose samples stand for different numbers of them.
fn varying(meta: &Meta, cpus: &[CpuCounters]) -> Option<String> {
    let is_of = |event| cpus.iter().any(|cpu| cpu.event == event);
    let (_, event) = (0..).zip(&meta.events).find(|(n, event)| event.measure == Measure::Occurrences && is_of(*n))?;
    let name = &event.name;
    Some(format!(
        "-F changes how many {name} a sample stands for; shares are those of samples: for shares of {name}, record with -c N"
    ))
}

fn uncounted(end: &End, meta: &Meta) -> Vec<String> {
    let Uncounted { ticks, counter_share_percent } = end.uncounted;
    let is_clock = meta.events.first().is_some_and(|event| is_clock(&event.name));
    // Of a counter of the processor, these are overflows, and an estimate.
    let missing = (ticks > 0).then(|| match ticks {
        _ if is_clock => format!("about {ticks} ticks came late: they were not recorded, and are not counted as lost"),
        1 => "the event did not run the sampling program 1 time, which is not counted".to_owned(),
        _ => format!("the event did not run the sampling program {ticks} times, which are not counted"),
    });
    let shared = counter_share_percent
        .map(|share| format!("the processor's counter was on for {share} % of the time, since others use it as well"));
    missing.into_iter().chain(shared).chain(end.notes.iter().cloned()).collect()
}

fn not_counted(what: &NotCounted) -> String {
    match what {
        NotCounted::KernelTicks => {
            "ticks in the kernel are not sampled or counted: the recorder had no permission".to_string()
        }
        NotCounted::LastLosses => {
            "samples lost at the end of each CPU's ring buffer are not counted: the kernel is older than \
             6.0"
            .to_string()
        }
        NotCounted::FirstPeriods => {
            "new threads are not sampled in their first period; threads that end sooner have no samples".to_string()
        }
        _ => format!("not counted: {what:?}"),
    }
}

fn ended(end: &End) -> String {
    match end.reason {
        EndReason::Exited(status) => format!("command exited with status {status}"),
        EndReason::Killed(signal) => format!("command was killed by {}", signal_name(signal)),
        EndReason::TargetsGone => "all profiled processes ended".to_string(),
        EndReason::Duration => "reached its time limit (--duration or --switch-output)".to_string(),
        EndReason::Signal(signal) => format!("the recorder was stopped by {}", signal_name(signal)),
        EndReason::MaxSize => "reached its size limit (--max-size or --switch-output)".to_string(),
        EndReason::WriteFailed(errno) => {
            format!("early: cannot write the recording: {}", std::io::Error::from_raw_os_error(errno))
        }
    }
}

fn environment(meta: &Meta, selection: &Selection) -> Environment {
    let selected = || selection.events().iter().filter_map(|&event| meta.events.get(usize::from(event)));
    let events: Vec<&str> = selected().map(|event| event.name.as_str()).collect();
    let rates: Vec<String> = selected().map(rate).collect();
    Environment {
        kernel: meta.host.kernel.clone(),
        cpu_model: meta.host.cpu_model.clone(),
        cpus: meta.host.cpus_online,
        distribution: meta.host.distribution.clone(),
        event: events.join(", "),
        rate: rates.join(", "),
        mode: mode(meta.mode),
        target: target(&meta.target),
        collector: match meta.collector {
            Collector::Ebpf => "ebpf",
            Collector::PerfEvent => "perf_event",
            Collector::Imported => "imported",
        }
        .to_string(),
        aggregated_s: meta.aggregated_ns.map(seconds),
    }
}

fn rate(event: &Event) -> String {
    if let Measure::Blocked { threshold_ns } = event.measure
        && threshold_ns > 0
    {
        return format!("from {} µs", threshold_ns as f64 / 1e3);
    }
    match event.sampling {
        Sampling::FrequencyHz(hz) => format!("{hz} Hz"),
        Sampling::Period(ns) if is_clock(&event.name) => format!("every {ns} ns"),
        Sampling::Period(1) => "each".to_string(),
        Sampling::Period(period) => format!("every {period} events"),
    }
}

fn mode(mode: CaptureMode) -> String {
    match mode {
        CaptureMode::Fp => "fp".to_string(),
        CaptureMode::Dwarf { stack_bytes } => format!("dwarf,{stack_bytes}"),
        CaptureMode::Both { stack_bytes, every: 0 | 1 } => format!("both,{stack_bytes}"),
        CaptureMode::Both { stack_bytes, every } => format!("both,{stack_bytes},1/{every}"),
        CaptureMode::Cfi { stack_bytes, frame_pointers, .. } => {
            format!("cfi,{stack_bytes}{}", if frame_pointers { ",fp" } else { "" })
        }
    }
}

fn target(target: &Target) -> String {
    match target {
        Target::Command { argv, .. } => argv.join(" "),
        Target::Pids(pids) => {
            let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
            format!("processes {}", pids.join(", "))
        }
        Target::Threads(tids) => {
            let tids: Vec<String> = tids.iter().map(u32::to_string).collect();
            format!("threads {}", tids.join(", "))
        }
        Target::Cgroup(path) => format!("cgroup {path}"),
        Target::System => "the whole system".to_string(),
    }
}

fn volume(file_bytes: u64, recorded: u64, duration_s: f64, ring_bytes: Option<u64>, totals: &Totals) -> Volume {
    Volume {
        bytes_per_sample: ratio(file_bytes as f64, recorded as f64),
        ring_bytes_per_sample: ring_bytes.map(|bytes| ratio(bytes as f64, recorded as f64)),
        stack_bytes: totals.stack_bytes,
        bytes_per_minute: ratio(file_bytes as f64 * 60.0, duration_s),
    }
}

impl Cost {
    /// Computes the cost from the recording's own figures.
    #[must_use]
    pub fn new(own: &OwnCost, ticks: Ticks, setting: Setting) -> Self {
        let sampling_ns = own.cpu_ns().saturating_sub(own.before_start_ns).saturating_sub(own.after_stop_ns);
        let collector_cpu_s = seconds(sampling_ns);
        let per_tick = own.bpf_run_ns.zip(own.bpf_runs).filter(|&(_, runs)| runs > 0);
        Self {
            collector_cpu_s,
            collector_cpu_percent: ratio(collector_cpu_s * 100.0, setting.duration_s),
            start_cpu_s: seconds(own.before_start_ns),
            stop_cpu_s: seconds(own.after_stop_ns),
            parser_cpu_s: seconds(own.parser_ns),
            max_rss_bytes: own.max_rss_bytes,
            map_bytes: own.map_bytes,
            bpf_ns_per_tick: per_tick.map(|(ns, runs)| ns as f64 / runs as f64),
            overhead: Overhead::new(own, ticks, setting),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Ratio, or 0 if the divisor is 0, since JSON has no infinity.
fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}

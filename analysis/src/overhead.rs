//! Attributes the cost of recording from figures in the recording itself, without a run for comparison.
//!
//! ```text
//! interrupts = ticks × cost of one (measured on the recorded machine, without our program)
//! programs   = run time of our BPF programs, by the kernel's statistics
//! collector  = CPU time of the collector's processes, from the start of sampling to the end of the recording
//! target     = ticks that hit the target ÷ rate: its CPU time as sampled
//! ```
//!
//! The target itself is slowed down, even on a machine with idle CPUs, by the interrupts in it and the programs
//! ([`Overhead::on_target_percent`]). The collector slows it down only where they share a CPU
//! ([`Overhead::percent_of_target`] includes both). Interrupts in other processes cost the machine, not the target.
//! Neither figure includes the cost of cold caches.

use crate::events::{base_name, is_clock};
use fpprof_recording::model::{Event, Measure, Meta, OwnCost, Sampling};
use serde::{Deserialize, Serialize};

/// The cost of recording, by part, in CPU time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// Interrupts of the sampling event.
    pub interrupts: u64,
    /// Cost of one interrupt, nanoseconds; `None` if not measured.
    pub interrupt_ns: Option<u64>,
    /// Cost of all interrupts, seconds.
    pub interrupts_s: Option<f64>,
    /// Our BPF programs, seconds; `None` if not measured.
    pub programs_s: Option<f64>,
    /// The collector's processes, except for what they used before sampling began, seconds.
    pub collector_s: f64,
    /// Sum of the known parts above, seconds.
    pub all_s: f64,
    /// CPU time available on the machine: CPUs × length of the recording, seconds.
    pub machine_s: f64,
    /// CPU time of the target by its ticks, seconds; `None` if it had none, or the event does not measure time.
    pub target_s: Option<f64>,
    /// All parts in per cent of the machine's CPU time.
    pub percent_of_machine: f64,
    /// Interrupts in the target, programs and collector in per cent of the target's CPU time.
    pub percent_of_target: Option<f64>,
    /// Interrupts in the target and programs, in per cent of the target's CPU time; `None` also if either is not known.
    pub on_target_percent: Option<f64>,
    /// Bytes the collector's writing thread wrote, to any destination.
    pub written_bytes: Option<u64>,
    /// Those written to disk, in whole pages.
    pub to_disk_bytes: Option<u64>,
}

/// Ticks of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ticks {
    /// All ticks.
    pub fired: u64,
    /// Ticks in something that was not to be profiled.
    pub skipped: u64,
}

/// The reference quantities for a recording's cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// CPUs online.
    pub cpus: u32,
    /// CPU time that a tick stands for, seconds; `None` for events that do not measure time.
    pub tick_s: Option<f64>,
    /// Length of the recording, seconds.
    pub duration_s: f64,
}

impl Setting {
    /// The quantities of a recording of this length.
    #[must_use]
    pub fn of(meta: &Meta, duration_s: f64) -> Self {
        Self { cpus: meta.host.cpus_online, tick_s: meta.events.first().and_then(tick_s), duration_s }
    }
}

impl Overhead {
    /// Attributes the cost of a recording.
    #[must_use]
    pub fn new(own: &OwnCost, ticks: Ticks, setting: Setting) -> Self {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let interrupts_s = own.interrupt_ns.map(|ns| seconds(ns) * ticks.fired as f64);
        let programs_s = own.bpf_run_ns.map(seconds);
        let collector_s = seconds(own.cpu_ns().saturating_sub(own.before_start_ns));
        let all_s = interrupts_s.unwrap_or(0.0) + programs_s.unwrap_or(0.0) + collector_s;
        let machine_s = f64::from(setting.cpus) * setting.duration_s;
        let on_target = ticks.fired.saturating_sub(ticks.skipped) as f64;
        let target_s = setting.tick_s.map(|tick_s| on_target * tick_s).filter(|&target_s| target_s > 0.0);
        let percent = |of: f64, all: f64| if all > 0.0 { of / all * 100.0 } else { 0.0 };
        // Of the interrupts, count only the share of ticks that hit the target.
        let hits_s = own.interrupt_ns.map(|ns| seconds(ns) * on_target);
        let hit_target_s = hits_s.zip(programs_s).map(|(hits_s, programs_s)| hits_s + programs_s);
        let concerns_target_s = hits_s.unwrap_or(0.0) + programs_s.unwrap_or(0.0) + collector_s;
        Self {
            interrupts: ticks.fired,
            interrupt_ns: own.interrupt_ns,
            interrupts_s,
            programs_s,
            collector_s,
            all_s,
            machine_s,
            target_s,
            percent_of_machine: percent(all_s, machine_s),
            percent_of_target: target_s.map(|target_s| percent(concerns_target_s, target_s)),
            on_target_percent: hit_target_s.zip(target_s).map(|(hit, target_s)| percent(hit, target_s)),
            written_bytes: own.written_bytes,
            to_disk_bytes: own.to_disk_bytes,
        }
    }

    /// Whether a part is not known, so that the sums are too small.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.interrupts_s.is_none() || self.programs_s.is_none()
    }
}

/// Seconds between two ticks; `None` if the event does not measure time.
fn tick_s(event: &Event) -> Option<f64> {
    let is_clock = is_clock(&event.name);
    match event.sampling {
        // At a frequency, cycles are sampled as often as a timer ticks while a program runs.
        Sampling::FrequencyHz(hz) if hz > 0 && event.measure == Measure::Samples => {
            (is_clock || matches!(base_name(&event.name), "cycles" | "cpu-cycles")).then_some(1.0 / hz as f64)
        }
        Sampling::Period(ns) => is_clock.then_some(ns as f64 / 1e9),
        Sampling::FrequencyHz(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::meta;
    use fpprof_recording::model::CaptureMode;

    fn own() -> OwnCost {
        OwnCost {
            user_ns: 150_000_000,
            system_ns: 50_000_000,
            bpf_run_ns: Some(20_000_000),
            interrupt_ns: Some(10_000),
            written_bytes: Some(5),
            ..OwnCost::default()
        }
    }

    /// Check each part and each share against hand-computed figures: 10 s at 100 Hz on two CPUs, half of the ticks in
    /// the target.
    #[test]
    fn parts_add_up() {
        let mut meta = meta(CaptureMode::Fp);
        meta.host.cpus_online = 2;
        meta.events[0].sampling = Sampling::FrequencyHz(100);
        let found = Overhead::new(&own(), Ticks { fired: 2000, skipped: 1000 }, Setting::of(&meta, 10.0));
        let near = |a: Option<f64>, b: f64| assert!(a.is_some_and(|a| (a - b).abs() < 1e-9), "{a:?} is not {b}");
        near(found.interrupts_s, 0.02);
        near(found.programs_s, 0.02);
        near(Some(found.all_s), 0.24);
        near(Some(found.percent_of_machine), 1.2);
        near(found.target_s, 10.0);
        near(found.percent_of_target, 2.3);
        near(found.on_target_percent, 0.3);
        assert!(!found.is_partial());
    }

    /// Check that an older recording without the cost of an interrupt has no share that silently leaves it out, and
    /// that a period in cycles, or an event that does not measure time, gives no time.
    #[test]
    fn unknown_parts_are_unknown() {
        let mut meta = meta(CaptureMode::Fp);
        let ticks = Ticks { fired: 10, skipped: 0 };
        let old = Overhead::new(&OwnCost { interrupt_ns: None, ..own() }, ticks, Setting::of(&meta, 1.0));
        assert_eq!((old.interrupts_s, old.on_target_percent, old.is_partial()), (None, None, true));
        meta.events[0].sampling = Sampling::Period(100_000);
        meta.events[0].name = "cycles".to_owned();
        let cycles = Overhead::new(&own(), ticks, Setting::of(&meta, 1.0));
        assert_eq!((cycles.target_s, cycles.percent_of_target), (None, None));
        meta.events[0].sampling = Sampling::FrequencyHz(999);
        for (name, is_known) in [("cycles", true), ("cpu-clock:u", true), ("cache-misses", false), ("r1b1", false)] {
            meta.events[0].name = name.to_owned();
            let found = Overhead::new(&own(), ticks, Setting::of(&meta, 1.0));
            assert_eq!(found.target_s.is_some(), is_known, "{name}");
        }
        let nothing = Overhead::new(&own(), Ticks::default(), Setting::of(&meta, 0.0));
        assert!(nothing.percent_of_machine.is_finite());
    }
}

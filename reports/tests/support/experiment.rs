//! A handmade experiment, modelled on real figures.

use super::profile::counts;
use fpprof_analysis::experiment::{
    Attributed, BetterWhen, Experiment, ExperimentEnvironment, ExperimentMethod, ExperimentRow, Measured, Metric,
    Right, Run, SCHEMA, StackEnds, Stacks, Tool, Version,
};
use std::collections::BTreeMap;

/// The properties of one mode; the scatter between rounds is added.
struct Mode {
    label: &'static str,
    tool: Tool,
    method: ExperimentMethod,
    stack_bytes: Option<u64>,
    bytes_per_sample: u64,
    lost: u64,
    chunks: u64,
    cpu_s: f64,
    slow_down_percent: f64,
    fio: [u64; 3],
    nbdkit: [u64; 3],
}

const ROUNDS: [f64; 5] = [1.000, 0.992, 1.007, 0.996, 1.003];

/// IOPS of the command without a profiler.
const IOPS: f64 = 48_200.0;

fn ends([complete, truncated, broken]: [u64; 3]) -> StackEnds {
    StackEnds {
        samples: complete + truncated + broken,
        complete,
        truncated: if truncated > 0 { counts(&[("chunk_end", truncated)]) } else { BTreeMap::new() },
        broken: if broken > 0 {
            counts(&[("ra_not_exec", broken - broken / 8), ("misaligned", broken / 8)])
        } else {
            BTreeMap::new()
        },
    }
}

fn stacks(mode: &Mode, strategy: &str, fio: [u64; 3], nbdkit: [u64; 3]) -> Stacks {
    Stacks {
        strategy: strategy.to_owned(),
        unwound_by: None,
        processes: [("fio".to_owned(), ends(fio)), ("nbdkit".to_owned(), ends(nbdkit))].into(),
        flame_graph: Measured::Value(format!("{}-{strategy}.svg", mode.label.replace([',', ' '], "-"))),
    }
}

fn run(mode: &Mode, repeat: usize) -> Run {
    let scatter = ROUNDS[(repeat * 2 + mode.label.len()) % 5];
    let wall_s = Measured::Value(8.0 + 0.02 * f64::from(u8::try_from(repeat).unwrap()));
    let metric = Measured::Value(
        (IOPS * ROUNDS[repeat] * (1.0 - mode.slow_down_percent / 100.0) * (1.0 + (scatter - 1.0) * 0.8)).round(),
    );
    let repeat = u32::try_from(repeat).unwrap();
    if mode.tool == Tool::Nobody {
        return Run::unrecorded(repeat, wall_s, metric, "nobody records");
    }
    let recorded = mode.fio.iter().chain(&mode.nbdkit).sum::<u64>();
    let ours = mode.tool == Tool::Fpprof;
    let perf = "perf does not count the ticks of its event";
    let mut all = Vec::new();
    if mode.method == ExperimentMethod::Both {
        all.push(stacks(mode, "fp", [4, 30, 6_200], [3, 20, 6_001]));
    }
    all.push(stacks(mode, if mode.method == ExperimentMethod::Fp { "fp" } else { "dwarf" }, mode.fio, mode.nbdkit));
    Run {
        repeat,
        wall_s,
        metric,
        bytes: Measured::Value(recorded * mode.bytes_per_sample + 4096 * u64::from(repeat)),
        fired: if ours { Measured::Value(recorded + mode.lost + 11) } else { Measured::missing(perf) },
        recorded: Measured::Value(recorded),
        lost: Measured::Value(counts(&[(if ours { "ring_full" } else { "lost" }, mode.lost)])),
        skipped: if ours { Measured::Value(11) } else { Measured::missing(perf) },
        dropped: if ours { Measured::Value(0) } else { Measured::missing(perf) },
        lost_chunks: Measured::Value(mode.chunks),
        collector_cpu_s: Measured::Value(mode.cpu_s * scatter),
        collector_stop_cpu_s: if ours {
            Measured::Value(mode.cpu_s / 4.0)
        } else {
            Measured::missing("perf does not tell when its last sample was")
        },
        bpf_ns_per_sample: if ours {
            Measured::Value(600.0 + mode.cpu_s * 4000.0)
        } else {
            Measured::missing("perf runs no BPF program")
        },
        attributed: if ours {
            Measured::Value(Attributed { on_target_percent: 1.5, all_percent: 1.5 + mode.cpu_s * 10.0 })
        } else {
            Measured::missing("perf does not say what it costs")
        },
        max_rss_bytes: Measured::Value(40_000_000),
        stacks: Measured::Value(all),
        frame_pointers: if mode.method == ExperimentMethod::Both {
            Measured::Value(Right { compared: recorded, right: 7 })
        } else {
            Measured::missing("needs both kinds of stack in the same samples")
        },
    }
}

fn row(mode: &Mode) -> ExperimentRow {
    let runs = (0..ROUNDS.len()).map(|repeat| run(mode, repeat)).collect();
    ExperimentRow::new(mode.label.to_owned(), mode.tool, mode.method, mode.stack_bytes, runs)
}

fn environment() -> ExperimentEnvironment {
    let version = |program: &str, version: &str| Version { program: program.to_owned(), version: version.to_owned() };
    ExperimentEnvironment {
        date: "2026-03-01 12:00 UTC".to_owned(),
        machine: "KVM guest".to_owned(),
        cpu_model: "AMD EPYC 9004".to_owned(),
        cpus: 2,
        memory_bytes: 24_700_000_000,
        kernel: "6.18.0".to_owned(),
        distribution: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        versions: vec![
            version("fpprof", "0.1.0"),
            version("perf", "6.1.170"),
            version("nbdkit", "1.32.5"),
            version("fio", "3.33"),
        ],
    }
}

/// The experiment with its aggregates computed.
pub(crate) fn experiment() -> Experiment {
    let mode = |label,
                tool,
                method,
                stack_bytes,
                bytes_per_sample,
                (lost, chunks),
                cpu_s,
                slow_down_percent,
                fio,
                nbdkit| {
        Mode { label, tool, method, stack_bytes, bytes_per_sample, lost, chunks, cpu_s, slow_down_percent, fio, nbdkit }
    };
    use ExperimentMethod::{Both, Dwarf, Fp, None};
    use Tool::{Fpprof, Nobody, Perf};
    let short = [12, 6_222, 0];
    let nbdkit = [6_004, 20, 0];
    let modes = [
        mode("none", Nobody, None, Option::None, 0, (0, 0), 0.0, 0.0, [0; 3], [0; 3]),
        mode("none (again)", Nobody, None, Option::None, 0, (0, 0), 0.0, 0.1, [0; 3], [0; 3]),
        mode("fp", Fpprof, Fp, Option::None, 34, (0, 0), 0.03, 0.9, [9, 25, 6_200], [5, 19, 6_000]),
        mode("dwarf,4096", Fpprof, Dwarf, Some(4_096), 71, (0, 0), 0.06, 1.4, short, nbdkit),
        mode("dwarf,16384", Fpprof, Dwarf, Some(16_384), 160, (0, 0), 0.10, 2.0, short, nbdkit),
        mode("dwarf,65536", Fpprof, Dwarf, Some(65_536), 388, (2, 1), 0.19, 3.1, [6_229, 4, 1], [6_024, 0, 0]),
        mode("both,65536", Fpprof, Both, Some(65_536), 412, (3, 1), 0.21, 3.4, [6_229, 4, 1], [6_024, 0, 0]),
        mode("perf fp", Perf, Fp, Option::None, 167, (0, 0), 0.24, 1.1, [8, 26, 6_200], [6, 18, 6_000]),
        mode("perf dwarf,8192", Perf, Dwarf, Some(8_192), 8_444, (0, 0), 0.39, 2.6, short, nbdkit),
        mode("perf dwarf,65528", Perf, Dwarf, Some(65_528), 64_683, (44, 9), 0.93, 5.2, [6_226, 8, 0], [6_023, 1, 0]),
    ];
    let mut experiment = Experiment {
        schema: SCHEMA,
        environment: environment(),
        command: ["nbdkit", "-U", "-", "null", "1G", "--run", "export uri; fio nbd.fio"].map(str::to_owned).into(),
        rate: "999 Hz".to_owned(),
        event: "cpu-clock".to_owned(),
        repeats: 5,
        order: (0..5).flat_map(|_| modes.iter().map(|mode| mode.label.to_owned())).collect(),
        metric: Some(Metric {
            name: "IOPS".to_owned(),
            unit: String::new(),
            regex: "IOPS=([0-9.]+)".to_owned(),
            better_when: BetterWhen::Higher,
        }),
        rows: modes.iter().map(row).collect(),
        notes: vec!["Round 3 of perf dwarf,65528 was repeated once: fio could not connect.".to_owned()],
    };
    experiment.complete();
    experiment
}

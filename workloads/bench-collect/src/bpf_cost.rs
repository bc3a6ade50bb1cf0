//! Cost of the BPF program alone: nanoseconds per sample by stack size, next to a memcpy of as many bytes; and of the
//! whole interrupt, next to perf's.

use crate::config::RunConfig;
use crate::handler::HandlerCost;
use crate::modes::is_installed;
use crate::progress::print_progress;
use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The cost for one stack size.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct BpfCost {
    /// Bytes of stack requested from the test program; the copied size differs slightly.
    pub(crate) stack_bytes: u64,
    /// Bytes per sample in the ring buffer: header, registers, stack and chain.
    pub(crate) record_bytes: f64,
    /// For each mode in the order of [`MODES`]: nanoseconds of the program per sample, by round.
    pub(crate) ns_per_sample: Vec<Vec<f64>>,
    /// Copying as many bytes from the caches to memory that was not used recently, as in a ring buffer; nanoseconds by
    /// round.
    pub(crate) memcpy_ns: Vec<f64>,
    /// Copying as many bytes to the same place repeatedly; nanoseconds by round.
    pub(crate) hot_memcpy_ns: Vec<f64>,
    /// The interrupt as measured by bpftrace; `None` if that is not possible.
    pub(crate) handler: Option<HandlerCost>,
}

/// The measured modes.
pub(crate) const MODES: [&str; 4] = ["fp", "cfi,262144,verify=0", "dwarf,262144", "both,262144"];

/// Recursion depth of the test program; with the surrounding frames, a chain of 23.
const FRAMES: u32 = 20;

/// Measures all sizes in turn.
pub(crate) fn measure(config: &RunConfig, is_quick: bool) -> anyhow::Result<Vec<BpfCost>> {
    let program = build(&config.dir)?;
    let (sizes, rounds): (&[u64], usize) = if is_quick { (&[4096, 65_536], 1) } else { (&[4096, 16_384, 65_536], 3) };
    let mut costs: Vec<BpfCost> = sizes.iter().map(|&stack_bytes| BpfCost::new(stack_bytes)).collect();
    for round in 0..rounds {
        print_progress(&format!("BPF program, round {} of {rounds}", round + 1));
        for cost in &mut costs {
            for (mode, results) in MODES.iter().zip(&mut cost.ns_per_sample) {
                let (ns, record_bytes) = ns_per_sample(config, &program, mode, cost.stack_bytes)?;
                results.push(ns);
                cost.record_bytes = record_bytes;
            }
            let bytes = usize::try_from(cost.stack_bytes)?;
            cost.memcpy_ns.push(memcpy_ns(bytes, 64 << 20));
            cost.hot_memcpy_ns.push(memcpy_ns(bytes, bytes));
            if let Some(handler) = &mut cost.handler
                && let Err(error) = handler.measure(config, &program)
            {
                print_progress(&format!("the interrupt: {error:#}"));
                cost.handler = None;
            }
        }
    }
    Ok(costs)
}

impl BpfCost {
    fn new(stack_bytes: u64) -> Self {
        let ns_per_sample = vec![Vec::new(); MODES.len()];
        let handler = (is_installed("bpftrace") && is_installed("perf")).then(|| HandlerCost::new(stack_bytes));
        let (memcpy_ns, hot_memcpy_ns) = (Vec::new(), Vec::new());
        Self { stack_bytes, record_bytes: 0.0, ns_per_sample, memcpy_ns, hot_memcpy_ns, handler }
    }
}

fn build(dir: &Path) -> anyhow::Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/frames.c");
    let program = dir.join("frames");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", &format!("-DFRAMES={FRAMES}")]);
    let status = cc.arg(&source).arg("-o").arg(&program).status().context("starting cc")?;
    ensure!(status.success(), "building {}", source.display());
    Ok(program)
}

/// Time of the program per recorded sample, and bytes per sample. The cost of skipped ticks (other processes, idle
/// CPUs) is subtracted, as measured when nothing else happens.
pub(crate) fn ns_per_sample(
    config: &RunConfig,
    program: &Path,
    mode: &str,
    stack_bytes: u64,
) -> anyhow::Result<(f64, f64)> {
    let idle = record(config, mode, &["sleep".to_owned(), "0.5".to_owned()])?;
    let filter_ns = number(&idle, "/cost/bpf_ns_per_tick").context("the kernel does not say what BPF programs cost")?;
    let busy = record(config, mode, &[program.display().to_string(), stack_bytes.to_string(), "0.5".to_owned()])?;
    let of = |pointer| number(&busy, pointer).with_context(|| format!("no {pointer} in the report"));
    let (fired, recorded, skipped) = (of("/fired")?, of("/recorded")?, of("/skipped")?);
    ensure!(recorded > 100.0, "only {recorded} samples of the test program");
    let total_ns = of("/cost/bpf_ns_per_tick")? * fired;
    Ok(((total_ns - filter_ns * skipped) / recorded, of("/volume/ring_bytes_per_sample")?))
}

fn number(report: &Value, pointer: &str) -> Option<f64> {
    report.pointer(pointer)?.as_f64()
}

/// Records and reports. Here a recording without samples is expected, for which `record` fails.
fn record(config: &RunConfig, mode: &str, command: &[String]) -> anyhow::Result<Value> {
    let file = config.dir.join("cost");
    let mut recorder = Command::new(&config.fpprof);
    recorder
        .args(["record", "--quiet", "--stats", "-F", "4999", "--collector", "ebpf", "--call-graph", mode, "-o"])
        .arg(&file);
    recorder.arg("--").args(command).stdin(Stdio::null()).stderr(Stdio::null()).status()?;
    let report = Command::new(&config.fpprof).arg("report").arg(&file).arg("--json").stderr(Stdio::null()).output()?;
    let value = serde_json::from_slice(&report.stdout).context("reading the report of a recording")?;
    std::fs::remove_file(&file)?;
    Ok(value)
}

/// Nanoseconds per copy from a small source into `room` bytes, used cyclically; the best of five passes.
fn memcpy_ns(bytes: usize, room: usize) -> f64 {
    let source = vec![0x5a_u8; bytes];
    let mut target = vec![0_u8; room.max(bytes)];
    let n = (256 << 20) / bytes.max(1);
    let pass = |target: &mut [u8]| {
        let started = Instant::now();
        for place in (0..n).map(|i| i % (room / bytes).max(1) * bytes) {
            if let Some(place) = target.get_mut(place..place + bytes) {
                black_box(place).copy_from_slice(black_box(&source));
            }
        }
        started.elapsed().as_secs_f64() * 1e9 / n as f64
    };
    (0..5).map(|_| pass(&mut target)).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a copy takes time, and that one of sixteen times as many bytes takes longer.
    #[test]
    fn copies_take_time() {
        let (small, large) = (memcpy_ns(4096, 4096), memcpy_ns(65_536, 65_536));
        assert!(small > 1.0 && large > small, "{small} and {large} ns");
    }
}

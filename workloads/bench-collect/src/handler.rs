//! The sampling interrupt seen from outside: nanoseconds of the timer's handler, for any profiler.
//!
//! The kernel has run-time statistics of BPF programs only. To include the cost of perf's own sampling, bpftrace traces
//! the start and the end of the sampling clock's handler while the test program runs. It does so for fpprof and perf
//! alike, and its own overhead is in both.

use crate::config::RunConfig;
use crate::modes::find_installed;
use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// The profilers, in the order of the table.
pub(crate) const HANDLERS: [&str; 6] =
    ["fpprof fp", "fpprof dwarf", "fpprof both", "perf fp", "perf dwarf", "perf without stacks"];

/// Handler times for one stack size.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HandlerCost {
    /// Bytes of stack of the test program.
    pub(crate) stack_bytes: u64,
    /// For each of [`HANDLERS`]: mean nanoseconds per sample, by round.
    pub(crate) ns: Vec<Vec<f64>>,
}

impl HandlerCost {
    pub(crate) fn new(stack_bytes: u64) -> Self {
        Self { stack_bytes, ns: vec![Vec::new(); HANDLERS.len()] }
    }

    /// Measures one more round of all.
    pub(crate) fn measure(&mut self, config: &RunConfig, program: &Path) -> anyhow::Result<()> {
        for (who, results) in HANDLERS.iter().zip(&mut self.ns) {
            let command = profiler(config, who, program, self.stack_bytes)?;
            results.push(handler_ns(config, &command).with_context(|| command)?);
        }
        Ok(())
    }
}

/// The profiler's command as bpftrace needs it: one string, with the full path of the program.
fn profiler(config: &RunConfig, who: &str, program: &Path, stack_bytes: u64) -> anyhow::Result<String> {
    let file = config.dir.join("handler");
    let (name, mode) = who.split_once(' ').context("a profiler and a mode")?;
    let call_graph = match (name, mode) {
        ("fpprof", "fp") | ("perf", "fp") => " --call-graph fp".to_owned(),
        ("fpprof", mode) => format!(" --call-graph {mode},262144"),
        // perf's largest chunk is 8 bytes less than 64 KiB.
        ("perf", "dwarf") => format!(" --call-graph dwarf,{}", stack_bytes.min(65_528)),
        _ => String::new(),
    };
    let recorder = match name {
        "fpprof" => format!("{} record --collector ebpf", config.fpprof.display()),
        _ => format!("{} record", find_installed("perf").context("finding perf")?.display()),
    };
    let (file, program) = (file.display(), program.display());
    Ok(format!("{recorder} --quiet -F 4999{call_graph} -o {file} -- {program} {stack_bytes} 0.4"))
}

const SCRIPT: &str = "\
tracepoint:timer:hrtimer_expire_entry /comm == \"frames\" && args->function == kaddr(\"perf_swevent_hrtimer\")/
{ @began[cpu] = nsecs; }
tracepoint:timer:hrtimer_expire_exit /@began[cpu]/
{ @n = count(); @ns = sum(nsecs - @began[cpu]); @began[cpu] = 0; }";

/// Mean nanoseconds of the handler while the test program ran.
fn handler_ns(config: &RunConfig, command: &str) -> anyhow::Result<f64> {
    let out = config.dir.join("handler.json");
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-f", "json", "-o"]).arg(&out).args(["-e", SCRIPT, "-c", command]);
    let said = bpftrace.stdin(Stdio::null()).output().context("starting bpftrace")?;
    let text = std::fs::read_to_string(&out).unwrap_or_default();
    let value = |name| text.lines().find_map(|line| map_value(line, name));
    let (n, ns) = value("@n").zip(value("@ns")).with_context(|| {
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        format!("bpftrace saw no handler (is tracefs mounted on /sys/kernel/tracing?): {}", said.trim())
    })?;
    ensure!(n > 100.0, "only {n} samples of the test program");
    Ok(ns / n)
}

/// The value of a map in a line such as `{"type": "map", "data": {"@n": 7}}`.
fn map_value(line: &str, name: &str) -> Option<f64> {
    serde_json::from_str::<Value>(line).ok()?.get("data")?.get(name)?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the value of a map is only found in its own line.
    #[test]
    fn values_of_maps() {
        assert_eq!(map_value("{\"type\": \"map\", \"data\": {\"@n\": 4139}}", "@n"), Some(4139.0));
        assert_eq!(map_value("{\"type\": \"map\", \"data\": {\"@began\": {\"1\": 0}}}", "@n"), None);
        assert_eq!(map_value("{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}", "@n"), None);
        assert_eq!(map_value("", "@n"), None);
    }
}

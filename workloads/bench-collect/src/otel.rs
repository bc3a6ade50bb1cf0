//! The OpenTelemetry eBPF profiler, and the OpenTelemetry Collector that receives its profiles and writes them to a file.

use crate::judge::Judged;
use crate::modes::is_installed;
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Name of the profiler's program.
pub(crate) const PROFILER: &str = "ebpf-profiler";
/// Name of the Collector's program, with the receiver `otlp` and the exporter `file`.
const COLLECTOR: &str = "otelcol";

/// Whether both programs are in `PATH`.
pub(crate) fn is_available() -> bool {
    is_installed(PROFILER) && is_installed(COLLECTOR)
}

/// Options of the profiler: it samples the whole machine, and sends what it collects every `report_s` seconds.
pub(crate) fn options(rate: u64, report_s: u64, receiver: &Receiver) -> String {
    let address = &receiver.address;
    format!("-disable-tls -collection-agent {address} -reporter-interval {report_s}s -samples-per-second {rate}")
}

/// A running Collector, which ends on drop.
#[derive(Debug)]
pub(crate) struct Receiver {
    child: Child,
    address: String,
    /// The profiles, one request in OTLP/JSON a line.
    profiles: PathBuf,
}

impl Receiver {
    /// Starts the Collector on a free port. The profiler itself waits until it answers.
    pub(crate) fn start(dir: &Path) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let (config, profiles) = (dir.join("otelcol.yaml"), dir.join("profiles.json"));
        let text = format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{address}'}}}}}}}}\n\
             exporters: {{file: {{path: '{}'}}}}\n\
             service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
             pipelines: {{profiles: {{receivers: [otlp], exporters: [file]}}}}\n",
            profiles.display()
        );
        fs::write(&config, text)?;
        let log = File::create(dir.join("otelcol.log"))?;
        let mut collector = Command::new(COLLECTOR);
        collector.arg("--config").arg(&config).arg("--feature-gates=service.profilesSupport");
        collector.stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        let child = collector.spawn().context("starting the OpenTelemetry Collector")?;
        Ok(Self { child, address, profiles })
    }

    /// Ends the Collector; then all profiles are in the file. Counts the stacks of `program`, and how many of them end in
    /// its entry point.
    pub(crate) fn judge(mut self, program: &Path) -> anyhow::Result<Judged> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait()?;
        let header = fs::read(program)?;
        let entry = header.get(24..32).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let entry = entry.with_context(|| format!("{} is no ELF file", program.display()))?;
        let name = program.file_name().and_then(|name| name.to_str()).context("the program's name")?;
        let (mut stacks, mut complete) = (0, 0);
        for line in BufReader::new(File::open(&self.profiles)?).lines() {
            let request = Request(serde_json::from_str(&line?)?);
            for (n, stack) in request.samples() {
                let Some((file, address)) = request.outermost(stack) else { continue };
                if file == name {
                    stacks += n;
                    complete += if (entry..entry + START_BYTES).contains(&address) { n } else { 0 };
                }
            }
        }
        Ok(Judged { stacks: Some(stacks), complete: Some(complete), ..Judged::default() })
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Length of `_start`, at most.
const START_BYTES: u64 = 64;

/// An OTLP request with profiles, in JSON.
///
/// # Sources
/// `opentelemetry/proto/profiles/v1development/profiles.proto`.
struct Request(Value);

impl Request {
    /// Counts and stacks of all samples.
    fn samples(&self) -> impl Iterator<Item = (u64, u64)> {
        let of = |value: &Value, key| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
        let scopes = of(&self.0, "resourceProfiles").into_iter().flat_map(move |one| of(&one, "scopeProfiles"));
        let profiles = scopes.flat_map(move |one| of(&one, "profiles"));
        profiles.flat_map(move |one| of(&one, "samples")).map(move |sample| {
            let stack = sample.get("stackIndex").and_then(Value::as_u64).unwrap_or(0);
            (of(&sample, "timestampsUnixNano").len().max(1) as u64, stack)
        })
    }

    /// File name and address of a stack's outermost frame.
    fn outermost(&self, stack: u64) -> Option<(&str, u64)> {
        let dictionary = self.0.get("dictionary")?;
        let at = |table: &str, index: u64| dictionary.get(table)?.get(usize::try_from(index).ok()?);
        let location = at("stackTable", stack)?.get("locationIndices")?.as_array()?.last()?.as_u64()?;
        let location = at("locationTable", location)?;
        let mapping = at("mappingTable", location.get("mappingIndex")?.as_u64()?)?;
        let name = at("stringTable", mapping.get("filenameStrindex")?.as_u64()?)?.as_str()?;
        Some((name, location.get("address")?.as_str()?.parse().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::Request;
    use serde_json::json;

    /// Check that samples are counted by their times, and that the outermost frame is found.
    #[test]
    fn samples_of_a_request() {
        let request = Request(json!({
            "resourceProfiles": [{"scopeProfiles": [{"profiles": [{"samples": [
                {"stackIndex": 1, "timestampsUnixNano": ["7", "8"]}, {}
            ]}]}]}],
            "dictionary": {
                "stackTable": [{}, {"locationIndices": [2, 1]}],
                "locationTable": [{}, {"mappingIndex": 1, "address": "4198"}, {"mappingIndex": 1, "address": "9"}],
                "mappingTable": [{}, {"filenameStrindex": 1}],
                "stringTable": ["", "frames"],
            },
        }));
        assert_eq!(request.samples().collect::<Vec<_>>(), [(2, 1), (1, 0)]);
        assert_eq!(request.outermost(1), Some(("frames", 4198)));
        assert_eq!(request.outermost(0), None);
    }
}

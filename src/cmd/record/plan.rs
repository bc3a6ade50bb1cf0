//! `record --dry-run`: prints what would be recorded.

use crate::values::mode_name;
use fpprof_collector::{CollectorKind, Request, Target};
use fpprof_recording::model::Sampling;
use fpprof_reports::escape::visible;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

/// Prints the request in five lines.
///
/// # Errors
/// If stdout cannot be written.
pub(super) fn print(request: &Request, output: &Path, live: Option<Duration>) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    lines(request, output, live).iter().try_for_each(|(name, text)| writeln!(stdout, "{name:<10}{}", visible(text)))
}

fn lines(request: &Request, output: &Path, live: Option<Duration>) -> [(&'static str, String); 5] {
    [
        ("target", target(&request.target)),
        ("event", event(request)),
        ("stacks", stacks(request)),
        ("output", written(request, output, live)),
        ("collector", collector(request.collector).to_owned()),
    ]
}

fn target(target: &Target) -> String {
    match target {
        Target::Command { argv } => format!("command {}", command(argv)),
        Target::SystemWhile { argv } => format!("the whole system, while the command {} runs", command(argv)),
        Target::System => "the whole system".to_owned(),
        Target::Pids(pids) => format!("processes {}", list(pids)),
        Target::Threads(tids) => format!("threads {}", list(tids)),
        Target::Cgroup { path, argv: None } => format!("cgroup {}", path.display()),
        Target::Cgroup { path, argv: Some(argv) } => {
            format!("cgroup {}, while the command {} runs", path.display(), command(argv))
        }
    }
}

fn command(argv: &[OsString]) -> String {
    argv.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn list(numbers: &[impl Display]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn event(request: &Request) -> String {
    let rate = match request.sampling {
        Sampling::FrequencyHz(hz) => format!("{hz} Hz on each CPU"),
        Sampling::Period(1) => "each".to_owned(),
        Sampling::Period(n) => format!("one in {n}"),
    };
    let waits = match request.off_cpu {
        None => String::new(),
        Some(Duration::ZERO) => "; all waits".to_owned(),
        Some(least) => format!("; waits of {least:?} or longer"),
    };
    let duration = request.duration.map_or_else(String::new, |duration| format!("; for {duration:?}"));
    format!("{}, {rate}{waits}{duration}", request.event)
}

fn stacks(request: &Request) -> String {
    let or = request.else_mode.map_or_else(String::new, |mode| format!(" if possible, else {}", mode_name(mode)));
    let kernel = if request.kernel_stacks { "with" } else { "without" };
    format!("{}{or}, {kernel} kernel stacks", mode_name(request.mode))
}

fn written(request: &Request, output: &Path, live: Option<Duration>) -> String {
    if let Some(interval) = live {
        return format!("the store {}, a file each {interval:?}", output.display());
    }
    let once = request.aggregate.map_or_else(String::new, |apart| format!("; equal samples once in {apart:?}"));
    format!("{}{once}", output.display())
}

fn collector(kind: CollectorKind) -> &'static str {
    match kind {
        CollectorKind::Auto => "eBPF if possible, else perf events",
        CollectorKind::Ebpf => "eBPF",
        CollectorKind::PerfEvent => "perf events",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::CaptureMode;

    /// Check that the lines describe the whole request.
    #[test]
    fn requests_are_described() {
        let request = Request {
            sampling: Sampling::FrequencyHz(199),
            mode: CaptureMode::Cfi { stack_bytes: 65_536, verify: 100, frame_pointers: true },
            else_mode: Some(CaptureMode::Both { stack_bytes: 65_536, every: 1 }),
            kernel_stacks: false,
            off_cpu: Some(Duration::from_micros(50)),
            duration: Some(Duration::from_secs(10)),
            aggregate: Some(Duration::from_secs(5)),
            ..Request::new(Target::SystemWhile { argv: vec!["sleep".into(), "1".into()] })
        };
        let texts = lines(&request, Path::new("out.fpprof"), None).map(|(_, text)| text);
        assert_eq!(
            texts,
            [
                "the whole system, while the command sleep 1 runs",
                "cycles or cpu-clock, 199 Hz on each CPU; waits of 50µs or longer; for 10s",
                "cfi,65536,verify=100,fp if possible, else both,65536, without kernel stacks",
                "out.fpprof; equal samples once in 5s",
                "eBPF if possible, else perf events",
            ]
        );
    }
}

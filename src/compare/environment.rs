//! The machine and the programs of an experiment.

use fpprof_analysis::experiment::{ExperimentEnvironment, Version};
use std::fs;
use std::process::Command;

/// Describes this machine; unknown fields are left empty.
pub(crate) fn look(programs: &[&str]) -> ExperimentEnvironment {
    let uname = rustix::system::uname();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let memory_kib = field(&meminfo, "MemTotal:").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let mut versions = vec![Version { program: "fpprof".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }];
    versions.extend(programs.iter().filter_map(|program| version(program)));
    ExperimentEnvironment {
        date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        machine: uname.machine().to_string_lossy().into_owned(),
        cpu_model: field(&cpuinfo, "model name").unwrap_or_default().trim_start_matches(':').trim().to_owned(),
        cpus: std::thread::available_parallelism().map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory_kib.unwrap_or(0).saturating_mul(1024),
        kernel: uname.release().to_string_lossy().into_owned(),
        distribution: field(&os_release, "PRETTY_NAME=").unwrap_or_default().trim_matches('"').to_owned(),
        versions,
    }
}

fn field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim)
}

/// The first line of what `PROGRAM --version` prints, without the program's own name.
fn version(program: &str) -> Option<Version> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next()?.trim();
    let words = line.strip_prefix(program).unwrap_or(line).trim_start_matches([' ', '-']);
    let words = words.strip_prefix("version ").unwrap_or(words);
    Some(Version { program: program.to_owned(), version: words.chars().take(80).collect() })
}

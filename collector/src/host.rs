//! The machine.

use crate::proc::online_cpus;
use fpprof_recording::model::Host;
use std::fs;

/// What is to be said of this machine.
pub(crate) fn host() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let memory_kib = value(&meminfo, "MemTotal", ':').and_then(|v| v.split(' ').next()?.parse::<u64>().ok());
    Host {
        arch: std::env::consts::ARCH.to_owned(),
        kernel: kernel_release(),
        cpu_model: value(&cpuinfo, "model name", ':').unwrap_or_default().to_owned(),
        cpus_online: u32::try_from(online_cpus().len()).unwrap_or(u32::MAX),
        memory_bytes: memory_kib.unwrap_or(0).saturating_mul(1024),
        distribution: value(&release, "PRETTY_NAME", '=').unwrap_or_default().trim_matches('"').to_owned(),
    }
}

/// `uname -r`.
pub(crate) fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

fn value<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim())
    })
}

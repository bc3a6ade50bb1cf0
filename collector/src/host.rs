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

/// Major and minor number of the kernel's version; zeros where they cannot be read.
pub(crate) fn kernel_version() -> (u32, u32) {
    parse_version(&kernel_release())
}

fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The oldest kernel that has all the programs use: `bpf_loop` and `bpf_find_vma`.
///
/// # Sources
/// Linux commits e6f2dd0f8067 and 7c7e3d31e785, both in 5.17.
pub(crate) const OLDEST_KERNEL: (u32, u32) = (5, 17);

fn value<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions compare as numbers, whatever a distribution puts behind them.
    #[test]
    fn versions() {
        assert_eq!(parse_version("6.1.0-50-amd64"), (6, 1));
        assert_eq!(parse_version("5.17-rc1"), (5, 17));
        assert_eq!(parse_version("10.200.3"), (10, 200));
        assert_eq!(parse_version("strange"), (0, 0));
        assert!(parse_version("5.9.0") < OLDEST_KERNEL && parse_version("6.18.44-fc") >= OLDEST_KERNEL);
    }
}

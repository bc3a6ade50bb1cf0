//! Facts about the machine.

use crate::proc::online_cpus;
use fpprof_recording::model::Host;
use std::fs;

/// Describes this machine.
#[must_use]
pub fn host() -> Host {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let memory_kib = value(&meminfo, "MemTotal", ':').and_then(|v| v.split(' ').next()?.parse::<u64>().ok());
    Host {
        name: fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
        kernel: kernel_release(),
        cpu_model: cpu_model(&cpuinfo),
        cpus_online: u32::try_from(online_cpus().len()).unwrap_or(u32::MAX),
        memory_bytes: memory_kib.unwrap_or(0).saturating_mul(1024),
        distribution: value(&release, "PRETTY_NAME", '=').unwrap_or_default().trim_matches('"').to_owned(),
        return_address_mask: crate::arch::return_address_mask(),
        kernel_symbol: None,
    }
}

/// Number of online CPUs of the machine, of which this process may be allowed only some.
#[must_use]
pub fn n_online_cpus() -> usize {
    online_cpus().len()
}

/// `uname -r`.
pub(crate) fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// The CPU's model name on x86-64; the implementer and part numbers on aarch64, which are all there is.
fn cpu_model(cpuinfo: &str) -> String {
    let of = |key| value(cpuinfo, key, ':');
    match (of("model name"), of("CPU implementer"), of("CPU part")) {
        (Some(name), _, _) => name.to_owned(),
        (None, Some(maker), Some(part)) => format!("CPU of implementer {maker}, part {part}"),
        (None, _, _) => String::new(),
    }
}

fn value<'a>(text: &'a str, key: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(separator)?;
        (name.trim() == key).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a processor without a name is identified by its numbers.
    #[test]
    fn processors() {
        assert_eq!(cpu_model("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n";
        assert_eq!(cpu_model(arm), "CPU of implementer 0x41, part 0xd0c");
        assert_eq!(cpu_model(""), "");
    }
}

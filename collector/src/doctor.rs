//! What this kernel and this user may do, and how to get the rest.

use crate::bpf::{Filter, Layout, Programs, Wish};
use crate::event::{Event, Opened};
use crate::host::{OLDEST_KERNEL, kernel_release, kernel_version};
use crate::proc::{Capabilities, online_cpus, read_number};
use crate::sys::{ObjectStorage, PerfEvent, StatisticsGuard};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::fs;
use std::io;
use std::path::Path;

/// One thing that recording needs or can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What, such as `CAP_BPF`.
    pub name: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What was found, such as a number or an error of the kernel.
    pub detail: String,
    /// What to do about it; empty when nothing is to be done.
    pub remedy: String,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Recording works without, but not as well.
    Reduced,
    /// Recording with eBPF does not work; of the check without BPF: recording does not work at all.
    Missing,
}

impl Check {
    /// Whether this is no obstacle.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.verdict != Verdict::Missing
    }

    fn new(name: &'static str, is_good: bool, otherwise: Verdict, detail: impl Into<String>, remedy: &str) -> Self {
        let verdict = if is_good { Verdict::Ok } else { otherwise };
        let remedy = if is_good { String::new() } else { remedy.to_owned() };
        Self { name, verdict, detail: detail.into(), remedy }
    }
}

const WITHOUT_BPF: &str = "without BPF (perf_event)";

/// Whether anything can be recorded after these checks, be it without BPF.
#[must_use]
pub fn can_record(checks: &[Check]) -> bool {
    let has_bpf = checks.iter().filter(|check| check.name != WITHOUT_BPF).all(Check::ok);
    has_bpf || checks.iter().any(|check| check.name == WITHOUT_BPF && check.ok())
}

/// What can be recorded after these checks, in words, and the one command that would allow more, if there is one;
/// `program` is the file that is to be allowed.
#[must_use]
pub fn conclude(checks: &[Check], program: &Path) -> (String, Option<String>) {
    let of = |name: &str| checks.iter().find(|check| check.name == name);
    let lacks = |name: &str| of(name).is_some_and(|check| check.verdict != Verdict::Ok);
    let missing: Vec<&Check> = checks.iter().filter(|check| check.name != WITHOUT_BPF && !check.ok()).collect();
    let possible = match (missing.is_empty(), lacks("CAP_SYS_PTRACE")) {
        (true, false) => "with eBPF: everything".to_owned(),
        (true, true) => "with eBPF: all that starts meanwhile, and own processes; of others' that run already, stacks \
                         without their mappings"
            .to_owned(),
        (false, _) => format!("without eBPF: {}", of(WITHOUT_BPF).map_or("nothing", |check| check.detail.as_str())),
    };
    // What no capability changes comes first.
    let deeper = missing.iter().find(|check| !CURED_BY_CAPABILITIES.contains(&check.name));
    let names = CAPABILITIES.iter().any(|name| lacks(name));
    let command = match deeper {
        Some(check) => Some(check.remedy.clone()),
        None if names => {
            Some(format!("as root: setcap {}+ep {}", CAPABILITIES.join(",").to_lowercase(), program.display()))
        }
        None => None,
    };
    (possible, command)
}

/// What recording uses where it may.
const CAPABILITIES: [&str; 4] = ["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE"];
/// Checks that fail for want of them.
const CURED_BY_CAPABILITIES: [&str; 6] =
    ["CAP_BPF", "CAP_PERFMON", "perf_event_paranoid", "sampling event", "BPF programs load", "process events"];

/// Tries everything that recording needs, down to loading the programs; nothing is left behind.
#[must_use]
pub fn probe() -> Vec<Check> {
    let mut checks = vec![kernel(), architecture(), btf(), pid_namespace()];
    checks.extend(capabilities());
    checks.extend([paranoid(), event(), max_sample_rate(), lockdown(), unprivileged_bpf()]);
    checks.extend([programs(), process_events(), statistics(), kernel_symbols(), without_bpf()]);
    checks
}

fn kernel() -> Check {
    const REMEDY: &str = "use a kernel of 5.17 or later (bpf_loop, bpf_find_vma)";
    Check::new("kernel", kernel_version() >= OLDEST_KERNEL, Verdict::Missing, kernel_release(), REMEDY)
}

fn architecture() -> Check {
    let is_supported = cfg!(target_arch = "x86_64");
    Check::new("architecture", is_supported, Verdict::Missing, std::env::consts::ARCH, "record on x86-64")
}

fn btf() -> Check {
    let path = "/sys/kernel/btf/vmlinux";
    let remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y";
    Check::new("kernel types (BTF)", Path::new(path).exists(), Verdict::Missing, path, remedy)
}

fn pid_namespace() -> Check {
    let is_initial = crate::plan::is_initial_pid_namespace().unwrap_or(false);
    let detail = if is_initial { "initial" } else { "a namespace of its own" };
    let remedy = "run on the host, or in a container with --pid=host";
    Check::new("pid namespace", is_initial, Verdict::Missing, detail, remedy)
}

fn capabilities() -> impl Iterator<Item = Check> {
    const SETCAP: &str = "run as root, or: setcap cap_bpf,cap_perfmon,cap_sys_ptrace+ep FILE";
    const RESOURCE: &str = "not needed on kernels since 5.11; before, raise the limit: ulimit -l unlimited";
    const PTRACE: &str = "without it, mappings of other users' processes that run already cannot be read; \
                          setcap cap_sys_ptrace+ep FILE";
    const RESTORE: &str = "without it, files deleted while they are mapped are found only through their process's root; \
                           setcap cap_checkpoint_restore+ep FILE";
    const ADMIN: &str = "without it, the kernel does not say what the BPF programs cost; run as root";
    let mine = Capabilities::effective();
    [
        ("CAP_BPF", Capabilities::BPF, Verdict::Missing, SETCAP),
        ("CAP_PERFMON", Capabilities::PERFMON, Verdict::Missing, SETCAP),
        ("CAP_SYS_PTRACE", Capabilities::SYS_PTRACE, Verdict::Reduced, PTRACE),
        ("CAP_CHECKPOINT_RESTORE", Capabilities::CHECKPOINT_RESTORE, Verdict::Reduced, RESTORE),
        ("CAP_SYS_ADMIN", Capabilities::SYS_ADMIN, Verdict::Reduced, ADMIN),
        ("CAP_SYS_RESOURCE", Capabilities::SYS_RESOURCE, Verdict::Reduced, RESOURCE),
    ]
    .into_iter()
    .map(move |(name, capability, otherwise, remedy)| {
        let has = mine.has(capability);
        Check::new(name, has, otherwise, if has { "yes" } else { "no" }, remedy)
    })
}

fn paranoid() -> Check {
    let level = read_number("/proc/sys/kernel/perf_event_paranoid");
    let may = level.is_some_and(|level| level <= 0) || Capabilities::effective().has(Capabilities::PERFMON);
    let detail = level.map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    Check::new(
        "perf_event_paranoid",
        may,
        Verdict::Missing,
        detail,
        "get CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=-1",
    )
}

fn first_cpu() -> u32 {
    online_cpus().first().copied().unwrap_or(0)
}

fn event() -> Check {
    let open = |event: Event| PerfEvent::sampling(first_cpu(), &event, Sampling::FrequencyHz(99));
    let remedy = "cpu-clock, a timer, samples instead; for cycles use hardware, or a virtual machine with a PMU";
    match (open(Event::cycles()), open(Event::cpu_clock())) {
        (Ok(_), _) => Check::new("sampling event", true, Verdict::Ok, "cycles", ""),
        (Err(error), Ok(_)) => {
            Check::new("sampling event", false, Verdict::Reduced, format!("cpu-clock (no cycles: {error})"), remedy)
        }
        (_, Err(error)) => {
            let remedy = "get CAP_PERFMON; use a kernel with CONFIG_PERF_EVENTS=y";
            Check::new("sampling event", false, Verdict::Missing, error.to_string(), remedy)
        }
    }
}

fn max_sample_rate() -> Check {
    let rate = read_number("/proc/sys/kernel/perf_event_max_sample_rate");
    let detail = rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{rate} Hz"));
    let remedy = "sysctl kernel.perf_event_max_sample_rate=100000 (the kernel lowers it when samples take too long)";
    Check::new("highest sampling rate", rate.is_some_and(|rate| rate >= 999), Verdict::Reduced, detail, remedy)
}

fn lockdown() -> Check {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let mode = text.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
    let remedy = "boot without lockdown=confidentiality, which forbids BPF to read memory";
    Check::new("kernel lockdown", mode != "confidentiality", Verdict::Missing, mode, remedy)
}

fn unprivileged_bpf() -> Check {
    let value = read_number("/proc/sys/kernel/unprivileged_bpf_disabled");
    let detail = value.map_or_else(|| "unknown".to_owned(), |value| value.to_string());
    Check::new("unprivileged_bpf_disabled", true, Verdict::Ok, detail, "")
}

/// Loads the real programs with small rings.
fn programs() -> Check {
    let name = "BPF programs load";
    let mode = CaptureMode::Both { stack_bytes: 4096 };
    let Ok(layout) = Layout::new(mode, Some(1 << 17), 1) else {
        return Check::new(name, false, Verdict::Missing, "no sizes for the rings", "report this as a defect");
    };
    let wish = Wish {
        mode,
        kernel_stacks: true,
        filter: Filter::Tracked,
        layout,
        n_cpus: 1,
        opened: Opened::OnEachCpu,
        tick_hits: 1,
        least_wait_ns: None,
    };
    let mut storage = ObjectStorage::uninit();
    let loaded = Programs::load(&mut storage, &wish).and_then(|mut programs| {
        programs.follow()?;
        Ok(programs.map_memory(&wish).map(drop)?)
    });
    let remedy = "see the checks above; if all of them are good, report what the kernel says";
    match loaded {
        Ok(()) => Check::new(name, true, Verdict::Ok, "yes, with rings of their own for each CPU", ""),
        Err(error) => Check::new(name, false, Verdict::Missing, format!("{error:#}"), remedy),
    }
}

fn process_events() -> Check {
    let name = "process events";
    let remedy = "get CAP_PERFMON, and memory to lock: sysctl kernel.perf_event_mlock_kb=516";
    match crate::sideband::SidebandSource::open(&[first_cpu()]) {
        Ok(_) => Check::new(name, true, Verdict::Ok, "yes", ""),
        Err(error) => Check::new(name, false, Verdict::Missing, error.to_string(), remedy),
    }
}

fn statistics() -> Check {
    let has = StatisticsGuard::enable().is_some();
    let remedy = "without it, the cost of the BPF programs is not shown; run as root";
    Check::new("BPF run-time statistics", has, Verdict::Reduced, if has { "yes" } else { "refused" }, remedy)
}

/// What can be done by perf events alone.
fn without_bpf() -> Check {
    let name = WITHOUT_BPF;
    let rights = crate::perf_event::Rights::now();
    let detail = match (rights.may_sample_cpus(), rights.may_sample_kernel(), rights.may_sample_own()) {
        (true, _, _) => "everything, with at most 65528 bytes of stack",
        (_, true, _) => "own processes, user space and kernel",
        (_, _, true) => "own processes, user space only",
        _ => "nothing",
    };
    let remedy = "get CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=-1 (2 is enough for own processes)";
    let otherwise = if rights.may_sample_own() { Verdict::Reduced } else { Verdict::Missing };
    Check::new(name, rights.may_sample_cpus(), otherwise, detail, remedy)
}

fn kernel_symbols() -> Check {
    let has_addresses = || -> io::Result<bool> {
        let text = fs::read_to_string("/proc/kallsyms")?;
        Ok(text.lines().next().is_some_and(|line| !line.starts_with("0000000000000000 ")))
    };
    let (has, detail) = match has_addresses() {
        Ok(true) => (true, "readable".to_owned()),
        Ok(false) => (false, "addresses are hidden".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    Check::new("kernel symbols", has, Verdict::Reduced, detail, "run as root, or: sysctl kernel.kptr_restrict=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is said at the end follows from the checks: everything, less with one command, or a kernel that
    /// no command changes.
    #[test]
    fn conclusions_follow() {
        let check = |name, verdict| Check { name, verdict, detail: "own".into(), remedy: format!("change {name}") };
        let with = |bpf, ptrace, kernel| {
            let checks = [
                check("kernel", kernel),
                check("CAP_BPF", bpf),
                check("BPF programs load", bpf),
                check("CAP_SYS_PTRACE", ptrace),
                check(WITHOUT_BPF, Verdict::Reduced),
            ];
            conclude(&checks, Path::new("/x/fpprof"))
        };
        let (ok, reduced, missing) = (Verdict::Ok, Verdict::Reduced, Verdict::Missing);
        assert_eq!(with(ok, ok, ok), ("with eBPF: everything".into(), None));
        let setcap = "as root: setcap cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore+ep /x/fpprof";
        let (possible, command) = with(ok, reduced, ok);
        assert!(possible.starts_with("with eBPF: all that starts"));
        assert_eq!(command.as_deref(), Some(setcap));
        assert_eq!(with(missing, reduced, ok), ("without eBPF: own".into(), Some(setcap.into())));
        assert_eq!(with(missing, reduced, missing), ("without eBPF: own".into(), Some("change kernel".into())));
    }

    /// Check that every check that is not good says what to do, and that names are not used twice.
    #[test]
    fn every_finding_has_a_remedy() {
        let checks = probe();
        for check in &checks {
            assert_eq!(check.verdict == Verdict::Ok, check.remedy.is_empty(), "{check:?}");
            assert_eq!(checks.iter().filter(|other| other.name == check.name).count(), 1, "{check:?}");
        }
    }
}

//! Checks of kernel support and permissions.

use crate::bpf::{Filter, Layout, ProgramConfig, Programs, WaitSpec, collect_messages, lacks_helpers};
use crate::error::Error;
use crate::event::{Event, Opened};
use crate::host::kernel_release;
use crate::proc::{Capabilities, online_cpus, read_number};
use crate::rules::n_sets;
use crate::sys::{ObjectStorage, PerfEvent, StatisticsGuard};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A check of something that recording needs or can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked, such as `CAP_BPF`.
    pub name: &'static str,
    /// Outcome.
    pub verdict: Verdict,
    /// Details, such as a number or the kernel's error.
    pub detail: String,
    /// What to do about it; empty if there is nothing to do.
    pub remedy: String,
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Everything is as it should be.
    Ok,
    /// Recording works, but not as well.
    Reduced,
    /// Recording with eBPF does not work; for the check without BPF: recording does not work at all.
    Missing,
}

impl Check {
    /// Whether this does not prevent recording.
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
const OFF_CPU: &str = "blocked time (--off-cpu)";
const MAPPINGS_OF_OTHERS: &str = "mappings of others";

/// Whether anything can be recorded according to these checks, with or without BPF.
#[must_use]
pub fn can_record(checks: &[Check]) -> bool {
    let has_bpf = checks.iter().filter(|check| check.name != WITHOUT_BPF).all(Check::ok);
    has_bpf || checks.iter().any(|check| check.name == WITHOUT_BPF && check.ok())
}

/// How to record more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advice {
    /// How to let an ordinary user record with eBPF.
    Allow {
        /// Commands for root, in order.
        commands: Vec<String>,
        /// What the commands allow, and to whom.
        consequence: &'static str,
    },
    /// What has to change on this machine, as a sentence.
    Change(String),
}

/// Summary of what can be recorded according to these checks, and advice on how to record more, if possible. `program`
/// is the file to grant capabilities to, including those to read other users' processes only if asked for
/// (`with_ptrace`).
#[must_use]
pub fn conclude(checks: &[Check], program: &Path, with_ptrace: bool) -> (String, Option<Advice>) {
    let of = |name: &str| checks.iter().find(|check| check.name == name);
    let lacks = |name: &str| of(name).is_some_and(|check| check.verdict != Verdict::Ok);
    let missing: Vec<&Check> = checks.iter().filter(|check| check.name != WITHOUT_BPF && !check.ok()).collect();
    let refused = [(OFF_CPU, "--off-cpu"), ("CAP_SYS_ADMIN", "probes (by newer kernels)")]
        .into_iter()
        .filter(|&(name, _)| lacks(name));
    let refused: Vec<&str> = refused.map(|(_, what)| what).collect();
    let but = if refused.is_empty() { String::new() } else { format!(", but not {}", refused.join(" and ")) };
    let possible = match (missing.is_empty(), lacks(MAPPINGS_OF_OTHERS)) {
        (true, false) => format!("with eBPF: everything{but}"),
        (true, true) => format!(
            "with eBPF: your own processes, and all that start from now on{but}; the mappings of other users' \
            running processes are unreadable"
        ),
        (false, _) => format!("without eBPF: {}", of(WITHOUT_BPF).map_or("nothing", |check| check.detail.as_str())),
    };
    // Anything that capabilities do not cure comes first. If the caller has them, that is everything missing.
    let has_them = !CAPABILITIES.iter().any(|name| lacks(name));
    let deeper = missing.iter().find(|check| has_them || !CURED_BY_CAPABILITIES.contains(&check.name));
    let wanted = if with_ptrace { [CAPABILITIES, PTRACE_CAPABILITIES].concat() } else { CAPABILITIES.to_vec() };
    let advice = match deeper {
        Some(check) => Some(Advice::Change(check.remedy.clone())),
        None if wanted.iter().any(|name| lacks(name)) => Some(allow(program, &wanted, with_ptrace)),
        None => None,
    };
    (possible, advice)
}

/// Advice that lets one group, and nobody else, run a program with capabilities.
fn allow(program: &Path, capabilities: &[&str], with_ptrace: bool) -> Advice {
    let program = program.display();
    let commands = vec![
        "groupadd --force fpprof".to_owned(),
        format!("chown root:fpprof {program}"),
        format!("chmod 0750 {program}"),
        format!("setcap {}+ep {program}", capabilities.join(",").to_lowercase()),
        "usermod --append --groups fpprof USER".to_owned(),
    ];
    let consequence = if with_ptrace {
        "members of the group fpprof can then record their own processes, and with -a see which functions run in all \
         others, root's too; only these users can run the file. CAP_SYS_PTRACE lets it read mappings and files of all"
    } else {
        "members of the group fpprof can then record their own processes, and with -a see which functions run in all \
         others, root's too; only these users can run the file. --with-ptrace adds CAP_SYS_PTRACE, to read the mappings \
         of running processes"
    };
    Advice::Allow { commands, consequence }
}

/// Capabilities that recording with eBPF needs.
const CAPABILITIES: &[&str] = &["CAP_BPF", "CAP_PERFMON"];
/// Capabilities that recording other users' running processes needs as well.
const PTRACE_CAPABILITIES: &[&str] = &["CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE"];
/// Checks that fail without these capabilities.
const CURED_BY_CAPABILITIES: [&str; 7] =
    ["CAP_BPF", "CAP_PERFMON", "perf_event_paranoid", "sampling event", "BPF programs load", "process events", OFF_CPU];

/// Tries everything that recording needs, up to loading the programs; leaves nothing behind.
#[must_use]
pub fn probe() -> Vec<Check> {
    collect_messages();
    let programs = programs();
    let mut checks = vec![kernel(), btf(), pid_namespace()];
    checks.extend(capabilities(programs.ok()));
    checks.extend([mappings_of_others(), paranoid(), event(), max_sample_rate(), lockdown(), unprivileged_bpf()]);
    let stack_ends = stack_ends(programs.ok());
    checks.extend([programs, off_cpu(), stack_ends, process_events(), statistics(), kernel_symbols(), without_bpf()]);
    checks
}

fn kernel() -> Check {
    Check::new("kernel", true, Verdict::Ok, kernel_release(), "")
}

fn btf() -> Check {
    let path = "/sys/kernel/btf/vmlinux";
    let remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF=y";
    Check::new("kernel types (BTF)", Path::new(path).exists(), Verdict::Missing, path, remedy)
}

fn pid_namespace() -> Check {
    let is_initial = crate::plan::is_initial_pid_namespace().unwrap_or(false);
    let detail = if is_initial { "initial" } else { "not the initial one" };
    let remedy = "run on the host, or in a container with --pid=host";
    Check::new("PID namespace", is_initial, Verdict::Missing, detail, remedy)
}

/// Checks capabilities. `has_programs`: the BPF programs can be loaded.
fn capabilities(has_programs: bool) -> impl Iterator<Item = Check> {
    const NEEDED: &str = "run as root, or see the end of this list";
    const RESOURCE: &str = "needed before Linux 5.11 only; there, also raise the limit: ulimit -l unlimited";
    const PTRACE: &str = "needed to open deleted files of other users' running processes; run as root";
    const RESTORE: &str = "needed to read some deleted files; run as root";
    const ADMIN: &str =
        "needed to measure BPF run time (record --stats) and, by newer kernels, for probes (-e uprobe:…); run as root";
    let mine = Capabilities::effective();
    [
        ("CAP_BPF", Capabilities::BPF, Verdict::Missing, NEEDED),
        ("CAP_PERFMON", Capabilities::PERFMON, Verdict::Missing, NEEDED),
        ("CAP_SYS_PTRACE", Capabilities::SYS_PTRACE, Verdict::Reduced, PTRACE),
        ("CAP_CHECKPOINT_RESTORE", Capabilities::CHECKPOINT_RESTORE, Verdict::Reduced, RESTORE),
        ("CAP_SYS_ADMIN", Capabilities::SYS_ADMIN, Verdict::Reduced, ADMIN),
        ("CAP_SYS_RESOURCE", Capabilities::SYS_RESOURCE, Verdict::Reduced, RESOURCE),
    ]
    .into_iter()
    .map(move |(name, capability, otherwise, remedy)| {
        let has = mine.has(capability);
        let is_needless = capability == Capabilities::SYS_RESOURCE && (has_programs || accounts_maps());
        let detail = match (has, is_needless) {
            (true, _) => "yes",
            (false, true) => "no, and not needed by this kernel",
            (false, false) => "no",
        };
        Check::new(name, has || is_needless, otherwise, detail, remedy)
    })
}

/// Whether the kernel accounts BPF maps to control groups instead of to locked memory: from Linux 5.11 on.
fn accounts_maps() -> bool {
    let release = kernel_release();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(5), Some(11))
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
    let remedy = "fpprof samples by the timer cpu-clock instead; for cycles, use a machine with a PMU";
    match (open(Event::cycles()), open(Event::cpu_clock())) {
        (Ok(_), _) => Check::new("sampling event", true, Verdict::Ok, "cycles", ""),
        (Err(error), Ok(_)) => {
            Check::new("sampling event", false, Verdict::Reduced, format!("cpu-clock (no cycles: {error})"), remedy)
        }
        (_, Err(error)) => {
            let remedy = match error.kind() {
                ErrorKind::PermissionDenied => "get CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=-1",
                _ => "use a kernel with CONFIG_PERF_EVENTS=y",
            };
            Check::new("sampling event", false, Verdict::Missing, error.to_string(), remedy)
        }
    }
}

fn max_sample_rate() -> Check {
    let rate = read_number("/proc/sys/kernel/perf_event_max_sample_rate");
    let detail = rate.map_or_else(|| "unknown".to_owned(), |rate| format!("{rate} Hz"));
    let remedy = "sysctl kernel.perf_event_max_sample_rate=100000 (the kernel lowers it when samples take too long)";
    Check::new("maximum sampling rate", rate.is_some_and(|rate| rate >= 999), Verdict::Reduced, detail, remedy)
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

/// Loads and attaches the real programs with small rings.
fn try_programs(waits: Option<WaitSpec>) -> Result<(), Error> {
    let mode = CaptureMode::Both { stack_bytes: 4096, every: 1 };
    let layout = Layout::new(mode, Some(1 << 17), 1)?;
    let config = ProgramConfig {
        mode,
        kernel_stacks: true,
        filter: Filter::Tracked,
        layout,
        n_ring_cpus: 1,
        n_possible_cpus: 1,
        opened: Opened::OnEachCpu,
        tick_hits: 1,
        includes_privileged: false,
        only_user: None,
        excluded_parent: None,
        waits,
        n_rule_sets: n_sets(true),
    };
    let mut storage = ObjectStorage::uninit();
    let mut programs = Programs::load(&mut storage, &config).map_err(Error::bpf)?;
    programs.follow().map_err(Error::bpf)?;
    programs.map_memory(&config).map(drop).map_err(Error::bpf_setup("mapping the ring buffers"))
}

fn programs() -> Check {
    let name = "BPF programs load";
    let remedy = if lacks_helpers() {
        "use Linux 5.17 or newer; until then `record` samples with perf events"
    } else {
        "see the checks above; if all are ok, report a bug with the output of `fpprof record -v`"
    };
    match try_programs(None) {
        Ok(()) => Check::new(name, true, Verdict::Ok, "yes", ""),
        Err(error) => Check::new(name, false, Verdict::Missing, reason(&error), remedy),
    }
}

/// An error's text without the pointer to `fpprof doctor`.
fn reason(error: &Error) -> String {
    match error {
        Error::Bpf { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

fn off_cpu() -> Check {
    let waits = crate::plan::wait_spec(0);
    match try_programs(Some(waits)) {
        Ok(()) if waits.stacks_at_block => {
            let detail = "yes, by sched_switch alone (cheaper from Linux 6.15 on, which has sched_exit)";
            Check::new(OFF_CPU, true, Verdict::Ok, detail, "")
        }
        Ok(()) => Check::new(OFF_CPU, true, Verdict::Ok, "yes", ""),
        Err(error) => Check::new(OFF_CPU, false, Verdict::Reduced, reason(&error), "see `BPF programs load`"),
    }
}

/// Checks what determines the end of a stack. `has_programs`: the BPF programs can be loaded.
fn stack_ends(has_programs: bool) -> Check {
    let name = "ends of stacks";
    if !has_programs {
        let remedy = "perf events copy as many bytes as --call-graph allows, also beyond the end of a stack";
        return Check::new(name, false, Verdict::Reduced, "from process events", remedy);
    }
    let is_realtime = read_number("/sys/kernel/realtime") == Some(1);
    let detail = if is_realtime { "from /proc (PREEMPT_RT)" } else { "from the kernel" };
    let remedy = "none; the first sample of each thread copies as many bytes as --call-graph allows";
    Check::new(name, !is_realtime, Verdict::Reduced, detail, remedy)
}

fn process_events() -> Check {
    let name = "process events";
    let remedy = "get CAP_PERFMON, and allow locked memory: sysctl kernel.perf_event_mlock_kb=516";
    match crate::sideband::SidebandSource::open(&[first_cpu()]) {
        Ok(_) => Check::new(name, true, Verdict::Ok, "yes", ""),
        Err(error) => Check::new(name, false, Verdict::Missing, error.to_string(), remedy),
    }
}

fn statistics() -> Check {
    let has = StatisticsGuard::enable().is_some();
    let remedy = "needed for record --stats; run as root";
    Check::new("BPF run-time statistics", has, Verdict::Reduced, if has { "yes" } else { "refused" }, remedy)
}

/// Checks what perf events alone can do.
fn without_bpf() -> Check {
    let name = WITHOUT_BPF;
    let rights = crate::perf_event::Rights::now();
    let detail = match (rights.may_sample_cpus(), rights.may_sample_kernel(), rights.may_sample_own()) {
        (true, _, _) => "everything but -t, -G, --off-cpu and uprobes, with at most 65528 bytes of stack",
        (_, true, _) => "your own processes, user space and kernel",
        (_, _, true) => "your own processes, user space only",
        _ => "nothing",
    };
    let remedy = "get CAP_PERFMON, or: sysctl kernel.perf_event_paranoid=-1 (2 is enough for your own processes)";
    let otherwise = if rights.may_sample_own() { Verdict::Reduced } else { Verdict::Missing };
    Check::new(name, rights.may_sample_cpus(), otherwise, detail, remedy)
}

fn kernel_symbols() -> Check {
    let has_addresses = || -> io::Result<bool> {
        // The first symbols are offsets of per-CPU variables, which may be zero even if no address is hidden.
        let text = fs::read_to_string("/proc/kallsyms")?;
        Ok(text.lines().any(|line| !line.starts_with("0000000000000000 ")))
    };
    let (has, detail) = match has_addresses() {
        Ok(true) => (true, "readable".to_owned()),
        Ok(false) => (false, "addresses are hidden".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    Check::new("kernel symbols", has, Verdict::Reduced, detail, &kernel_symbols_remedy())
}

/// What hides the kernel's addresses here (`kallsyms_show_value`, `kernel/ksyms_common.c`).
fn kernel_symbols_remedy() -> String {
    let level = |name: &str| read_number(format!("/proc/sys/kernel/{name}")).unwrap_or(i64::MAX);
    let settings = [("kptr_restrict", 0), ("perf_event_paranoid", 1)];
    let wrong = settings.into_iter().filter(|&(name, most)| level(name) > most);
    let wrong: String = wrong.map(|(name, most)| format!(" kernel.{name}={most}")).collect();
    if wrong.is_empty() { "run as root".to_owned() } else { format!("run as root, or: sysctl{wrong}") }
}

/// Checks whether the mappings of other users' running processes can be read: with `CAP_SYS_PTRACE`, under newer kernels also
/// with `CAP_PERFMON`, which only trying shows.
fn mappings_of_others() -> Check {
    let has_right = Capabilities::effective().has(Capabilities::SYS_PTRACE);
    let read = if has_right { Some(Ok(())) } else { read_mappings_of_another() };
    let detail = match &read {
        Some(Ok(())) => "readable".to_owned(),
        Some(Err(error)) => error.to_string(),
        None => "there is no process of another user to try".to_owned(),
    };
    let remedy = "get CAP_SYS_PTRACE, or run as root";
    Check::new(MAPPINGS_OF_OTHERS, matches!(read, Some(Ok(()))), Verdict::Reduced, detail, remedy)
}

/// Reads the mappings of the first process of another user that has any; `None` if there is no such process.
fn read_mappings_of_another() -> Option<io::Result<()>> {
    // Not the owner of /proc/self: that is root if the program has file capabilities.
    let own = rustix::process::getuid().as_raw();
    let read = |process: &Path| {
        let mut first = [0];
        fs::File::open(process.join("maps")).and_then(|mut maps| maps.read_exact(&mut first))
    };
    let others = fs::read_dir("/proc").ok()?.flatten().filter(|entry| {
        // Kernel threads have no command line.
        entry.metadata().is_ok_and(|metadata| metadata.uid() != own)
            && fs::read(entry.path().join("cmdline")).is_ok_and(|line| !line.is_empty())
    });
    let has_ended = |result: &io::Result<()>| {
        let kind = result.as_ref().err().map(io::Error::kind);
        matches!(kind, Some(ErrorKind::NotFound | ErrorKind::UnexpectedEof))
    };
    others.map(|entry| read(&entry.path())).find(|result| !has_ended(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the summary follows from the checks: everything works, one command would allow more, or no command
    /// helps this kernel.
    #[test]
    fn conclusions_follow() {
        let check = |name, verdict| Check { name, verdict, detail: "own".into(), remedy: format!("change {name}") };
        let with = |bpf, ptrace, kernel| {
            let checks = [
                check("kernel", kernel),
                check("CAP_BPF", bpf),
                check("BPF programs load", bpf),
                check(MAPPINGS_OF_OTHERS, ptrace),
                check(WITHOUT_BPF, Verdict::Reduced),
            ];
            conclude(&checks, Path::new("/x/fpprof"), false)
        };
        let (ok, reduced, missing) = (Verdict::Ok, Verdict::Reduced, Verdict::Missing);
        assert_eq!(with(ok, ok, ok), ("with eBPF: everything".into(), None));
        let (possible, advice) = with(ok, reduced, ok);
        assert!(
            possible.starts_with("with eBPF: your own processes, and all that start") && advice.is_none(),
            "{possible}"
        );
        let (possible, advice) = with(missing, reduced, ok);
        assert_eq!(possible, "without eBPF: own");
        assert!(matches!(&advice, Some(Advice::Allow { commands, .. }) if commands.len() == 5), "{advice:?}");
        let (_, advice) = with(missing, reduced, missing);
        assert_eq!(advice, Some(Advice::Change("change kernel".to_owned())));
        let old = [check("CAP_BPF", ok), check("BPF programs load", missing), check(WITHOUT_BPF, reduced)];
        let (possible, advice) = conclude(&old, Path::new("/x/fpprof"), false);
        assert_eq!(possible, "without eBPF: own");
        assert_eq!(advice, Some(Advice::Change("change BPF programs load".to_owned())));
    }

    /// Check that the advice lets only a group run the program, and gives it the right to read other users' files only if
    /// asked to.
    #[test]
    fn advice_is_narrow() {
        let checks = [Check::new("CAP_BPF", false, Verdict::Missing, "no", "none")];
        for (with_ptrace, capabilities) in
            [(false, "cap_bpf,cap_perfmon"), (true, "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_checkpoint_restore")]
        {
            let (_, advice) = conclude(&checks, Path::new("/x/fpprof"), with_ptrace);
            let Some(Advice::Allow { commands, .. }) = advice else { panic!("expected commands, got {advice:?}") };
            assert!(commands.contains(&format!("setcap {capabilities}+ep /x/fpprof")), "{commands:?}");
            assert!(commands.contains(&"chmod 0750 /x/fpprof".to_owned()), "{commands:?}");
            assert!(commands.contains(&"chown root:fpprof /x/fpprof".to_owned()), "{commands:?}");
        }
    }

    /// Check that every check that fails says what to do, and that names are unique.
    #[test]
    fn every_finding_has_a_remedy() {
        let checks = probe();
        for check in &checks {
            assert_eq!(check.verdict == Verdict::Ok, check.remedy.is_empty(), "{check:?}");
            assert_eq!(checks.iter().filter(|other| other.name == check.name).count(), 1, "{check:?}");
        }
    }
}

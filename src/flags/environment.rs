//! The environment of an evaluation.

use fpprof_analysis::flags::FlagsEnvironment;
use std::fs;
use std::process::Command;

/// Describes this machine; unknown fields are left empty.
pub(super) fn look() -> FlagsEnvironment {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let os_release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let loadavg = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let field = |text: &str, key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        value.trim_matches([' ', '\t', ':', '"']).to_owned()
    };
    // All CPUs of the machine, not only those that this process may use.
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    // A `link` without `{layout}` may use another linker than lld.
    let tools: Vec<_> = ["ld.lld", "ld", "as"].into_iter().filter_map(version).collect();
    FlagsEnvironment {
        cpu: format!("{cpus} × {}", field(&cpuinfo, "model name")),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        distribution: field(&os_release, "PRETTY_NAME="),
        binutils: tools.join("; "),
        date: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
        load: loadavg.split(' ').take(3).collect::<Vec<_>>().join(" "),
    }
}

/// The first line of `PROGRAM --version`; `None` if it cannot be run.
pub(super) fn version(program: &str) -> Option<String> {
    // In English, since results by the same program are recognised by this.
    let output = Command::new(program).arg("--version").env("LC_ALL", "C").env_remove("LANGUAGE").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Raises the scheduling priority of our session over other sessions, if it is our own and we are permitted. `nice`
/// only takes effect within a session.
///
/// # Sources
/// `sched(7)`, "The autogroup feature".
pub(super) fn raise_session() -> bool {
    let is_own = rustix::process::getsid(None).is_ok_and(|sid| sid == rustix::process::getpid());
    is_own && fs::write("/proc/self/autogroup", "-20").is_ok()
}

//! Starts a program so that it can be stepped from its first instruction.
//!
//! The steps between fork and exec happen in a second instance of our own program, which then becomes the command: a
//! child that asks to be traced, disables address space randomisation, and stops.

use super::tracee::{self, Report};
use anyhow::Context as _;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// Events to trace: new threads, execs, system calls, new processes. The process is killed if we end.
const FOLLOWED: ptrace::Options = ptrace::Options::PTRACE_O_TRACECLONE
    .union(ptrace::Options::PTRACE_O_TRACEEXEC)
    .union(ptrace::Options::PTRACE_O_TRACEFORK)
    .union(ptrace::Options::PTRACE_O_TRACEVFORK)
    .union(ptrace::Options::PTRACE_O_TRACESYSGOOD)
    .union(ptrace::Options::PTRACE_O_EXITKILL);

/// Becomes the command, traced by the parent. Returns only if that fails.
pub(crate) fn become_stepped(command: &[OsString]) -> anyhow::Error {
    match try_become(command) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn try_become(command: &[OsString]) -> anyhow::Result<std::convert::Infallible> {
    let (program, arguments) = command.split_first().context("the command is empty")?;
    let persona = personality::get().context("reading the personality")?;
    personality::set(persona | Persona::ADDR_NO_RANDOMIZE).context("switching address randomisation off")?;
    ptrace::traceme().context("PTRACE_TRACEME")?;
    raise(Signal::SIGSTOP).context("stopping for the tracer")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

/// Pins us and our children to the current CPU: tracer and tracee alternate, and waking another CPU for each stop takes
/// several times as long as the stop.
fn share_a_cpu() -> anyhow::Result<()> {
    let mut cpu = CpuSet::new();
    cpu.set(sched_getcpu().context("sched_getcpu")?).context("CPU number out of range")?;
    sched_setaffinity(Pid::from_raw(0), &cpu).context("pinning to one CPU")
}

/// Starts `command`, stopped before its first instruction. Its standard output goes to our standard error if
/// `is_stdout_ours`.
///
/// # Errors
/// If it cannot be started or traced. If the command cannot be run, the child itself prints why.
pub(super) fn launch(command: &[OsString], is_stdout_ours: bool) -> anyhow::Result<Pid> {
    share_a_cpu()?;
    let own = std::env::current_exe().context("finding our own program")?;
    let mut helper = Command::new(own);
    helper.args(["verify", "--stepped", "--"]).args(command);
    if is_stdout_ours {
        helper.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned().context("duplicating stderr")?));
    }
    let child = helper.spawn().context("starting the command")?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("the process id")?);
    match wait(pid)? {
        Report::Stopped(signal) if signal == Signal::SIGSTOP as i32 => {}
        _ => anyhow::bail!(
            "cannot trace the command: check kernel.yama.ptrace_scope (3 forbids it), and the seccomp profile of a container"
        ),
    }
    ptrace::setoptions(pid, FOLLOWED).context("following threads")?;
    ptrace::cont(pid, None).context("starting the command")?;
    let mut is_executed = false;
    loop {
        match wait(pid)? {
            // Still in the system call. If it ran on from here, its exit would be taken for the entry of another one.
            Report::Event(event) if event == ptrace::Event::PTRACE_EVENT_EXEC as i32 => {
                is_executed = true;
                tracee::step(pid, None)?;
            }
            Report::Stopped(signal) if is_executed && signal == Signal::SIGTRAP as i32 => return Ok(pid),
            Report::Stopped(signal) if is_executed => tracee::step(pid, Some(signal))?,
            Report::Stopped(signal) => {
                ptrace::cont(pid, Signal::try_from(signal).ok()).context("passing a signal on")?;
            }
            Report::Exited(_) | Report::Killed(_) => anyhow::bail!("the command was not run"),
            _ => ptrace::cont(pid, None).context("starting the command")?,
        }
    }
}

fn wait(pid: Pid) -> anyhow::Result<Report> {
    loop {
        match tracee::wait(Some(pid), true) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) => {}
            Ok(Some((_, report))) => return Ok(report),
            Err(error) => return Err(error).context("waiting for the command"),
        }
    }
}

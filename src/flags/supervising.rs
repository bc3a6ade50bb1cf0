//! The supervisor process: runs requested commands, and makes sure that no process of theirs remains.

use super::supervisor::{Ended, Run};
use crate::output::private_file;
use anyhow::Context as _;
use fpprof_collector::StopFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, set_child_subreaper, wait};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time for processes to end by themselves, after their parent has ended or they were asked to.
const GRACE: Duration = Duration::from_secs(1);
/// Time for killed processes to be gone: one that waits for a device cannot die before the device answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between checks of whether they have ended.
const LOOK: Duration = Duration::from_millis(1);

/// Serves requests from stdin until it is closed or a signal arrives; then ends all remaining processes.
///
/// # Errors
/// If a required system call fails.
pub(crate) fn serve() -> anyhow::Result<()> {
    set_child_subreaper(Some(rustix::process::getpid())).context("adopting processes")?;
    let stop = StopFlag::on_signals().context("watching for signals")?;
    let served = serve_all(stop);
    end_all();
    served
}

fn serve_all(stop: &StopFlag) -> anyhow::Result<()> {
    while let Some(line) = next_line(stop)? {
        let run: Run = serde_json::from_slice(&line).context("parsing a request")?;
        let Some(ended) = one(&run, stop)? else { return Ok(()) };
        let mut answer = serde_json::to_vec(&ended).context("encoding a result")?;
        answer.push(b'\n');
        let mut out = std::io::stdout();
        out.write_all(&answer).and_then(|()| out.flush()).context("answering")?;
    }
    Ok(())
}

/// Reads a line; `None` at the end of input. The client sends nothing before it has the answer, so nothing is read
/// ahead.
fn next_line(stop: &StopFlag) -> anyhow::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut bytes = [0; 4096];
    let stdin = std::io::stdin();
    loop {
        let mut fds = [stdin.as_fd(), stop.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        wait_for(&mut fds, PollTimeout::NONE)?;
        if stop.signal().is_some() {
            return Ok(None);
        }
        match rustix::io::read(stdin.as_fd(), &mut bytes) {
            Ok(0) => return Ok(None),
            Ok(n) => line.extend_from_slice(bytes.get(..n).unwrap_or_default()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("reading a request"),
        }
        if line.last() == Some(&b'\n') {
            return Ok(Some(line));
        }
    }
}

fn wait_for(fds: &mut [PollFd<'_>], timeout: PollTimeout) -> anyhow::Result<()> {
    match poll(fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error).context("waiting"),
    }
}

/// Runs one command; `None` if the client is gone.
fn one(run: &Run, stop: &StopFlag) -> anyhow::Result<Option<Ended>> {
    let before = children_us()?;
    let failed = |words: String| Ended { fault: Some(words), cpu_us: 0, n_left: 0 };
    let mut child = match command(run).and_then(|mut command| command.spawn()) {
        Ok(child) => child,
        Err(error) => return Ok(Some(failed(format!("starting {}: {error}", run.program.display())))),
    };
    let limit = Duration::from_millis(run.limit_ms);
    let in_time = match until_end(&child, stop, limit)? {
        Until::Ended => true,
        Until::TooLong => false,
        Until::Stopped => return Ok(None),
    };
    if !in_time {
        end_all();
        return Ok(Some(failed(format!("killed after {} s (limit_s)", limit.as_secs()))));
    }
    let status = child.wait().context("waiting for a benchmark")?;
    let cpu_us = children_us()?.saturating_sub(before);
    let n_left = clear_away();
    Ok(Some(Ended { fault: (!status.success()).then(|| status.to_string()), cpu_us, n_left }))
}

fn command(run: &Run) -> std::io::Result<Command> {
    let mut command = Command::new(&run.program);
    command.args(&run.args).current_dir(&run.dir).stdin(Stdio::null());
    if let Some(env) = &run.env {
        command.env_clear().envs(env.iter().map(|(key, value)| (key, value)));
    }
    match &run.output {
        None => command.stdout(Stdio::null()).stderr(Stdio::null()),
        Some(path) => {
            let file = private_file(path)?;
            command.stdout(file.try_clone()?).stderr(file)
        }
    };
    Ok(command)
}

enum Until {
    Ended,
    TooLong,
    /// The client is gone.
    Stopped,
}

/// Waits until the child has ended (without reaping it), the client is gone, or the time limit is reached.
fn until_end(child: &Child, stop: &StopFlag, limit: Duration) -> anyhow::Result<Until> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a child without a number")?;
    let ended = pidfd_open(pid, PidfdFlags::empty()).context("watching a benchmark")?;
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Ok(Until::TooLong);
        }
        let stdin = std::io::stdin();
        let mut fds = [ended.as_fd(), stdin.as_fd(), stop.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        // Rounded up, to avoid a busy wait during the last millisecond.
        let timeout = PollTimeout::try_from(left.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
        wait_for(&mut fds, timeout)?;
        let [has_ended, is_alone, is_stopped] = fds.map(|fd| fd.any().unwrap_or(false));
        if has_ended {
            return Ok(Until::Ended);
        }
        // The client sends no request while a benchmark runs: readable input means that it is gone.
        if is_alone || is_stopped {
            return Ok(Until::Stopped);
        }
    }
}

/// Waits a little for the processes that a benchmark left behind, then ends them; returns how many were ended.
fn clear_away() -> u64 {
    let began = Instant::now();
    while has_children() {
        if began.elapsed() > GRACE {
            return end_all();
        }
        sleep(LOOK);
    }
    0
}

/// Ends all descendants, and waits until none is left or the rest cannot be ended; returns how many there were.
fn end_all() -> u64 {
    let found = below();
    for pid in &found {
        let _ = kill_process(*pid, Signal::TERM);
    }
    let asked = Instant::now();
    while has_children() && asked.elapsed() < PATIENCE {
        if asked.elapsed() > GRACE {
            for pid in below() {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        sleep(LOOK);
    }
    found.len() as u64
}

/// Whether there is any child, after reaping those that ended. Descendants that lose their parent become children.
fn has_children() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// All descendants of this process.
fn below() -> Vec<Pid> {
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut left = vec![std::process::id().cast_signed()];
    // Removed from the map, so that a pid reused during the scan cannot cause a cycle.
    while let Some(pid) = left.pop() {
        let pids = children.remove(&pid).unwrap_or_default();
        left.extend(&pids);
        found.extend(pids.into_iter().filter_map(Pid::from_raw));
    }
    found
}

/// The parent of a process.
///
/// # Sources
/// `proc_pid_stat(5)`: the fourth field; the second is a name in parentheses.
fn parent(pid: i32) -> Option<i32> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/stat")).ok()?.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time of all reaped children, in microseconds.
fn children_us() -> anyhow::Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

//! The ends of an agent, and of its processes.

use super::Agent;
use crate::support::{ENDLESS, Ended, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Check that systemd is notified of readiness, of life and of stopping, and that no process is left.
#[test]
fn systemd_is_notified() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    let (message, messages) = channel();
    // Read all the time, as systemd does: otherwise senders would block.
    std::thread::spawn(move || {
        let mut bytes = [0; 256];
        while let Ok(n) = socket.recv(&mut bytes) {
            let _ = message.send(String::from_utf8_lossy(&bytes[..n]).trim().to_owned());
        }
    });
    let agent = Agent::start("rate = 49", &[("NOTIFY_SOCKET", &path)]);
    let next = || messages.recv_timeout(Duration::from_secs(120)).expect("a message");
    // Watchdog messages may precede readiness.
    assert_eq!(std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1").as_deref(), Some("READY=1"));
    assert_eq!(next(), "WATCHDOG=1", "the recorder reads");
    agent.wait_for_samples(1.0);
    let children = children_of(agent.agent.id());
    assert!(!children.is_empty());
    agent.end().assert_balance();
    assert_eq!(std::iter::repeat_with(next).find(|message| message != "WATCHDOG=1").as_deref(), Some("STOPPING=1"));
    let is_worker = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"fpprof\0")
    };
    wait_until("its processes are gone", || !children.iter().any(is_worker));
}

/// Check that a dying worker does not end the agent. When one is killed, its interval is analysed again with fewer files,
/// and once all attempts fail, the samples are counted.
#[test]
fn a_worker_that_dies_is_counted() {
    let agent = Agent::start("rate = 199\ncall-graph = \"fp\"", &[]);
    agent.wait_for_samples(20.0);
    let intervals = || agent.metric("fpprof_intervals_total");
    let kill_one = || worker_of(&agent).is_some_and(|pid| kill(pid, Signal::SIGKILL).is_ok());
    let kill_until = |metric: &str| {
        wait_until("a worker is killed in time", || {
            // One worker of an interval, which may have been about to end: its interval ends after the first count.
            if kill_one() {
                let before = intervals();
                wait_until("the interval ends", || intervals() > before);
            }
            agent.metric(metric) > 0.0
        });
    };
    let discarded = || agent.metric("fpprof_samples_discarded_total");
    kill_until("fpprof_intervals_with_fewer_files_total{owners=\"root\"}");
    kill_until("fpprof_intervals_with_fewer_files_total{owners=\"nobody\"}");
    assert!(discarded() == 0.0 && !agent.log().contains("samples are not stored"), "{}", agent.log());
    kill_until("fpprof_samples_discarded_total");
    assert!(agent.log().contains("samples are not stored"), "{}", agent.log());
    agent.wait_for_samples(20.0);
    let stored = agent.end();
    assert!(stored.counter("discarded") > 0 && stored.counter("fewer_files") > 1, "{stored:?}");
    stored.assert_balance();
}

/// Check that an agent that is to stop does not wait for a process that does not end, and counts the samples of its interval.
#[test]
fn a_worker_that_hangs_does_not_hold_up_the_end() {
    let mut agent = Agent::start("rate = 199\ncall-graph = \"fp\"", &[]);
    agent.wait_for_samples(20.0);
    let stop = |pid: Pid| {
        kill(pid, Signal::SIGSTOP).ok()?;
        // One that has just exited can be signalled, too.
        std::thread::sleep(Duration::from_millis(10));
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ").filter(|(_, fields)| fields.starts_with('T')).map(drop)
    };
    wait_until("a worker is stopped", || worker_of(&agent).and_then(stop).is_some());
    let begun = Instant::now();
    agent.stop();
    // A quarter of the time that an agent that goes on gives its workers, and more than any machine needs for what is left.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert!(agent.log().contains("the agent ends, and the process that unwinds has not"), "{}", agent.log());
    let stored = agent.stored();
    assert!(stored.counter("discarded") > 0, "{stored:?}");
    stored.assert_balance();
}

/// Check that an agent that is to stop does not wait for processes that parse files and do not end.
#[test]
fn parsers_that_hang_do_not_hold_up_the_end() {
    let mut agent = Agent::start("rate = 99\ncall-graph = \"cfi\"", &[]);
    agent.wait_for_samples(1.0);
    let pid = agent.agent.id();
    let (stopped, stops) = channel();
    // Parsers are stopped as soon as they are seen: idle ones end, and those that hang are replaced.
    std::thread::spawn(move || {
        while Path::new(&format!("/proc/{pid}/exe")).exists() {
            for parser in processes_of(pid, b"record") {
                let _ = stopped.send(kill(parser, Signal::SIGSTOP));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // Files that are new to the agent, and are copied, since they are deleted.
    let [program, arguments @ ..] = ENDLESS;
    let copy = agent.directory.path().join("copy");
    let _busy = [(); 2].map(|()| {
        std::fs::copy(format!("/usr/bin/{program}"), &copy).expect("a copy");
        let busy = Ended(Command::new(&copy).args(arguments).spawn().expect("it starts"));
        std::fs::remove_file(&copy).expect("removed");
        busy
    });
    while stops.recv_timeout(Duration::from_secs(120)).expect("a parser runs").is_err() {}
    let begun = Instant::now();
    agent.stop();
    // Waiting for the slowest parser would take eleven seconds on any machine.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    agent.stored().assert_balance();
}

/// The process that unwinds an interval of an agent, while there is one.
fn worker_of(agent: &Agent) -> Option<Pid> {
    processes_of(agent.agent.id(), b"agent").pop()
}

/// An agent's processes for a task.
fn processes_of(agent: u32, task: &[u8]) -> Vec<Pid> {
    let does = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut arguments = line.split(|&byte| byte == 0).skip(1);
        // A child before its exec has the agent's own arguments.
        arguments.next() == Some(task) && arguments.all(<[u8]>::is_empty)
    };
    children_of(agent).into_iter().filter(does).map(Pid::from_raw).collect()
}

fn children_of(pid: u32) -> Vec<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

//! Single threads, and control groups of both versions.

use crate::support::{Ended, Taken, build, directory, hex_numbers, refuse, take, take_with};
use fpprof_collector::{Error, Request, StopFlag, Target};
use fpprof_recording::model::{CaptureMode, EndReason, Sideband};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

/// Records until there are some samples, however busy the machine is.
fn take_some(request: &Request) -> Taken {
    let stop = StopFlag::new().expect("a flag");
    let request = Request { duration: Some(Duration::from_secs(30)), ..request.clone() };
    take_with(&request, &stop, &mut |progress| {
        if progress.samples >= 30 {
            stop.stop(libc::SIGINT);
        }
    })
}

fn skipped(taken: &Taken) -> u64 {
    taken.outcome.end.cpus.iter().map(|cpu| cpu.skipped).sum()
}

/// Check that of a process only the threads asked for are sampled, with all that is needed to unwind them, and that the
/// recording ends when they do, however long the process lives.
#[test]
fn single_threads() {
    let directory = directory();
    let program = build("threads", &[], directory.path());
    let truth = directory.path().join("truth");
    let mut child = Ended(Command::new(&program).arg("2000").arg(&truth).spawn().expect("the program runs"));
    let done = directory.path().join("truth.done");
    wait_for("the program wrote its file", || done.exists());
    let [first, second] = hex_numbers(&done)[..] else { panic!("two numbers") };
    let (first, second) = (u32::try_from(first).expect("a tid"), u32::try_from(second).expect("a tid"));
    let one = take_some(&Request {
        mode: CaptureMode::Both { stack_bytes: 65_536 },
        ..Request::new(Target::Threads(vec![second]))
    });
    assert_eq!(one.outcome.end.reason, EndReason::Signal(libc::SIGINT));
    assert!(one.samples.iter().all(|sample| (sample.pid, sample.tid) == (child.id(), second)));
    assert!(skipped(&one) > 0, "the other threads' ticks are skipped");
    let mapped = one.sideband.iter().any(|e| matches!(e, Sideband::Mmap(m) if m.path.ends_with(b"/threads")));
    assert!(mapped, "the process is described");
    let until_its_end = take(&Request::new(Target::Threads(vec![first])));
    assert_eq!(until_its_end.outcome.end.reason, EndReason::TargetsGone);
    assert!(child.try_wait().expect("its state").is_none(), "the process lives on");
    drop(child);
    assert!(matches!(refuse(&Request::new(Target::Threads(vec![first]))), Error::NoSuchThread(_)));
    assert!(matches!(refuse(&Request::new(Target::Threads(Vec::new()))), Error::NoProcess));
}

/// A control group that is removed again, with one below it.
struct Group {
    mount: PathBuf,
    outer: PathBuf,
    inner: PathBuf,
}

impl Group {
    fn new(mount: &Path) -> Self {
        let outer = mount.join(format!("fpprof-test-{}", std::process::id()));
        let inner = outer.join("inner");
        std::fs::create_dir_all(&inner).expect("a control group must be creatable: run the tests as root");
        // A new group of `cpuset` has no CPUs and takes no process before it has.
        for group in [&outer, &inner] {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = std::fs::read(mount.join(file)) {
                    std::fs::write(group.join(file), all).expect("the CPUs of a group");
                }
            }
        }
        Self { mount: mount.to_path_buf(), outer, inner }
    }

    fn add(&self, child: &Child) {
        std::fs::write(self.inner.join("cgroup.procs"), child.id().to_string()).expect("the process moves");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let inside = std::fs::read_to_string(self.inner.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines() {
            let _ = std::fs::write(self.mount.join("cgroup.procs"), pid);
        }
        let removed = std::fs::remove_dir(&self.inner).and_then(|()| std::fs::remove_dir(&self.outer));
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

/// Mounts of control groups: version 2 or not, has controllers or not, and where.
fn mounts() -> Vec<(bool, bool, PathBuf)> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mount = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let is_unified = file_system.starts_with("cgroup2 ");
        let has_controllers = !file_system.contains("name=");
        let is_one = file_system.starts_with("cgroup");
        is_one.then(|| (is_unified, has_controllers, PathBuf::from(mount.split(' ').nth(4).expect("a path"))))
    };
    text.lines().filter_map(mount).collect()
}

/// Check that of a control group, in every hierarchy that is mounted, exactly its processes and those of groups below are
/// sampled, by its directory and by its name; and that a hierarchy without a controller is refused with the reason.
#[test]
fn control_groups_of_both_versions() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let [inside, _outside] = [(); 2].map(|()| Ended(Command::new(&program).arg("60000").spawn().expect("it runs")));
    let mounts = mounts();
    assert!(mounts.iter().any(|mount| mount.0), "version 2 must be mounted for this test");
    for (is_unified, has_controllers, mount) in mounts {
        let group = Group::new(&mount);
        let duration = Some(Duration::from_millis(300));
        let request =
            |path: &Path| Request { duration, ..Request::new(Target::Cgroup { path: path.to_path_buf(), argv: None }) };
        if is_unified || has_controllers {
            group.add(&inside);
            for path in [&group.outer, &group.inner, &group.inner.strip_prefix(&mount).expect("below").to_path_buf()] {
                if path.is_relative() && !is_unified {
                    // The name is that of a group in several hierarchies, of which the first counts.
                    continue;
                }
                let taken = take_some(&request(path));
                let pids: std::collections::BTreeSet<_> = taken.samples.iter().map(|sample| sample.pid).collect();
                assert_eq!(pids, [inside.id()].into(), "{}", path.display());
                assert!(skipped(&taken) > 0, "{}", path.display());
            }
        } else {
            let refused = refuse(&request(&group.outer));
            assert!(matches!(refused, Error::CgroupWithoutController(_)), "{refused}");
        }
    }
    for no_group in ["/proc", "no-such-group-anywhere"] {
        let refused = refuse(&Request::new(Target::Cgroup { path: no_group.into(), argv: None }));
        assert!(matches!(refused, Error::NoSuchCgroup { .. }), "{refused}");
    }
}

//! Whose samples are taken, and what is recorded about processes.

use crate::support::{Ended, Taken, build, cpu_time, directory, is_without_data, run, take, take_until};
use fpprof_collector::parse::{FileParser, ParseTask, ParsedFile};
use fpprof_collector::{CollectorKind, Request, Target};
use fpprof_recording::model::{CaptureMode, Mmap, Sideband};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Check that a process tree is followed: forks, threads and execs are sampled and recorded, in a sensible order.
#[test]
fn process_tree_is_followed() {
    let directory = directory();
    let program = build("tree", &[], directory.path());
    let truth = directory.path().join("truth");
    let taken = take(&run(&program, &["80", truth.to_str().expect("a path")], CaptureMode::Fp));
    let truth = std::fs::read_to_string(&truth).expect("the program wrote its file");
    let [parent, first, thread, second] =
        truth.split_whitespace().map(|n| n.parse::<u32>().expect("a number")).collect::<Vec<_>>()[..]
    else {
        panic!("four numbers: {truth}")
    };
    let sampled: BTreeSet<_> = taken.samples.iter().map(|sample| (sample.pid, sample.tid)).collect();
    assert_eq!(sampled, BTreeSet::from([(parent, parent), (first, first), (first, thread), (second, second)]));
    let position = |what: &str, is_it: &dyn Fn(&Sideband) -> bool| {
        taken.sideband.iter().position(is_it).unwrap_or_else(|| panic!("no event: {what}"))
    };
    let fork = |pid, tid| move |event: &Sideband| matches!(event, Sideband::Fork(f) if (f.pid, f.tid, f.parent_pid) == (pid, tid, if pid == tid { parent } else { pid }));
    let first_fork = position("fork", &fork(first, first));
    assert!(first_fork < position("thread", &fork(first, thread)));
    let exec = position("exec", &|e| matches!(e, Sideband::Comm(c) if c.pid == second && c.exec && c.comm == b"exe"));
    assert!(position("fork", &fork(second, second)) < exec);
    let mapped =
        position("mapping", &|e| matches!(e, Sideband::Mmap(m) if m.pid == second && m.path.ends_with(b"/tree")));
    assert!(exec < mapped);
    for pid in [parent, first, second] {
        position("exit", &|e| matches!(e, Sideband::Exit(x) if (x.pid, x.tid) == (pid, pid)));
    }
    // Events of a process precede its samples.
    let exec_time = taken.sideband.iter().find_map(|e| match e {
        Sideband::Comm(comm) if comm.pid == parent && comm.exec => Some(comm.time_ns),
        _ => None,
    });
    assert!(taken.samples.iter().all(|sample| Some(sample.time_ns) > exec_time), "nothing before the exec is sampled");
}

fn executable_mapping<'a>(sideband: &'a [Sideband], program: &Path) -> &'a Mmap {
    let name = program.to_str().expect("a path").as_bytes();
    let mapping = sideband.iter().find_map(|event| match event {
        Sideband::Mmap(mmap) if mmap.path == name && mmap.prot & 4 != 0 => Some(mmap),
        _ => None,
    });
    mapping.expect("the program's code is mapped")
}

/// Check that a mapping is recorded with device, inode and build ID, for a new process and for a running one.
#[test]
fn mappings_carry_their_identity() {
    let directory = directory();
    let program = build("burn", &["-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233"], directory.path());
    let metadata = std::fs::metadata(&program).expect("the program");
    let launched = take(&run(&program, &["100"], CaptureMode::Fp));
    let mut child = Ended(Command::new(&program).arg("1500").spawn().expect("the program runs"));
    let attached = take(&Request::new(Target::Pids(vec![child.id()])));
    assert!(child.wait().expect("its end").success());
    for (taken, synthesized) in [(&launched, false), (&attached, true)] {
        let mmap = executable_mapping(&taken.sideband, &program);
        assert_eq!(mmap.identity.inode, metadata.ino());
        assert_eq!(
            (mmap.identity.dev_major, mmap.identity.dev_minor),
            (libc::major(metadata.dev()), libc::minor(metadata.dev()))
        );
        let build_id = mmap.identity.build_id.expect("a build id").to_string();
        assert_eq!(build_id, "00112233445566778899aabbccddeeff00112233");
        assert_eq!(mmap.synthesized, synthesized);
        let vdso = taken
            .sideband
            .iter()
            .filter(|e| matches!(e, Sideband::Module(m) if m.path == b"[vdso]" && m.bytes.starts_with(b"\x7fELF")));
        assert_eq!(vdso.count(), 1);
    }
    assert!(attached.samples.len() >= 50, "{}", attached.samples.len());
    assert!(attached.samples.iter().all(|sample| sample.pid == child.id()));
    let named =
        attached.sideband.iter().any(|e| matches!(e, Sideband::Comm(c) if c.comm == b"burn" && c.start_ticks > 0));
    assert!(named, "a process that runs already has a name and a start time");
}

/// Whether there is exactly one module of this path, and it consists of these bytes without data.
fn is_kept(taken: &Taken, path: &str, bytes: &[u8]) -> bool {
    let modules = taken.sideband.iter().filter_map(|event| match event {
        Sideband::Module(module) if module.path == path.as_bytes() => Some(module),
        _ => None,
    });
    let modules: Vec<_> = modules.collect();
    assert!(modules.len() <= 1, "{path} is there {} times", modules.len());
    modules.iter().any(|module| is_without_data(&module.bytes, bytes))
}

/// Check that the recording has the bytes of a program that deletes itself, of one that has no file, and of one that
/// only exists in its own mount namespace; but not those of one that stays.
#[test]
fn programs_that_are_gone_are_kept() {
    let directory = directory();
    let (burn, memfd) = (build("burn", &[], directory.path()), build("memfd", &[], directory.path()));
    let read = |program: &Path| std::fs::read(program).expect("the program");
    let (burn_bytes, memfd_bytes) = (read(&burn), read(&memfd));
    let burn_name = burn.to_str().expect("a path");
    assert!(!is_kept(&take(&run(&burn, &["100"], CaptureMode::Fp)), burn_name, &burn_bytes));
    let taken = take(&run(&memfd, &["150"], CaptureMode::Fp));
    assert!(is_kept(&taken, "/memfd:nowhere (deleted)", &memfd_bytes), "a program in memory");
    let inside = directory.path().join("mount");
    std::fs::create_dir(&inside).expect("a directory");
    let inside = inside.to_str().expect("a path");
    let script = format!("mount -t tmpfs none {inside} && cp {burn_name} {inside}/burn && exec {inside}/burn 150");
    let taken = take(&run(Path::new("unshare"), &["-m", "sh", "-c", &script], CaptureMode::Fp));
    assert!(is_kept(&taken, &format!("{inside}/burn"), &burn_bytes), "a program in a mount namespace");
    let taken = take(&run(&burn, &["150", "remove"], CaptureMode::Fp));
    assert!(is_kept(&taken, burn_name, &burn_bytes), "a program that deletes itself");
    assert!(!burn.exists());
}

/// Check that sampling starts before existing processes are described, however many there are, and that a sleeping one
/// gets its turn; and that processes sampled immediately are known, with either collector.
#[test]
fn sampling_does_not_wait_for_descriptions() {
    let directory = directory();
    let burn =
        Ended(Command::new(build("burn", &[], directory.path())).arg("60000").spawn().expect("the program runs"));
    let sleeping = Ended(Command::new("sleep").arg("600").spawn().expect("the program runs"));
    for collector in [CollectorKind::Ebpf, CollectorKind::PerfEvent] {
        // Each read of the samples describes one process.
        let (n_processes, mut looks) = (n_processes(), 0);
        let taken = take_until(&Request { collector, ..Request::new(Target::System) }, |progress| {
            looks += 1;
            looks > n_processes && progress.samples >= 100
        });
        let sampled_for = u64::try_from(taken.outcome.sampled_for.as_nanos()).expect("a time");
        let began_ns = taken.outcome.end.time_ns - sampled_for;
        let described = |pid| {
            let times = taken.sideband.iter().filter_map(move |event| match event {
                Sideband::Mmap(mmap) if mmap.pid == pid && mmap.synthesized && mmap.prot & 4 != 0 => Some(mmap.time_ns),
                _ => None,
            });
            times.min().expect("it is described")
        };
        assert!(described(sleeping.id()) >= began_ns, "{collector:?}");
        let of_burn = taken.samples.iter().filter(|sample| sample.pid == burn.id()).map(|sample| sample.time_ns);
        let first_ns = of_burn.min().expect("it is sampled");
        assert!(described(burn.id()) <= first_ns, "{collector:?}: its first sample has its mappings");
    }
}

/// The number of processes that exist.
fn n_processes() -> usize {
    let is_number = |name: &str| name.parse::<u32>().is_ok();
    let names = std::fs::read_dir("/proc").expect("processes").flatten();
    names.filter(|entry| entry.file_name().to_str().is_some_and(is_number)).count()
}

/// Check that everything is sampled system-wide, except this process unless requested, its children if requested, and
/// nothing idle.
#[test]
fn whole_system() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let child = Ended(Command::new(&program).arg("60000").spawn().expect("the program runs"));
    for (exclude_self, exclude_children) in [(true, false), (false, false), (true, true)] {
        // Each read of the samples describes one process.
        let (n_processes, mut looks, mut busy) = (n_processes(), 0, 0_u64);
        let request = Request { exclude_self, exclude_children, kernel_stacks: true, ..Request::new(Target::System) };
        let enough = cpu_time(child.id()) + Duration::from_millis(100);
        let taken = take_until(&request, |_| {
            looks += 1;
            if cpu_time(child.id()) >= enough {
                return looks > n_processes;
            }
            // Work to be sampled in this process.
            for _ in 0..20_000_000 {
                busy = std::hint::black_box(busy + 1);
            }
            false
        });
        let own = taken.samples.iter().filter(|sample| sample.pid == std::process::id()).count();
        assert_eq!(own == 0, exclude_self, "{own} samples of this process");
        let of_child = taken.samples.iter().filter(|sample| sample.pid == child.id()).count();
        assert_eq!(of_child == 0, exclude_children, "{of_child} samples of a child of this process");
        assert!(taken.samples.iter().all(|sample| sample.pid != 0 || sample.tid != 0), "idle is not sampled");
        let in_kernel: Vec<_> = taken.samples.iter().filter(|sample| sample.in_kernel).collect();
        assert!(in_kernel.iter().all(|sample| !sample.kernel.is_empty()), "kernel stacks are there when asked for");
        let init =
            taken.sideband.iter().any(|e| matches!(e, Sideband::Mmap(m) if m.pid == child.id() && m.synthesized));
        assert!(init, "what runs already is described");
    }
}

/// A parser whose only process is the one that is set.
#[derive(Debug)]
struct OneProcess {
    parser: Arc<dyn FileParser>,
    pid: AtomicU32,
}

impl FileParser for OneProcess {
    fn parse(&self, file: &File, user: u32, task: ParseTask) -> Option<ParsedFile> {
        self.parser.parse(file, user, task)
    }

    fn pids(&self) -> Vec<u32> {
        vec![self.pid.load(Ordering::Relaxed)]
    }
}

/// Check that the parser's processes are left out while they are that, and no longer: their numbers may become others'.
#[test]
fn processes_of_the_parser_are_excluded_while_they_run() {
    let directory = directory();
    let program = build("burn", &[], directory.path());
    let child = Ended(Command::new(&program).arg("60000").spawn().expect("the program runs"));
    for collector in [CollectorKind::Ebpf, CollectorKind::PerfEvent] {
        let request = Request::new(Target::System);
        let parser = Arc::new(OneProcess { parser: Arc::clone(&request.parser), pid: AtomicU32::new(child.id()) });
        let request = Request { collector, parser: Arc::clone(&parser) as Arc<dyn FileParser>, ..request };
        let step = Duration::from_millis(100);
        let (mut enough, mut looks, mut excluded_ns) = (cpu_time(child.id()) + step, 0, 0);
        let taken = take_until(&request, |_| {
            if cpu_time(child.id()) < enough {
                return false;
            }
            looks += 1;
            match looks {
                1 => {
                    let now = clock_gettime(ClockId::Monotonic);
                    excluded_ns = u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).expect("a time");
                    // All samples until then are read next: those of the last two milliseconds are not.
                    std::thread::sleep(step);
                }
                2 => parser.pid.store(0, Ordering::Relaxed),
                // From here on it is sampled.
                3 => enough = cpu_time(child.id()) + step,
                _ => return true,
            }
            false
        });
        let times: Vec<u64> =
            taken.samples.iter().filter(|sample| sample.pid == child.id()).map(|sample| sample.time_ns).collect();
        assert!(!times.is_empty(), "{collector:?}: it is sampled in the end");
        assert!(times.iter().all(|&time_ns| time_ns >= excluded_ns), "{collector:?}: not before");
    }
}

//! When processes are described, and as what.

use super::*;
use fpprof_recording::model::FpFrame;

/// The recorded events, in one word each.
struct Recorder {
    words: Vec<String>,
    /// The time they apply from.
    as_of_ns: u64,
    resync: Resync,
    tracker: Tracker,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { words: Vec::new(), as_of_ns: 0, resync: resync(), tracker: Tracker::new(true) }
    }
}

impl Follows for Recorder {
    fn add(&mut self, pid: u32, seen: &Seen) {
        assert!(seen.described_ns.is_some());
        assert!(seen.threads.iter().any(|&(tid, ran_ns)| tid == pid && ran_ns >= seen.since_ns));
        self.words.push(format!("add {pid}"));
        self.tracker.add(pid, seen);
    }

    fn write_event(&mut self, event: Sideband) {
        if let Sideband::Mmap(mmap) = &event {
            self.as_of_ns = mmap.time_ns;
        }
        self.words.push(match event {
            Sideband::Comm(comm) => format!("comm {} {}", comm.tid, comm.exec),
            Sideband::Fork(_) => "thread".to_owned(),
            Sideband::Cgroup(_) => "group".to_owned(),
            Sideband::Mmap(mmap) if mmap.path.ends_with(b"libc.so.6") => "libc".to_owned(),
            _ => "other".to_owned(),
        });
    }

    fn followed(&mut self) -> (&Tracker, &mut Resync) {
        (&self.tracker, &mut self.resync)
    }
}

fn resync() -> Resync {
    Resync::new(MemoryReads::default(), None)
}

/// Check that each process is due once after each loss, and none before the first.
#[test]
fn each_process_is_described_once_a_loss() {
    let sample = |pid| Sample { pid, ..Sample::default() };
    let mut resync = resync();
    resync.note(0);
    assert_eq!(resync.due(&sample(1), Known::All, 0), None);
    for n_lost in [5, 6] {
        resync.note(n_lost);
        let due = [1, 2, 1].map(|pid| resync.due(&sample(pid), Known::All, 0));
        assert_eq!(due, [Some(Due::Anew(1)), Some(Due::Anew(2)), None]);
        resync.note(n_lost);
        assert_eq!(resync.due(&sample(2), Known::All, 0), None, "nothing more was lost");
    }
    let control = Arc::new(PartsControl::default());
    resync.parts_control = Some(Arc::clone(&control));
    control.note_dropped(1);
    resync.note(6);
    let due = [2, 2].map(|pid| resync.due(&sample(pid), Known::All, 0));
    assert_eq!(due, [Some(Due::Anew(2)), None], "events were dropped after they were recorded");
    assert_eq!(resync.due(&sample(3), Known::All, u64::MAX), None, "its program began after that");
}

/// Check that a process that could not be described is tried again only while its user has time left.
#[test]
fn failures_are_bounded() {
    let (own, mut resync) = (std::process::id(), resync());
    let sample = Sample { pid: own, ..Sample::default() };
    let is_due = |resync: &mut Resync| {
        resync.note(0);
        resync.due(&sample, Known::Nothing, 0).is_some()
    };
    assert!(is_due(&mut resync));
    resync.note_outcome(own, false);
    assert!(is_due(&mut resync));
    resync.charge(own, 3600 * 1_000_000_000 / SHARE, 0);
    assert!(!is_due(&mut resync));
    resync.note_outcome(own, true);
    assert!(is_due(&mut resync));
}

/// Check that a process is due, and counted, while not all of its mappings are known; but that its user's processes
/// get only a fraction of the time.
#[test]
fn describing_again_is_bounded() {
    let sample = |pid| Sample { pid, ..Sample::default() };
    let (own, mut resync) = (std::process::id(), resync());
    for n in 0..3 {
        resync.note(0);
        assert_eq!(resync.due(&sample(own), Known::Some, 0), Some(Due::Anew(own)));
        assert_eq!(resync.due(&sample(own), Known::Some, 0), None, "it was a moment ago");
        assert_eq!(resync.due(&sample(own), Known::All, 0), None);
        assert_eq!(resync.n_unclear(), 2 * n + 2);
        std::thread::sleep(Duration::from_nanos(AGAIN_NS));
    }
    resync.note(0);
    // The budget of an hour.
    resync.charge(own, 3600 * 1_000_000_000 / SHARE, 0);
    resync.note(1);
    for known in [Known::Some, Known::All] {
        assert_eq!(resync.due(&sample(own), known, 0), None);
        assert_eq!(resync.due(&sample(u32::MAX), known, 0), (known == Known::Some).then_some(Due::Anew(u32::MAX)));
    }
    assert_eq!(resync.n_unclear(), 8);
}

/// Check that an undescribed process is due with each read of the samples, as of its sample's time.
#[test]
fn sampled_processes_are_described() {
    let user_fp = vec![FpFrame { address: 0x1000, frame_address: 0 }];
    let sample = Sample { pid: 7, time_ns: 5, user_fp, ..Sample::default() };
    let due = Due::Sampled { pid: 7, time_ns: 5, ip: Some(0x1000) };
    let mut resync = resync();
    for _ in 0..2 {
        resync.note(0);
        assert_eq!(resync.due(&sample, Known::All, 0), None);
        assert_eq!(resync.due(&sample, Known::Nothing, 0), Some(due));
        assert_eq!(resync.due(&sample, Known::Nothing, 0), None, "it was tried");
    }
}

/// Check that existing processes are described one by one, but not if something is known of them by then.
#[test]
fn existing_processes_have_their_turns() {
    let child = std::process::Command::new("sleep").arg("600").spawn();
    let (own, mut child) = (std::process::id(), child.unwrap());
    let mut existing = Existing::new([own, child.id(), own]);
    let mut recorder = Recorder::default();
    let adds =
        |recorder: &Recorder| recorder.words.iter().filter(|word| word.starts_with("add")).cloned().collect::<Vec<_>>();
    for expected in [vec![own], vec![own, child.id()], vec![own, child.id()]] {
        existing.describe(&mut recorder, Some(5), Duration::ZERO);
        assert_eq!(adds(&recorder), expected.iter().map(|pid| format!("add {pid}")).collect::<Vec<_>>());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(existing.is_done() && existing.note().is_none());
}

/// Check that a process is described as if it had just executed its program, with its mappings and threads; and
/// that nothing is recorded for one that is gone, or has nothing mapped.
#[test]
fn a_process_is_described_as_it_is() {
    let own = std::process::id();
    let mut recorder = Recorder::default();
    describe_due(&mut recorder, Due::Anew(own));
    assert_eq!(recorder.words[..2], [format!("add {own}"), format!("comm {own} true")]);
    let has = |word: &str| recorder.words.iter().any(|event| event == word);
    assert!(has("libc") && has("group"), "{:?}", recorder.words);
    // PID 2 is the parent of all kernel threads, where there is such a process.
    for other in [2, u32::MAX] {
        let mut recorder = Recorder::default();
        describe_due(&mut recorder, Due::Anew(other));
        assert!(recorder.words.is_empty(), "{other}: {:?}", recorder.words);
    }
    if is_kernel_thread(2) {
        let mut recorder = Recorder::default();
        describe_due(&mut recorder, Due::Sampled { pid: 2, time_ns: 5, ip: None });
        assert_eq!(recorder.words, ["add 2", "comm 2 false", "group"]);
    }
}

/// Check that a process that no longer has the sampled code mapped is not described: it has executed another
/// program.
#[test]
fn a_process_is_not_described_as_its_next_program() {
    let own = std::process::id();
    let here = own_code as fn() as usize as u64;
    for (ip, is_described) in [(None, true), (Some(here), true), (Some(0x1000), false)] {
        let mut recorder = Recorder::default();
        describe_due(&mut recorder, Due::Sampled { pid: own, time_ns: 5, ip });
        assert_eq!(!recorder.words.is_empty(), is_described, "{ip:x?}");
    }
}

fn own_code() {}

/// Check that a process is described at its first fork, so that its child is known.
#[test]
fn parents_are_described_when_they_fork() {
    let own = std::process::id();
    let fork = |pid, parent_pid| Sideband::Fork(Fork { time_ns: 5, pid, tid: pid, parent_pid, parent_tid: own });
    let mut recorder = Recorder::default();
    describe_parent(&mut recorder, &fork(own, own));
    assert!(recorder.words.is_empty(), "a thread");
    let child = u32::MAX;
    for _ in 0..2 {
        describe_parent(&mut recorder, &fork(child, own));
    }
    assert_eq!(recorder.words.iter().filter(|word| word.starts_with("add")).count(), 1);
    assert_eq!(recorder.as_of_ns, 4, "before the fork, so that the child has it");
    recorder.tracker.apply(&fork(child, own));
    assert_eq!(recorder.tracker.known_of(child), Known::All);
}

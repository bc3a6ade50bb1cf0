//! Tests of recordings in memory.

use super::*;
use fpprof_collector::UnusedFile;
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{
    CaptureMode, Cgroup, Checkpoint, Collector, Comm, CpuCounters, Exit, FileIdentity, Fork, Host, Meta, Mmap,
    ModuleBytes, Sample, Sideband, SidebandLoss, Target,
};
use fpprof_recording::{PackedModule, Recording, RecordingWriter};
use std::collections::BTreeSet;
use std::io::Cursor;

fn meta() -> Meta {
    Meta {
        tool_version: String::new(),
        start_ns: 0,
        start_unix_ns: 0,
        host: Host { cpus_online: 1, ..Host::default() },
        collector: Collector::Ebpf,
        events: Vec::new(),
        mode: CaptureMode::Fp,
        kernel_stacks: false,
        scrubbed: true,
        target: Target::System,
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

fn mmap(pid: u32, start: u64) -> Sideband {
    Sideband::Mmap(Mmap {
        time_ns: 1,
        pid,
        tid: pid,
        start,
        len: 4096,
        file_offset: 0,
        prot: 5,
        flags: 2,
        path: b"/a".to_vec(),
        identity: FileIdentity::default(),
        synthesized: false,
    })
}

fn exec(pid: u32) -> Sideband {
    Sideband::Comm(Comm { time_ns: 1, pid, tid: pid, comm: b"x".to_vec(), exec: true, start_ticks: 0 })
}

fn fork(parent_pid: u32, pid: u32) -> Sideband {
    Sideband::Fork(Fork { time_ns: 1, pid, tid: pid, parent_pid, parent_tid: parent_pid })
}

fn exit(pid: u32) -> Sideband {
    Sideband::Exit(Exit { time_ns: 1, pid, tid: pid })
}

fn cgroup(pid: u32, path: &str) -> Sideband {
    Sideband::Cgroup(Cgroup { time_ns: 1, pid, path: path.into(), ..Cgroup::default() })
}

fn thread(pid: u32, tid: u32) -> Sideband {
    Sideband::Fork(Fork { time_ns: 1, pid, tid, parent_pid: pid, parent_tid: pid })
}

fn named(pid: u32, tid: u32) -> Sideband {
    Sideband::Comm(Comm { time_ns: 1, pid, tid, comm: b"x".to_vec(), exec: false, start_ticks: 0 })
}

fn thread_exit(pid: u32, tid: u32) -> Sideband {
    Sideband::Exit(Exit { time_ns: 1, pid, tid })
}

/// The blocks of a recording written by `write`.
fn blocks_of(write: impl FnOnce(&mut RecordingWriter<Sink<Vec<u8>>>)) -> Vec<Block> {
    let (sink, feed) = pair(None);
    let mut writer = RecordingWriter::new(sink, &meta()).expect("a sink that takes all");
    write(&mut writer);
    writer.flush().expect("a flush");
    feed.0.lock().kept.clone()
}

fn opened(part: Part) -> (Vec<Sideband>, usize) {
    let mut recording = Recording::open(Cursor::new(part.into_bytes())).expect("a part is a recording");
    let (mut events, mut samples) = (Vec::new(), 0);
    recording.sideband(|event| events.push(event.clone())).expect("events");
    recording.samples(|_| samples += 1).expect("samples");
    (events, samples)
}

/// Check that each part has its own samples and all events so far, that the file gets everything, and that the end is
/// noticed.
#[test]
fn seconds_have_their_samples_and_all_events() {
    let mut file = Vec::new();
    let (sink, feed) = pair(Some(&mut file));
    let mut writer = RecordingWriter::new(sink, &meta()).expect("a sink that takes all");
    let sample = Sample { user_fp: Vec::new(), kernel: vec![1 << 63], ..Sample::default() };
    for second in 1..=3_u32 {
        writer.sideband(&mmap(second, 4096)).expect("an event");
        for _ in 0..second {
            writer.sample(&sample, None).expect("a sample");
        }
        writer.flush().expect("a flush");
        let (events, samples) = opened(feed.next().expect("a second"));
        assert_eq!((events.len(), samples), (second as usize, second as usize));
    }
    drop(writer);
    assert!(feed.next().is_none());
    let mut all = Recording::open(Cursor::new(file)).expect("the file is a recording");
    let mut samples = 0;
    all.samples(|_| samples += 1).expect("samples");
    assert_eq!(samples, 6);
}

/// Check that a part has exactly the samples that the last balance counts, that later ones come with the next part,
/// even if events are compacted in between, and that the part holds the balance.
#[test]
fn parts_end_with_a_balance() {
    let (sink, feed) = pair::<Vec<u8>>(None);
    let mut writer = RecordingWriter::new(sink, &meta()).expect("a sink that takes all");
    let sample = Sample { user_fp: Vec::new(), kernel: vec![1 << 63], ..Sample::default() };
    writer.sideband(&mmap(1, 4096)).expect("an event");
    // Enough events to trigger compaction, of a process that then ends.
    let Sideband::Mmap(mapping) = mmap(2, 4096) else { panic!("a mapping") };
    let n_events = 2 * COMPACT_AT / 4000;
    for _ in 0..n_events {
        let path = std::iter::repeat_with(|| fastrand::u8(1..)).take(4000).collect();
        writer.sideband(&Sideband::Mmap(Mmap { path, ..mapping.clone() })).expect("an event");
    }
    let file = FileIdentity { inode: 7, ..FileIdentity::default() };
    let module = ModuleBytes { path: b"/gone".to_vec(), identity: file, bytes: vec![1] };
    writer.sideband(&Sideband::Module(module)).expect("an event");
    writer.sideband(&exit(2)).expect("an event");
    let mut write = |n: u64, recorded: Option<u64>| {
        for _ in 0..n {
            writer.sample(&sample, None).expect("a sample");
        }
        writer.flush().expect("a flush");
        if let Some(recorded) = recorded {
            let cpus = vec![CpuCounters { recorded, ..CpuCounters::default() }];
            let checkpoint = Checkpoint { time_ns: 1, cpus, sideband_lost: SidebandLoss::default() };
            writer.checkpoint(&checkpoint).expect("a checkpoint");
            writer.flush().expect("a flush");
        }
    };
    let recorded = |part: &Part| {
        let balance = Recording::open(Cursor::new(&part.balance)).expect("a recording");
        balance.checkpoint().map(|checkpoint| checkpoint.cpus[0].recorded)
    };
    write(1, None);
    assert!(feed.take().is_none());
    write(2, Some(3));
    write(2, None);
    let part = feed.take().expect("a balance");
    assert_eq!((part.samples, recorded(&part)), (3, Some(3)));
    let (events, samples) = opened(part);
    assert!(events.len() > n_events && samples == 3, "{}", events.len());
    assert!(feed.0.lock().event_bytes < 1000);
    assert_eq!(feed.control().take_unused_files(), [UnusedFile { identity: file, as_of_ns: u64::MAX }]);
    // No new balance: the samples after the last one wait.
    assert_eq!(opened(feed.take().expect("a balance")).1, 0);
    write(1, Some(6));
    let part = feed.take().expect("a balance");
    assert_eq!((part.samples, recorded(&part)), (3, Some(6)));
    assert_eq!(opened(part), (vec![mmap(1, 4096)], 3));
}

/// Check that a part taken after a flush has what the recorder had not written before, and that a recorder that does not
/// flush only delays it.
#[test]
fn parts_are_flushed_on_request() {
    let (sink, feed) = pair::<Vec<u8>>(None);
    let mut writer = RecordingWriter::new(sink, &meta()).expect("a sink that takes all");
    let mut write = |recorded| {
        writer.sample(&Sample { kernel: vec![1 << 63], ..Sample::default() }, None).expect("a sample");
        writer.flush().expect("a flush");
        let cpus = vec![CpuCounters { recorded, ..CpuCounters::default() }];
        let checkpoint = Checkpoint { time_ns: 1, cpus, sideband_lost: SidebandLoss::default() };
        writer.checkpoint(&checkpoint).expect("a checkpoint");
        writer.flush().expect("a flush");
    };
    let control = feed.control();
    // Also the first time, when there is no balance yet.
    for recorded in 1..=3 {
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| feed.take_flushed().expect("a balance").samples);
            while !control.take_flush_request() {
                std::thread::yield_now();
            }
            write(recorded);
            assert_eq!(taken.join().expect("a part"), 1);
        });
    }
    assert_eq!(feed.take_flushed().expect("a balance").samples, 0);
    assert!(control.is_flush_requested(), "a flush was requested");
}

/// Check that after some time also few events of ended processes are removed, and their files forgotten.
#[test]
fn few_events_are_compacted_in_time() {
    let (sink, feed) = pair::<Vec<u8>>(None);
    let mut writer = RecordingWriter::new(sink, &meta()).expect("a sink that takes all");
    let Sideband::Mmap(mapping) = mmap(2, 4096) else { panic!("a mapping") };
    let identity = FileIdentity { inode: 7, ..FileIdentity::default() };
    for event in [mmap(1, 4096), Sideband::Mmap(Mmap { identity, ..mapping }), exit(2)] {
        writer.sideband(&event).expect("an event");
    }
    writer.flush().expect("a flush");
    let mut n_left = || {
        writer.flush().expect("a flush");
        let part = feed.next().expect("a part");
        (opened(part).0.len(), feed.control().take_unused_files().len())
    };
    assert_eq!([n_left(), n_left()], [(3, 0), (3, 0)]);
    feed.0.lock().compact_by = Some(Instant::now());
    assert_eq!([n_left(), n_left()], [(3, 1), (1, 0)]);
}

/// Check that samples beyond the limit are left out and counted.
#[test]
fn memory_is_bounded() {
    let (mut sink, feed) = pair::<Vec<u8>>(None);
    let samples = &blocks_of(|writer| writer.sample(&Sample::default(), None).expect("a sample"))
        .into_iter()
        .find_map(|(kind, block)| (kind == BlockKind::Samples).then_some(block))
        .expect("a block of samples");
    let fits = MAX_SAMPLE_BYTES / samples.len();
    for _ in 0..fits + 5 {
        sink.write_all(samples).expect("it takes all");
    }
    sink.flush().expect("a flush");
    let second = feed.next().expect("a second");
    assert_eq!((second.left_out, second.into_bytes().len()), (5, fits * samples.len()));
}

/// The events that are left of these blocks, and the files that may be forgotten.
fn needed_of(blocks: &[Block]) -> (Vec<Sideband>, Vec<UnusedFile>) {
    let Compacted { blocks, unused_files, n_left_out, .. } =
        without_the_dead(blocks, usize::MAX, &Gone::default()).expect("it can be read");
    assert_eq!(n_left_out, 0);
    let (left, _) = opened(Part { blocks: blocks.into_iter().map(|(_, block)| block).collect(), ..Part::default() });
    (left, unused_files)
}

/// Check that the bytes of a file are removed with the last process that maps it, even if they come later, that this is
/// told, and that those without an inode stay.
#[test]
fn bytes_of_files_go_with_their_processes() {
    let mapped = |pid, inode| {
        let Sideband::Mmap(mapping) = mmap(pid, 0x1000) else { panic!("a mapping") };
        let identity = FileIdentity { inode, ..FileIdentity::default() };
        Sideband::Mmap(Mmap { identity, ..mapping })
    };
    let module = |inode| {
        let identity = FileIdentity { inode, ..FileIdentity::default() };
        Sideband::Module(ModuleBytes { path: b"/a".to_vec(), identity, bytes: vec![1] })
    };
    let table = |pid| {
        let path = Compiled::PerfMap(pid).path();
        Sideband::Module(ModuleBytes { path, identity: FileIdentity::default(), bytes: vec![1] })
    };
    let events =
        [module(0), mapped(2, 7), module(7), mapped(3, 8), module(8), mapped(2, 8), exit(3), exit(2), mapped(4, 8)];
    let blocks = blocks_of(|writer| {
        events
            .iter()
            .chain([&module(9), &table(3), &table(4)])
            .for_each(|event| writer.sideband(event).expect("an event"))
    });
    let (left, unused_files) = needed_of(&blocks);
    assert_eq!(left, [mapped(4, 8), module(0), module(8), table(4)]);
    let unused = |as_of_ns| move |file: &UnusedFile| (file.as_of_ns == as_of_ns).then_some(file.identity.inode);
    assert_eq!(unused_files.iter().filter_map(unused(u64::MAX)).collect::<Vec<_>>(), [7, 9], "their bytes are gone");
    assert_eq!(unused_files.iter().filter_map(unused(1)).collect::<Vec<_>>(), [7], "as of the last event");
}

/// Check that of the bytes of files and compiled code the newest are kept, besides the kernel's own code, that the others
/// are counted and named, and that no process event is lost for them.
#[test]
fn the_newest_bytes_are_kept() {
    let identity = |inode| FileIdentity { inode, ..FileIdentity::default() };
    let mapped = |inode| {
        let Sideband::Mmap(mapping) = mmap(2, 0x1000 * inode) else { panic!("a mapping") };
        Sideband::Mmap(Mmap { identity: identity(inode), ..mapping })
    };
    let module =
        |inode| Sideband::Module(ModuleBytes { path: b"/a".to_vec(), identity: identity(inode), bytes: vec![1; 5000] });
    let events = [mapped(7), module(0), module(7), mapped(8), module(8), mapped(9), module(9)];
    let blocks = blocks_of(|writer| events.iter().for_each(|event| writer.sideband(event).expect("an event")));
    let Sideband::Module(bytes) = module(9) else { panic!("a module") };
    let size = PackedModule::new(bytes).expect("it is packed").stored_bytes();
    for (most_bytes, expected) in [(7 * size / 2, vec![0, 7, 8, 9]), (5 * size / 2, vec![0, 8, 9]), (size / 2, vec![0])]
    {
        let Compacted { blocks, unused_files, n_left_out, .. } =
            without_the_dead(&blocks, most_bytes, &Gone::default()).expect("it can be read");
        let blocks = blocks.into_iter().map(|(_, block)| block).collect();
        let (left, _) = opened(Part { blocks, ..Part::default() });
        let expected_left = [7, 8, 9].map(mapped).into_iter().chain(expected.iter().map(|&inode| module(inode)));
        assert_eq!(left, expected_left.collect::<Vec<_>>());
        assert_eq!((unused_files.len(), n_left_out), (4 - expected.len(), 4 - expected.len() as u64));
        assert!(unused_files.iter().all(|file| !expected.contains(&file.identity.inode)), "{unused_files:?}");
    }
}

/// Check that a process whose first thread has exited is kept while another one lives, executes a program or maps
/// something.
#[test]
fn first_threads_may_end_first() {
    let events = [
        mmap(5, 0x1000),
        thread(5, 51),
        exit(5),
        mmap(6, 0x1000),
        exit(6),
        exec(6),
        mmap(7, 0x1000),
        exit(7),
        mmap(7, 0x2000),
        mmap(8, 0x1000),
        thread(8, 81),
        exit(8),
        thread_exit(8, 81),
    ];
    let blocks = blocks_of(|writer| events.iter().for_each(|event| writer.sideband(event).expect("an event")));
    let (left, _) = needed_of(&blocks);
    // Process 6 has executed a program, whose mappings come later.
    assert_eq!(left, [&events[..3], &events[5..9]].concat());
}

/// Check that nothing is kept of ended processes and threads, except what living ones inherited by fork.
#[test]
fn the_dead_are_forgotten() {
    let events = [
        mmap(1, 0x1000),
        cgroup(1, "/first"),
        fork(1, 2),
        exec(2),
        mmap(2, 0x2000),
        cgroup(2, "/dead"),
        exit(2),
        fork(1, 3),
        exec(3),
        mmap(3, 0x3000),
        cgroup(3, "/inherited"),
        fork(3, 4),
        exit(3),
        exec(1),
        mmap(1, 0x4000),
        cgroup(1, "/second"),
        thread(1, 11),
        named(1, 11),
        thread(1, 12),
        thread_exit(1, 11),
        thread(1, 11),
        thread_exit(1, 12),
    ];
    let blocks = blocks_of(|writer| events.iter().for_each(|event| writer.sideband(event).expect("an event")));
    let (left, _) = needed_of(&blocks);
    // Of the threads, only the living one, which reuses the tid of one that has exited.
    let expected = [&events[7..16], &[thread(1, 11)]].concat();
    assert_eq!(left, expected);
}

/// Check that of a thread's names the last is kept, and that at a fork.
#[test]
fn old_names_are_removed() {
    let at =
        |time_ns| Sideband::Comm(Comm { time_ns, pid: 1, tid: 11, comm: b"x".to_vec(), exec: false, start_ticks: 0 });
    let forked = Sideband::Fork(Fork { time_ns: 5, pid: 2, tid: 2, parent_pid: 1, parent_tid: 11 });
    let events = [exec(1), thread(1, 11), at(3), at(4), forked, at(6), at(7), at(8)];
    let blocks = blocks_of(|writer| events.iter().for_each(|event| writer.sideband(event).expect("an event")));
    let expected = [&events[..2], &events[3..5], &events[7..]].concat();
    assert_eq!(needed_of(&blocks).0, expected);
}

/// Check that a mapping is removed, and its file forgotten, when later ones have replaced all of its parts, but not if a child
/// has inherited it, or if they were only recorded later.
#[test]
fn replaced_mappings_are_removed() {
    let mapped = |pid, inode, start, len| {
        let Sideband::Mmap(mapping) = mmap(pid, start) else { panic!("a mapping") };
        Sideband::Mmap(Mmap { len, identity: FileIdentity { inode, ..FileIdentity::default() }, ..mapping })
    };
    let later = |event| {
        let Sideband::Mmap(mapping) = event else { panic!("a mapping") };
        Sideband::Mmap(Mmap { time_ns: 2, ..mapping })
    };
    let events = [
        mapped(1, 1, 0x1000, 0x3000),
        mapped(1, 2, 0x2000, 0x1000),
        mapped(1, 3, 0x1000, 0x1000),
        mapped(1, 3, 0x3000, 0x1000),
        mapped(1, 3, 0x2000, 0x800),
        mapped(2, 4, 0x1000, 0x1000),
        fork(2, 3),
        mapped(2, 5, 0x1000, 0x1000),
        mapped(2, 6, 0x1000, 0x1000),
        later(mapped(4, 7, 0x1000, 0x1000)),
        mapped(4, 8, 0x1000, 0x1000),
        mapped(4, 9, 0x1000, 0x1000),
    ];
    let blocks = blocks_of(|writer| events.iter().for_each(|event| writer.sideband(event).expect("an event")));
    let (left, unused_files) = needed_of(&blocks);
    let expected = [&events[1..7], &events[8..10], &events[11..]].concat();
    assert_eq!(left, expected);
    let unused: BTreeSet<_> = unused_files.iter().map(|file| file.identity.inode).collect();
    assert_eq!(unused, BTreeSet::from([1, 5, 8]));
    let blocks = blocks_of(|writer| left.iter().for_each(|event| writer.sideband(event).expect("an event")));
    assert_eq!(needed_of(&blocks).0, left, "as long as the child lives");
}

/// Check that what is kept of a process without an end among the events goes when the process was gone before the last event,
/// also if its parent has not waited for it, and that living processes and used numbers stay.
#[test]
fn processes_that_are_gone_are_forgotten() {
    let mut ended = std::process::Command::new("true").spawn().expect("a process");
    let (own, zombie, none) = (std::process::id(), ended.id(), i32::MAX.cast_unsigned());
    let state = || std::fs::read_to_string(format!("/proc/{zombie}/stat")).expect("not waited for");
    while !state().contains(") Z ") {
        std::thread::yield_now();
    }
    let late = |pid| Sideband::Cgroup(Cgroup { time_ns: u64::MAX / 2, pid, path: "/".into(), ..Cgroup::default() });
    let of = |events: &[Sideband]| {
        blocks_of(|writer| events.iter().for_each(|event| writer.sideband(event).expect("an event")))
    };
    let left = |blocks: &[Block], gone: &Gone| {
        let compacted = without_the_dead(blocks, usize::MAX, gone).expect("it can be read");
        let blocks = compacted.blocks.into_iter().map(|(_, block)| block).collect();
        (opened(Part { blocks, ..Part::default() }).0, compacted.gone)
    };
    let early = [mmap(own, 1), mmap(zombie, 1), mmap(none, 1)];
    let (kept, gone) = left(&of(&early), &Gone::default());
    assert_eq!(kept, early);
    assert_eq!(left(&of(&early), &gone).0, early, "their last samples may come");
    let events_after = [&early[..], &[late(own)]].concat();
    assert_eq!(left(&of(&events_after), &gone).0, [mmap(own, 1), late(own)]);
    let used_again = [&early[..], &[late(zombie)]].concat();
    assert_eq!(left(&of(&used_again), &gone).0, [mmap(own, 1), mmap(zombie, 1), late(zombie)]);
    ended.wait().expect("its end");
}

/// Check that process events have a limit also until they are compacted, and that the recorder is told.
#[test]
fn new_events_are_bounded() {
    let (mut sink, feed) = pair::<Vec<u8>>(None);
    let event = &blocks_of(|writer| {
        let Sideband::Mmap(mapping) = mmap(1, 4096) else { panic!("a mapping") };
        let path = std::iter::repeat_with(|| fastrand::u8(1..)).take(4000).collect();
        writer.sideband(&Sideband::Mmap(Mmap { path, ..mapping })).expect("an event");
    })
    .into_iter()
    .find_map(|(kind, block)| (kind == BlockKind::Sideband).then_some(block))
    .expect("a block of events");
    for _ in 0..MAX_NEW_EVENT_BYTES / event.len() + 5 {
        sink.write_all(event).expect("it takes all");
    }
    let blocks = feed.0.lock();
    assert!(blocks.event_bytes <= MAX_NEW_EVENT_BYTES, "{}", blocks.event_bytes);
    assert_eq!(blocks.left_out_since.blocks, 5);
}

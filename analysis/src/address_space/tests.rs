mod churn;

use super::{Contents, SpaceMapping, Timeline};
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{Cgroup, Comm, Exit, FileIdentity, Fork, Mmap, ModuleBytes, Sideband};
use std::sync::Arc;

const READ_EXEC: u32 = 5;
const READ_WRITE: u32 = 3;

fn map_with(time_ns: u64, pid: u32, start: u64, len: u64, path: &str, prot: u32) -> Sideband {
    Sideband::Mmap(Mmap {
        time_ns,
        pid,
        tid: pid,
        start,
        len,
        file_offset: 0x1000,
        prot,
        flags: 2,
        path: path.into(),
        identity: FileIdentity::default(),
        synthesized: false,
    })
}

fn map(time_ns: u64, pid: u32, start: u64, len: u64, path: &str) -> Sideband {
    map_with(time_ns, pid, start, len, path, READ_EXEC)
}

fn comm(time_ns: u64, pid: u32, name: &str, exec: bool) -> Sideband {
    Sideband::Comm(Comm { time_ns, pid, tid: pid, comm: name.into(), exec, start_ticks: 0 })
}

fn fork(time_ns: u64, pid: u32, parent: u32) -> Sideband {
    Sideband::Fork(Fork { time_ns, pid, tid: pid, parent_pid: parent, parent_tid: parent })
}

fn exit(time_ns: u64, pid: u32) -> Sideband {
    Sideband::Exit(Exit { time_ns, pid, tid: pid })
}

fn cgroup(time_ns: u64, pid: u32, path: &str) -> Sideband {
    Sideband::Cgroup(Cgroup { time_ns, pid, path: path.into(), ..Cgroup::default() })
}

/// The control group of a process at a time.
fn group(timeline: &Timeline, pid: u32, time_ns: u64) -> Option<String> {
    let cgroup = timeline.place(pid, pid, time_ns).cgroup;
    cgroup.map(|ix| String::from_utf8_lossy(timeline.cgroup(ix)).into_owned())
}

/// The mappings of a process at a time as (start, end, path, file offset).
fn mapped(timeline: &Timeline, pid: u32, time_ns: u64) -> Vec<(u64, u64, String, u64)> {
    let Some(key) = timeline.place(pid, pid, time_ns).space else { return Vec::new() };
    let show = |mapping: &SpaceMapping| {
        let path = mapping.file.map_or_else(String::new, |ix| timeline.files()[ix.0 as usize].base_name());
        (mapping.start, mapping.end, path, mapping.file_offset)
    };
    Contents::default().get(timeline, key).iter().map(show).collect()
}

fn paths(timeline: &Timeline, pid: u32, time_ns: u64) -> Vec<String> {
    mapped(timeline, pid, time_ns).into_iter().map(|(_, _, path, _)| path).collect()
}

fn name(timeline: &Timeline, pid: u32, tid: u32, time_ns: u64) -> String {
    let comm = timeline.place(pid, tid, time_ns).comm;
    comm.map_or_else(String::new, |ix| String::from_utf8_lossy(timeline.comm(ix)).into_owned())
}

/// Check that a library mapped in place of an earlier one is seen only from that moment on, and the earlier one only
/// before.
#[test]
fn address_reuse_is_by_time() {
    let timeline = Timeline::new([map(20, 1, 0x1000, 0x1000, "/b.so"), map(10, 1, 0x1000, 0x1000, "/a.so")]);
    assert_eq!(paths(&timeline, 1, 9), [""; 0]);
    assert_eq!(paths(&timeline, 1, 10), ["a.so"]);
    assert_eq!(paths(&timeline, 1, 19), ["a.so"]);
    assert_eq!(paths(&timeline, 1, 20), ["b.so"]);
}

/// Check that a process has the compiled code that its parent had, also once it has mapped something itself, but not after an
/// exec.
#[test]
fn compiled_code_is_inherited() {
    let path = Compiled::PerfMap(1).path();
    let timeline = Timeline::new([
        Sideband::Module(ModuleBytes { path, identity: FileIdentity::default(), bytes: Vec::new() }),
        map(10, 1, 0x1000, 0x1000, "/a"),
        fork(20, 2, 1),
        fork(21, 3, 1),
        map(30, 2, 0x5000, 0x1000, "/b.so"),
        comm(30, 3, "other", true),
        map(31, 3, 0x5000, 0x1000, "/b.so"),
    ]);
    let compiled_by = timeline.compiled_by();
    let owner = |pid| compiled_by.get(&timeline.place(pid, pid, 40).space?.log).copied();
    assert_eq!([1, 2, 3].map(owner), [Some(1), Some(1), None]);
}

/// Check that a mapping in the middle of an old one leaves both ends of the old one, each with its own file offset.
#[test]
fn an_overlapping_mapping_cuts_the_old_one() {
    let timeline = Timeline::new([
        map(1, 1, 0x10000, 0x9000, "/old"),
        map(2, 1, 0x13000, 0x2000, "/new"),
        map_with(3, 1, 0x18000, 0x4000, "//anon", READ_WRITE),
    ]);
    let old = |start, end, offset| (start, end, "old".to_string(), offset);
    let new = (0x13000, 0x15000, "new".to_string(), 0x1000);
    assert_eq!(mapped(&timeline, 1, 1), [old(0x10000, 0x19000, 0x1000)]);
    let cut_once = [old(0x10000, 0x13000, 0x1000), new.clone(), old(0x15000, 0x19000, 0x6000)];
    assert_eq!(mapped(&timeline, 1, 2), cut_once);
    assert_eq!(mapped(&timeline, 1, 3), [old(0x10000, 0x13000, 0x1000), new, old(0x15000, 0x18000, 0x6000)]);
}

/// Check that a mapping over several others removes all of them.
#[test]
fn a_wide_mapping_replaces_all_below_it() {
    let timeline = Timeline::new([
        map(1, 1, 0x1000, 0x1000, "/a"),
        map(2, 1, 0x2000, 0x1000, "/b"),
        map(3, 1, 0x4000, 0x1000, "/c"),
        map(4, 1, 0x1000, 0x3800, "/wide"),
    ]);
    let expected = [(0x1000, 0x4800, "wide".to_string(), 0x1000), (0x4800, 0x5000, "c".to_string(), 0x1800)];
    assert_eq!(mapped(&timeline, 1, 4), expected);
}

/// Check that an exec drops all mappings, at its time and not before.
#[test]
fn exec_starts_with_nothing_mapped() {
    let timeline = Timeline::new([
        comm(1, 1, "sh", false),
        map(1, 1, 0x1000, 0x1000, "/bin/sh"),
        comm(5, 1, "ls", true),
        map(6, 1, 0x9000, 0x1000, "/bin/ls"),
    ]);
    assert_eq!(paths(&timeline, 1, 4), ["sh"]);
    assert_eq!(paths(&timeline, 1, 5), [""; 0]);
    assert_eq!(paths(&timeline, 1, 6), ["ls"]);
    assert_eq!((name(&timeline, 1, 1, 4), name(&timeline, 1, 1, 5)), ("sh".to_string(), "ls".to_string()));
    assert_eq!(timeline.place(1, 1, 4).process, timeline.place(1, 1, 6).process, "an exec keeps the process");
}

/// Check that a forked child sees what its parent had mapped then, and that neither sees later mappings of the other.
#[test]
fn a_fork_copies_the_parents_mappings() {
    let timeline = Timeline::new([
        map(1, 1, 0x1000, 0x1000, "/a"),
        fork(5, 2, 1),
        map(6, 1, 0x1000, 0x1000, "/parent"),
        map(7, 2, 0x3000, 0x1000, "/child"),
    ]);
    assert_eq!(paths(&timeline, 2, 4), [""; 0]);
    assert_eq!(paths(&timeline, 2, 6), ["a"]);
    assert_eq!(paths(&timeline, 2, 7), ["a", "child"]);
    assert_eq!(paths(&timeline, 1, 7), ["parent"]);
}

/// Check that a child (`fork` or `vfork`) without mappings of its own has the same space as its parent, so that caches
/// are shared, and loses it when it execs.
#[test]
fn a_vfork_child_shares_its_parents_space_until_it_execs() {
    let timeline = Timeline::new([
        comm(1, 1, "make", true),
        map(1, 1, 0x1000, 0x1000, "/make"),
        fork(5, 2, 1),
        fork(6, 3, 2),
        comm(8, 2, "cc", true),
        map(9, 2, 0x1000, 0x1000, "/cc"),
    ]);
    let parent = timeline.place(1, 1, 7).space;
    assert!(parent.is_some());
    assert_eq!(timeline.place(2, 2, 7).space, parent);
    assert_eq!(timeline.place(3, 3, 9).space, parent, "a grandchild too");
    assert_eq!(name(&timeline, 3, 3, 7), "make");
    assert_eq!((paths(&timeline, 2, 9), name(&timeline, 2, 2, 9)), (vec!["cc".to_string()], "cc".to_string()));
}

/// Check that the same pid after an exit and a fork is another process with other mappings.
#[test]
fn a_reused_pid_is_a_new_process() {
    let timeline = Timeline::new([
        map(1, 7, 0x1000, 0x1000, "/first"),
        map(1, 1, 0x5000, 0x1000, "/init"),
        exit(5, 7),
        fork(9, 7, 1),
        comm(10, 7, "second", true),
        map(11, 7, 0x1000, 0x1000, "/second"),
    ]);
    assert_eq!(paths(&timeline, 7, 4), ["first"]);
    assert_eq!(paths(&timeline, 7, 9), ["init"]);
    assert_eq!(paths(&timeline, 7, 11), ["second"]);
    assert_ne!(timeline.place(7, 7, 4).process, timeline.place(7, 7, 9).process);
    assert_eq!(timeline.place(7, 7, 9).process, timeline.place(7, 7, 11).process);
}

/// Check that a reused pid is recognised if its fork was lost: by its start time, or because a dead first thread maps.
#[test]
fn a_reused_pid_is_noticed_without_its_fork() {
    let named = |time_ns, start_ticks| {
        Sideband::Comm(Comm { time_ns, pid: 7, tid: 7, comm: "x".into(), exec: false, start_ticks })
    };
    let timeline = Timeline::new([named(1, 100), map(1, 7, 0x1000, 0x1000, "/first"), named(5, 200)]);
    assert_eq!((paths(&timeline, 7, 4), paths(&timeline, 7, 5)), (vec!["first".to_string()], vec![]));

    let timeline =
        Timeline::new([map(1, 7, 0x1000, 0x1000, "/first"), exit(3, 7), map(5, 7, 0x3000, 0x1000, "/second")]);
    assert_eq!(paths(&timeline, 7, 5), ["second"]);
    assert_eq!(paths(&timeline, 7, 4), ["first"], "other threads may run on after the first one's end");
}

/// Check that a thread has its creator's name until it sets its own, and its process's mappings.
#[test]
fn threads_inherit_names() {
    let thread = Sideband::Fork(Fork { time_ns: 3, pid: 1, tid: 11, parent_pid: 1, parent_tid: 1 });
    let renamed =
        Sideband::Comm(Comm { time_ns: 6, pid: 1, tid: 11, comm: "worker".into(), exec: false, start_ticks: 0 });
    let timeline = Timeline::new([comm(1, 1, "main", true), map(2, 1, 0x1000, 0x1000, "/a"), thread, renamed]);
    assert_eq!((name(&timeline, 1, 11, 5), name(&timeline, 1, 11, 6)), ("main".to_string(), "worker".to_string()));
    assert_eq!(timeline.place(1, 11, 5).space, timeline.place(1, 1, 5).space);
    let process = timeline.place(1, 11, 6).process.unwrap();
    assert_eq!(timeline.last_comm(process).map(|ix| timeline.comm(ix)), Some(&b"main"[..]));
}

/// Check that a process has its control group from the time of the event on, in all its threads and across an exec;
/// that a child has that of its parent at the fork until it has its own; and that each group is stored once.
#[test]
fn control_groups_are_inherited() {
    let thread = Sideband::Fork(Fork { time_ns: 3, pid: 1, tid: 11, parent_pid: 1, parent_tid: 1 });
    let timeline = Timeline::new([
        comm(1, 1, "shell", true),
        cgroup(2, 1, "/a"),
        thread,
        fork(4, 2, 1),
        cgroup(5, 1, "/b"),
        comm(6, 1, "other", true),
        fork(7, 3, 2),
        fork(7, 4, 1),
        cgroup(8, 2, "/a/own"),
        cgroup(9, 5, "/b"),
    ]);
    let of = |pid, times: std::ops::Range<u64>| times.map(|time| group(&timeline, pid, time)).collect::<Vec<_>>();
    let some = |path: &str| Some(path.to_owned());
    assert_eq!(of(1, 1..7), [None, some("/a"), some("/a"), some("/a"), some("/b"), some("/b")]);
    assert_eq!(timeline.place(1, 11, 5).cgroup, timeline.place(1, 1, 5).cgroup);
    assert_eq!(of(2, 3..9), [None, some("/a"), some("/a"), some("/a"), some("/a"), some("/a/own")]);
    assert_eq!((of(3, 6..9), of(4, 7..8)), (vec![None, some("/a"), some("/a")], vec![some("/b")]));
    assert_eq!((of(5, 8..10), of(6, 9..10)), (vec![None, some("/b")], vec![None]));
    assert_eq!(timeline.cgroups().collect::<Vec<_>>(), [&b"/a"[..], b"/b", b"/a/own"]);
}

/// Check that a reused pid has nothing of the previous process's control group, whether its fork is known, from a
/// parent whose group is not, or not; but that the first event of a process whose group is known changes nothing.
#[test]
fn a_reused_pid_has_no_group_of_the_dead() {
    let named = |time_ns, start_ticks| {
        Sideband::Comm(Comm { time_ns, pid: 7, tid: 7, comm: "x".into(), exec: false, start_ticks })
    };
    let first = [named(1, 100), cgroup(2, 7, "/first"), exit(5, 7)];
    for second in [fork(9, 7, 1), named(9, 200), map(9, 7, 0x1000, 0x1000, "/second")] {
        let timeline = Timeline::new(first.iter().cloned().chain([second, cgroup(11, 7, "/second")]));
        let groups = [8, 9, 10, 11].map(|time| group(&timeline, 7, time));
        assert_eq!(groups, [Some("/first".to_owned()), None, None, Some("/second".to_owned())]);
    }
    for event in [named(9, 200), map(9, 7, 0x1000, 0x1000, "/a"), comm(9, 7, "x", true)] {
        let timeline = Timeline::new([cgroup(2, 7, "/known"), event]);
        assert_eq!(group(&timeline, 7, 9).as_deref(), Some("/known"));
    }
}

/// Check that the order in which events come does not matter.
#[test]
fn the_order_of_events_in_the_file_does_not_matter() {
    let mut events = vec![
        comm(1, 1, "sh", true),
        map(1, 1, 0x1000, 0x1000, "/sh"),
        map(1, 1, 0x4000, 0x1000, "/libc"),
        fork(5, 2, 1),
        comm(7, 2, "ls", true),
        cgroup(7, 2, "/group"),
        map(8, 2, 0x1000, 0x2000, "/ls"),
        map(9, 2, 0x2000, 0x2000, "/libc"),
        exit(12, 2),
    ];
    let shown = |timeline: &Timeline| {
        let at = |time| [1, 2].map(|pid| (mapped(timeline, pid, time), group(timeline, pid, time)));
        (0..14).flat_map(at).collect::<Vec<_>>()
    };
    let expected = shown(&Timeline::new(events.clone()));
    for _ in 0..events.len() {
        events.rotate_left(3);
        events.swap(0, 5);
        assert_eq!(shown(&Timeline::new(events.clone())), expected);
    }
}

/// Check that empty mappings and those beyond the end of the address space are counted and left out.
#[test]
fn impossible_mappings_are_counted() {
    let timeline = Timeline::new([
        map(1, 1, u64::MAX - 10, 100, "/a"),
        map(1, 1, 0x1000, 0, "/b"),
        map(1, 1, u64::MAX - 0x1000, 0x1000, "/c"),
    ]);
    assert_eq!(timeline.n_impossible(), 2);
    assert_eq!(paths(&timeline, 1, 1), ["c"]);
}

/// Check that data mappings that overlap nothing executable do not make a new space, which caches use as their key.
#[test]
fn data_mappings_do_not_change_the_space() {
    let mut events = vec![map(1, 1, 0x1000, 0x1000, "/a")];
    events.extend((2..100).map(|time| map_with(time, 1, 0x10_0000 + time * 0x1000, 0x1000, "//anon", READ_WRITE)));
    let timeline = Timeline::new(events);
    assert_eq!(timeline.place(1, 1, 1).space, timeline.place(1, 1, 99).space);
}

/// Check that contents built from an earlier moment equal contents built from scratch, in both orders, and for forks
/// with mappings of their own.
#[test]
fn contents_do_not_depend_on_what_was_asked_before() {
    let mut events = Vec::new();
    for time in 0..200_u64 {
        let pid = u32::try_from(1 + time / 50).unwrap();
        if time % 50 == 0 && time > 0 {
            events.push(fork(time, pid, pid - 1));
        }
        let start = 0x1000 * (1 + time * 7 % 40);
        events.push(map(time, pid, start, 0x1000 * (1 + time % 5), &format!("/{time}")));
    }
    let timeline = Timeline::new(events);
    let keys: Vec<_> =
        (0..200).filter_map(|time| timeline.place(u32::try_from(1 + time / 50).unwrap(), 1, time).space).collect();
    assert_eq!(keys.len(), 200);
    let fresh: Vec<_> = keys.iter().map(|&key| Contents::default().get(&timeline, key)).collect();
    let (up, down) = (Contents::default(), Contents::default());
    let ascending: Vec<_> = keys.iter().map(|&key| up.get(&timeline, key)).collect();
    let mut descending: Vec<_> = keys.iter().rev().map(|&key| down.get(&timeline, key)).collect();
    descending.reverse();
    assert_eq!(ascending, fresh);
    assert_eq!(descending, fresh);
}

/// Pages of a process, one entry per page.
type Pages = std::collections::BTreeMap<u64, (String, u64)>;

/// The pages of a process according to the timeline.
fn pages(timeline: &Timeline, contents: &Contents, pid: u32, time_ns: u64) -> Pages {
    let Some(key) = timeline.place(pid, pid, time_ns).space else { return Pages::new() };
    let mappings = contents.get(timeline, key);
    assert!(mappings.is_sorted_by(|a, b| a.end <= b.start) && mappings.iter().all(|m| m.start < m.end));
    let pages_of = |mapping: &SpaceMapping| {
        let name = timeline.files()[mapping.file.unwrap().0 as usize].base_name();
        let (start, offset) = (mapping.start, mapping.file_offset);
        (start..mapping.end).step_by(0x1000).map(move |page| (page, (name.clone(), offset + page - start)))
    };
    mappings.iter().flat_map(pages_of).collect()
}

/// Check thousands of random mappings, forks and execs against a model that copies every page of every process.
#[test]
fn random_histories_agree_with_a_page_by_page_model() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut events, mut model): (Vec<Sideband>, Vec<Pages>) = (Vec::new(), vec![Pages::new(); 6]);
    let mut expected: Vec<(u32, u64, Pages)> = Vec::new();
    for time in 1..3_000_u64 {
        let who = usize::try_from(random(6)).unwrap();
        let pid = u32::try_from(who + 1).unwrap();
        match random(20) {
            0 => {
                events.push(comm(time, pid, "x", true));
                model[who].clear();
            }
            1 | 2 => {
                let parent = usize::try_from(random(6)).unwrap();
                if parent != who {
                    events.push(fork(time, pid, u32::try_from(parent + 1).unwrap()));
                    model[who] = model[parent].clone();
                }
            }
            kind => {
                let (first, n) = (1 + random(40), 1 + random(8));
                let name = format!("/{time}");
                let prot = if kind < 8 { READ_WRITE } else { READ_EXEC };
                events.push(map_with(time, pid, first * 0x1000, n * 0x1000, &name, prot));
                for page in first..first + n {
                    model[who].remove(&(page * 0x1000));
                    if prot == READ_EXEC {
                        let content = (time.to_string(), 0x1000 + (page - first) * 0x1000);
                        model[who].insert(page * 0x1000, content);
                    }
                }
            }
        }
        expected.push((pid, time, model[who].clone()));
    }
    let (timeline, contents) = (Timeline::new(events), Contents::default());
    for (pid, time, pages_then) in &expected {
        assert_eq!(&pages(&timeline, &contents, *pid, *time), pages_then, "process {pid} at {time}");
    }
}

/// Check that the cost of a program with 2,000 modules that forks 2,000 times is that of its events, not their product.
#[test]
fn many_modules_and_forks_stay_small() {
    let modules = (0..2_000_u64).map(|n| map(n, 1, 0x1000 * (n + 1), 0x1000, &format!("/lib{n}.so")));
    let forks = (2..2_002_u32).map(|pid| fork(10_000 + u64::from(pid), pid, 1));
    let timeline = Timeline::new(modules.chain(forks));
    let n_edits: usize = timeline.logs.iter().map(|log| log.edits.len()).sum();
    assert_eq!((n_edits, timeline.logs.len()), (2_000, 2_001));
    let contents = Contents::default();
    for pid in 2..2_002 {
        let key = timeline.place(pid, pid, 20_000).space.unwrap();
        assert_eq!(contents.get(&timeline, key).len(), 2_000);
    }
    let content = |pid, time| {
        let key = timeline.place(pid, pid, time).space.unwrap();
        contents.get(&timeline, key)
    };
    assert!(Arc::ptr_eq(&content(2, 20_000), &content(2_001, 20_000)), "one content for all");
    // Of the moments while the modules are mapped, a few are cached.
    let all: Vec<_> = (0..2_000).map(|time| content(1, time)).collect();
    assert!(all.iter().map(|content| content.len()).eq(1..=2_000));
    let cached = all.iter().filter(|content| Arc::strong_count(content) > 1).count();
    assert!((1..=16).contains(&cached), "{cached} contents");
}

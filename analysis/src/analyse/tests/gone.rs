//! Processes of which only samples are known, and threads that had no stack.

use super::*;

/// The only line of a strategy, and its truncated samples by reason.
fn only(analysis: &Analysis, strategy: &str) -> (Vec<String>, BTreeMap<String, u64>) {
    let quality = &analysis.summary.strategies[strategy];
    assert!(quality.broken.is_empty(), "{strategy}: {:?}", quality.broken);
    (text(&analysis.folded[strategy]), quality.truncated.clone())
}

/// Check that samples of a process that exited before its mappings were read are counted as such, not as broken, under
/// every strategy, and that a kernel thread beside it is still one.
#[test]
fn nothing_is_known_of_the_mappings() {
    let program = Program::new();
    let gone = |n| Sample { user_fp: program.chain(), fp_end: FpEnd::Zero, ..program.sample(7, n) };
    let kernel = Sample { pid: 8, tid: 8, time_ns: 2_000, in_kernel: true, kernel: vec![1 << 63], ..Sample::default() };
    let samples = [gone(0), gone(1), gone(2), kernel];
    let expected = ([":7 process_gone 3", "kworker;[kernel+0x8000000000000000] kernel_thread 1"], 3);
    let [named, mapped] = program.sideband(1, "prog");
    let sideband = [named, mapped, kernel_thread(8)];
    let check = |mode, strategies: &[&str]| {
        let analysis = run(&record(mode, &sideband, &samples, 2, true), strategies);
        for strategy in strategies {
            let (lines, truncated) = only(&analysis, strategy);
            assert_eq!(lines, expected.0, "{mode:?} {strategy}");
            assert_eq!(truncated, BTreeMap::from([("process_gone".to_string(), expected.1)]), "{mode:?} {strategy}");
        }
        let who: Vec<(u32, u64)> = analysis.summary.processes.iter().map(|one| (one.pid, one.samples)).collect();
        assert_eq!(who, [(7, 3), (8, 1)]);
    };
    check(CaptureMode::Fp, &["fp"]);
    check(CaptureMode::Dwarf { stack_bytes: 64 }, &["fp", "dwarf", "dwarf@16"]);
    check(CaptureMode::Both { stack_bytes: 64, every: 1 }, &["fp", "dwarf", "dwarf@16"]);
    #[cfg(all(feature = "libdw", feature = "libunwind"))]
    check(CaptureMode::Dwarf { stack_bytes: 64 }, &["elfutils", "libunwind"]);
}

/// Check that a process with events but no mapping counts as gone, and one whose mappings come later until then.
#[test]
fn mappings_that_come_too_late() {
    let program = Program::new();
    let [named, mapped] = program.sideband(1, "prog");
    let dwarf = CaptureMode::Dwarf { stack_bytes: 64 };
    let sample = program.sample(1, 10);
    let analysis = run(&record(dwarf, std::slice::from_ref(&named), std::slice::from_ref(&sample), 1, true), &[]);
    assert_eq!(only(&analysis, "dwarf").0, ["prog process_gone 1"]);
    let Sideband::Mmap(mut mapping) = mapped else { panic!("a mapping: {mapped:?}") };
    mapping.time_ns = sample.time_ns + 1;
    let later = Sample { time_ns: sample.time_ns + 2, ..program.sample(1, 11) };
    let analysis = run(&record(dwarf, &[named, Sideband::Mmap(mapping)], &[sample, later], 2, true), &[]);
    assert_eq!(only(&analysis, "dwarf").0, ["prog process_gone 1", "prog;_start;middle;leaf _start 1"]);
}

/// Check that a thread inside `execve`, or on its way into the kernel, counts neither as a kernel thread nor as a
/// process that is gone, whether its mappings are known or not, that it is neither complete nor incomplete, and that
/// its kernel chain is kept.
#[test]
fn threads_without_registers() {
    for (in_exec, reason) in [(true, "in_exec"), (false, "entering_kernel")] {
        threads_without_registers_for(in_exec, reason);
    }
}

fn threads_without_registers_for(is_in_exec: bool, reason: &str) {
    let program = Program::new();
    let in_exec = |pid, n| Sample {
        in_kernel: true,
        in_exec: is_in_exec,
        entering_kernel: !is_in_exec,
        user_regs: None,
        user_fp: vec![],
        fp_end: FpEnd::Unknown,
        stack: vec![],
        kernel: vec![1 << 63],
        ..program.sample(pid, n)
    };
    let samples = [in_exec(1, 10), in_exec(7, 11)];
    let check = |mode, strategies: &[&str]| {
        let analysis = run(&record(mode, &program.sideband(1, "prog"), &samples, 2, true), strategies);
        for strategy in strategies {
            let (lines, truncated) = only(&analysis, strategy);
            let [unknown, known] = [":7", "prog"].map(|name| format!("{name};[kernel+0x8000000000000000] {reason} 1"));
            assert_eq!(lines, [unknown, known], "{mode:?} {strategy}");
            assert_eq!(truncated, BTreeMap::new(), "{mode:?} {strategy}");
            let quality = &analysis.summary.strategies[*strategy];
            assert_eq!(quality.samples, 0, "{mode:?} {strategy}");
            assert_eq!(quality.no_stack, BTreeMap::from([(reason.to_string(), 2)]), "{mode:?} {strategy}");
        }
    };
    check(CaptureMode::Fp, &["fp"]);
    check(CaptureMode::Dwarf { stack_bytes: 64 }, &["fp", "dwarf", "dwarf@16"]);
    check(CaptureMode::Both { stack_bytes: 64, every: 1 }, &["fp", "dwarf", "dwarf@16"]);
    #[cfg(all(feature = "libdw", feature = "libunwind"))]
    check(CaptureMode::Dwarf { stack_bytes: 64 }, &["elfutils", "libunwind"]);
}

/// Check that an exiting thread without an address space counts neither as complete nor as incomplete, under every
/// strategy, and that its kernel chain is kept.
#[test]
fn exiting_threads_have_no_stack() {
    let program = Program::new();
    let exiting = Sample {
        in_kernel: true,
        user_regs: None,
        user_fp: vec![],
        fp_end: FpEnd::Unknown,
        stack: vec![],
        kernel: vec![1 << 63],
        ..program.sample(1, 10)
    };
    let samples = [program.sample(1, 9), exiting];
    let check = |mode, strategies: &[&str]| {
        let analysis = run(&record(mode, &program.sideband(1, "prog"), &samples, 2, true), strategies);
        for strategy in strategies {
            let quality = &analysis.summary.strategies[*strategy];
            let ends = quality.complete + quality.truncated.values().chain(quality.broken.values()).sum::<u64>();
            assert_eq!((quality.samples, ends), (1, 1), "{mode:?} {strategy}");
            assert_eq!(quality.no_stack, BTreeMap::from([("exiting".to_string(), 1)]), "{mode:?} {strategy}");
            let lines = text(&analysis.folded[*strategy]);
            assert!(lines.contains(&"prog;[kernel+0x8000000000000000] exiting 1".to_string()), "{lines:?}");
        }
        assert_eq!(analysis.summary.processes[0].samples, 2);
    };
    check(CaptureMode::Dwarf { stack_bytes: 64 }, &["fp", "dwarf", "dwarf@16"]);
    check(CaptureMode::Both { stack_bytes: 64, every: 1 }, &["fp", "dwarf", "dwarf@16"]);
    #[cfg(all(feature = "libdw", feature = "libunwind"))]
    check(CaptureMode::Dwarf { stack_bytes: 64 }, &["elfutils", "libunwind"]);
}

/// Check that a process without mappings and registers is a kernel thread only if it may be one: not if it has executed
/// a program, is the child of one that has, will map something, or has no events; and that a thread without a number is
/// exiting.
#[test]
fn programs_are_no_kernel_threads() {
    let program = Program::new();
    let sample =
        |pid| Sample { pid, tid: pid, time_ns: 2_000, in_kernel: true, kernel: vec![1 << 63], ..Sample::default() };
    let comm = |pid, comm: &str, exec| {
        Sideband::Comm(Comm { time_ns: 1, pid, tid: pid, comm: comm.into(), exec, start_ticks: 0 })
    };
    let fork = |pid, parent| Sideband::Fork(Fork { time_ns: 2, pid, tid: pid, parent_pid: parent, parent_tid: parent });
    let [_, mapped] = program.sideband(12, "late");
    let Sideband::Mmap(mapped) = mapped else { panic!("a mapping: {mapped:?}") };
    let sideband = [
        kernel_thread(8),
        comm(9, "executed", false),
        comm(9, "executed", true),
        fork(10, 9),
        fork(2, 0),
        fork(11, 2),
        comm(12, "late", false),
        Sideband::Mmap(Mmap { time_ns: 3_000, ..mapped }),
        fork(14, 8),
    ];
    let samples = [8, 9, 10, 11, 12, 13, 14, NO_PROCESS].map(sample);
    for mode in [CaptureMode::Fp, CaptureMode::Dwarf { stack_bytes: 64 }] {
        let analysis = run(&record(mode, &sideband, &samples, 8, true), &["fp"]);
        let expected = [
            ":11;[kernel+0x8000000000000000] kernel_thread 1",
            ":13;[kernel+0x8000000000000000] process_gone 1",
            "[exiting];[kernel+0x8000000000000000] exiting 1",
            "executed;[kernel+0x8000000000000000] exiting 1",
            "executed;[kernel+0x8000000000000000] exiting 1",
            "kworker;[kernel+0x8000000000000000] kernel_thread 1",
            "kworker;[kernel+0x8000000000000000] kernel_thread 1",
            "late;[kernel+0x8000000000000000] exiting 1",
        ];
        let mut lines = text(&analysis.folded["fp"]);
        lines.sort_unstable();
        assert_eq!(lines, expected, "{mode:?}");
    }
}

//! Handmade samples by thread and time.

use fpprof_analysis::folded::{Origin, Unit};
use fpprof_analysis::profile::{
    BuildId, Function, Grouping, Profile, ProfileEvent, ProfileFrame, ProfileModule, ProfileOrigin, ProfileSample,
    ProfileStack, ProfileThread, Weight,
};
use fpprof_analysis::symbols::SourceLine;
use fpprof_unwind::{Root, StopReason, TruncatedReason};
use std::time::Duration;

fn recorded(name: &str) -> ProfileOrigin {
    ProfileOrigin {
        recorder: "fpprof 0.1.0".to_owned(),
        start_ns: 5_000_000_000,
        start_unix_ns: 1_700_000_000_000_000_000,
        host: name.to_owned(),
        kernel: "6.18.0".to_owned(),
        arch: "x86_64".to_owned(),
        cpu_model: name.to_owned(),
        distribution: name.to_owned(),
    }
}

/// Two threads, of which one enters the kernel; an inlined function, and a truncated stack. `name` is the string that
/// the machine and the programs chose.
pub(crate) fn profile(name: &str) -> Profile {
    let function = |name: &str, module: &str, line: Option<u32>| Function {
        name: name.to_owned(),
        module: module.to_owned(),
        line: line.map(|line| SourceLine { file: format!("/src/{name}.c"), line }),
    };
    let frame = |module, address, origin, functions: Vec<Function>| ProfileFrame { module, address, origin, functions };
    let frames = vec![
        frame(None, 0xffff_ffff_8100_1234, Origin::Kernel, vec![function("do_syscall_64", "[kernel]", None)]),
        frame(Some(0), 0x1139, Origin::Cfi, vec![function(name, name, Some(12)), function("inlined", name, Some(7))]),
        frame(Some(0), 0x1050, Origin::Cfi, vec![function("_start", name, None)]),
        frame(None, 0x7f00_0000_1000, Origin::Leaf, vec![function(name, "[jit]", None)]),
    ];
    let stacks = vec![
        ProfileStack { frames: vec![0, 1, 2], stop: StopReason::Complete(Root::Start) },
        ProfileStack { frames: vec![3, 1], stop: StopReason::Truncated(TruncatedReason::ChunkEnd) },
    ];
    let thread = |tid| ProfileThread {
        pid: 1201,
        tid,
        process: name.to_owned(),
        comm: name.to_owned(),
        cgroup: format!("/kubepods/pod0a-1/{}", "ab".repeat(32)),
        labels: vec![("team".to_owned(), name.to_owned())],
        ..ProfileThread::default()
    };
    let sample = |n: u64, thread, stack| ProfileSample {
        time_ns: n * 1_000_000,
        cpu: 1,
        event: 0,
        thread,
        stack,
        samples: 1,
        weight: 1_000_000,
    };
    Profile {
        recorded: recorded(name),
        strategy: "dwarf".to_owned(),
        events: vec![ProfileEvent {
            name: "cpu-clock".to_owned(),
            weight: Weight::CpuNs,
            period: Some(1_000_000),
            interval: Some(Duration::from_millis(1)),
        }],
        unit: Unit::Samples,
        grouping: Grouping::Each,
        duration: Duration::from_millis(10),
        modules: vec![ProfileModule {
            path: format!("/usr/bin/{name}"),
            name: name.to_owned(),
            build_id: BuildId::new(&[0xab; 20]),
            base: 0,
            code: 0x1000..0x2000,
            file_offset: 0x1000,
        }],
        frames,
        stacks,
        threads: vec![thread(1201), thread(1202)],
        samples: vec![sample(1, 0, 0), sample(2, 0, 0), sample(3, 0, 1), sample(4, 1, 1)],
    }
}

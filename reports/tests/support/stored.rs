//! Tables of a store, made by hand.

use fpprof_analysis::folded::{Origin, Unit};
use fpprof_analysis::profile::{
    Function, Grouping, Profile, ProfileEvent, ProfileFrame, ProfileOrigin, ProfileSample, ProfileStack, ProfileThread,
    Weight,
};
use fpprof_unwind::StopReason;
use std::time::Duration;

/// When the first interval begins, microseconds since 1970.
pub(crate) const NOON_US: u64 = 1_795_694_400_000_000;

/// Rows of an interval of a minute: process, stack from its root on, separated by `;`, its end, samples.
pub(crate) type Rows<'a> = &'a [(&'a str, &'a str, StopReason, u64)];

/// A profile of a machine from these rows. Each process has a service of its name, and each sample a weight of ten.
pub(crate) fn profile(start_unix_us: u64, host: &str, strategy: &str, rows: Rows<'_>) -> Profile {
    let recorded = ProfileOrigin {
        recorder: String::new(),
        start_ns: 0,
        start_unix_ns: start_unix_us * 1000,
        host: host.to_owned(),
        kernel: String::new(),
        arch: String::new(),
        cpu_model: String::new(),
        distribution: String::new(),
    };
    let event = "cpu-clock".to_owned();
    let mut profile = Profile {
        recorded,
        strategy: strategy.to_owned(),
        events: vec![ProfileEvent { name: event, weight: Weight::CpuNs, period: Some(10), interval: None }],
        unit: Unit::Samples,
        grouping: Grouping::Summed,
        duration: Duration::from_secs(60),
        modules: Vec::new(),
        frames: Vec::new(),
        stacks: Vec::new(),
        threads: Vec::new(),
        samples: Vec::new(),
    };
    rows.iter().for_each(|&(process, stack, stop, samples)| add(&mut profile, process, stack, stop, samples));
    profile
}

/// A function by its name, or by `NAME in MODULE`.
fn function(words: &str) -> Function {
    let (name, module) = words.split_once(" in ").unwrap_or((words, "program"));
    Function { name: name.to_owned(), module: module.to_owned(), line: None }
}

fn add(profile: &mut Profile, process: &str, stack: &str, stop: StopReason, samples: u64) {
    let number = |n: usize| u32::try_from(n).expect("a small number");
    let first = profile.frames.len();
    profile.frames.extend(stack.split(';').filter(|name| !name.is_empty()).rev().map(|name| ProfileFrame {
        module: None,
        address: 0,
        origin: Origin::Cfi,
        functions: vec![function(name)],
    }));
    let frames = (first..profile.frames.len()).map(number).collect();
    profile.stacks.push(ProfileStack { frames, stop });
    let (comm, cgroup) = (process.to_owned(), format!("/system.slice/{process}.service"));
    let labels = match process {
        "nginx" => vec![("team".to_owned(), "web".to_owned()), ("zone".to_owned(), "a\u{202e}".to_owned())],
        _ => Vec::new(),
    };
    let thread = ProfileThread { pid: 7, tid: 7, process: comm.clone(), comm, cgroup, labels, ..Default::default() };
    profile.threads.push(thread);
    let (thread, stack) = (number(profile.threads.len() - 1), number(profile.stacks.len() - 1));
    let weight = samples * 10;
    profile.samples.push(ProfileSample { time_ns: 0, cpu: 0, event: 0, thread, stack, samples, weight });
}

//! The rights of the recorder, and which processes it may inspect.

use crate::found::Found;
use crate::place::Place;
use crate::process::{compiled, end_of, field, printed, send_signal, spawn, wait_for_samples, wait_until};
use crate::suite::{Suite, run};
use anyhow::{Context as _, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// The capabilities of a started recorder: `DAC_READ_SEARCH`, `KILL`, `IPC_LOCK`, `SYS_PTRACE`, `SYSLOG`, `PERFMON`,
/// `BPF`, `CHECKPOINT_RESTORE`.
const NEEDED: u64 = 0x01c4_0008_4024;

/// A process and all its descendants.
fn family(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> =
        lists.flat_map(|list| list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()).collect();
    [pid].into_iter().chain(children.into_iter().flat_map(family)).collect()
}

/// Whether a process has BPF objects or perf events open.
fn can_trace(pid: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| ["bpf", "perf_event"].iter().any(|kind| link.to_string_lossy().contains(kind)))
}

pub(crate) fn of_the_recorder(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let file = dir.path().join("recording");
    let mut recorder = place.fpprof();
    let recorder = spawn(recorder.args(["record", "-q", "-a", "--duration", "120", "-o"]).arg(&file))?;
    wait_for_samples(&file)?;
    let processes: Vec<u32> = family(recorder.id()).into_iter().filter(|pid| can_trace(*pid)).collect();
    let mut found = BTreeSet::new();
    for pid in processes {
        for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
            // The thread may have ended.
            let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
            let mask = |name: &str| -> anyhow::Result<u64> {
                Ok(u64::from_str_radix(&field(&status, name).context("capabilities")?, 16)?)
            };
            let no_new = field(&status, "NoNewPrivs").context("NoNewPrivs")?;
            found.insert((mask("CapEff")? | mask("CapPrm")?, mask("CapBnd")?, no_new));
        }
    }
    ensure!(!found.is_empty(), "no process of the recorder has BPF or perf descriptors open");
    let is_least = |(can, _, no_new): &(u64, u64, String)| can & !NEEDED == 0 && no_new == "1";
    let sets = found.iter().map(|(can, bound, no_new)| {
        format!("{} capabilities ({can:#x}), bounding set {bound:#x}, NoNewPrivs {no_new}", can.count_ones())
    });
    Ok(Found::new(found.iter().all(is_least), sets.collect::<Vec<_>>().join("; ")))
}

pub(crate) fn of_closed_programs(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let (program, started, file) =
        (dir.path().join("undumpable"), dir.path().join("started"), dir.path().join("recording"));
    compiled(&place.root.join("collector/tests/programs/undumpable.c"), &[], &program)?;
    let closed = spawn(Command::new(&program).arg("120000").arg(&started))?;
    wait_until("the program has begun", Duration::from_secs(60), || started.exists())?;
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-p", &closed.id().to_string(), "-o"]).arg(&file);
    let mut recorder = spawn(&mut recorder)?;
    wait_for_samples(&file)?;
    send_signal(&recorder, Signal::SIGINT)?;
    end_of(&mut recorder, Duration::from_secs(30))?;
    let report = printed(place.fpprof().args(["report", "--json"]).arg(&file))?;
    let report: Value = serde_json::from_slice(&report)?;
    let n = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let (samples, bytes) = (n("/recorded"), n("/volume/stack_bytes"));
    let ordinary = Suite { programs: &["--test", "host"], tests: &["programs_that_leave_a_recording_are_reported"] };
    let tested = run(place, &[ordinary], &[])?;
    let figure = format!(
        "ordinary user: {}; root: {samples} samples of a program that is not dumpable, with {bytes} bytes of its stack",
        tested.words()
    );
    Ok(Found::new(tested.is_good() && bytes == 0, figure))
}

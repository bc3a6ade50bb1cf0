//! The BPF programs, maps and links in the kernel.

use crate::found::Found;
use crate::place::Place;
use crate::process::{printed, spawn, wait_for_samples};
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// The kinds of objects that bpftool lists.
pub(crate) const KINDS: [&str; 3] = ["prog", "map", "link"];

/// All objects of a kind in the kernel, as bpftool lists them, with their pinned paths.
pub(crate) fn all(kind: &str) -> anyhow::Result<Vec<Value>> {
    let listed = printed(Command::new("bpftool").args(["-j", "-f", kind, "show"]))?;
    Ok(serde_json::from_slice(&listed)?)
}

/// The id of an object.
pub(crate) fn id(object: &Value) -> Option<u64> {
    object.get("id")?.as_u64()
}

/// The ids of the objects that a process has open, by the field name in `fdinfo`.
fn opened(pid: u32, name: &str) -> anyhow::Result<BTreeSet<u64>> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo"))?.flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let number = |text: String| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Ok(texts.filter_map(number).collect())
}

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let file = dir.path().join("recording");
    let mut recorder = place.fpprof();
    recorder.args(["record", "-q", "-a", "--collector", "ebpf", "--off-cpu", "--duration", "120", "-o"]).arg(&file);
    let recorder = spawn(&mut recorder)?;
    wait_for_samples(&file)?;
    let (programs, maps) = (opened(recorder.id(), "prog_id:")?, opened(recorder.id(), "map_id:")?);
    ensure!(!programs.is_empty() && !maps.is_empty(), "the recorder has no BPF programs open");
    let (mut calls, mut unnamed, mut writes) = (0, 0, 0);
    for program in &programs {
        let dump = printed(Command::new("bpftool").args(["prog", "dump", "xlated", "id", &program.to_string()]))?;
        for line in String::from_utf8_lossy(&dump).lines() {
            let Some((_, callee)) = line.split_once(" call ") else { continue };
            calls += 1;
            unnamed += usize::from(callee.starts_with("unknown"));
            writes += usize::from(callee.contains("probe_write_user"));
        }
    }
    let mut pinned = 0;
    for (kind, ours) in [("prog", &programs), ("map", &maps)] {
        let is_ours = |object: &&Value| id(object).is_some_and(|id| ours.contains(&id));
        let has_path =
            |object: &&Value| object.get("pinned").and_then(Value::as_array).is_some_and(|paths| !paths.is_empty());
        pinned += all(kind)?.iter().filter(is_ours).filter(has_path).count();
    }
    ensure!(calls > 0, "bpftool shows no calls");
    let figure = format!(
        "{} programs with {calls} calls, {writes} of them of probe_write_user, {unnamed} without a name; {} maps; {pinned} \
         pinned",
        programs.len(),
        maps.len()
    );
    Ok(Found::new(writes == 0 && unnamed == 0 && pinned == 0, figure))
}

/// The ids of all objects, by kind.
pub(crate) fn numbers() -> anyhow::Result<BTreeSet<(&'static str, u64)>> {
    let mut numbers = BTreeSet::new();
    for kind in KINDS {
        let objects = all(kind).with_context(|| format!("listing every {kind}"))?;
        numbers.extend(objects.iter().filter_map(id).map(|id| (kind, id)));
    }
    Ok(numbers)
}

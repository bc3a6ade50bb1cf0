//! The figures of a run from its perf recording.

use super::mode::{PerfMode, perf_strategy};
use super::perf_script::{self, Outermost};
use super::recorded::Recorded;
use super::watch::Watched;
use crate::output::private_file;
use crate::recordings::Source;
use anyhow::Context as _;
use fpprof_analysis::experiment::{Measured, Run, StackEnds, Stacks};
use fpprof_analysis::import::{Imported, perf_data};
use fpprof_analysis::modules::{FileModules, OutermostJudge};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// Fills in the figures of one run from its perf.data.
///
/// # Errors
/// If the file cannot be read or perf cannot unwind it.
pub(crate) fn fill(mode: PerfMode, recording: &Path, watched: &Watched, run: &mut Run) -> anyhow::Result<Recorded> {
    let converted = recording.with_extension("fpprof");
    let imported = import(recording, &converted)?;
    let recorded = Recorded::read(&converted)?;
    let bytes = fs::metadata(recording).with_context(|| format!("reading {}", recording.display()))?.len();
    run.bytes = Measured::Value(bytes);
    // The sum of recorded and lost would be a balance that cannot fail.
    let uncounted = "perf counts what it recorded and lost, not the ticks that fired";
    run.fired = Measured::missing(uncounted);
    run.recorded = Measured::Value(imported.samples);
    run.lost = Measured::Value(BTreeMap::from([("ring_full".to_owned(), imported.lost_samples)]));
    run.skipped = Measured::missing(uncounted);
    run.dropped = Measured::missing(uncounted);
    run.lost_chunks = Measured::Value(imported.lost_records);
    run.collector_cpu_s = Measured::Value(watched.own_cpu_s);
    run.collector_stop_cpu_s = Measured::missing("perf does not say when it stopped sampling");
    run.bpf_ns_per_sample = Measured::missing("perf samples without a BPF program");
    run.attributed = Measured::missing("perf does not say what it costs");
    run.max_rss_bytes = Measured::Value(watched.max_rss_bytes);
    run.stacks = Measured::Value(vec![judged(mode, recording, &converted, &recorded.names)?]);
    run.frame_pointers = Measured::missing("needs both kinds of stack in the same samples");
    fs::remove_file(&converted).with_context(|| format!("removing {}", converted.display()))?;
    Ok(recorded)
}

fn import(perf_file: &Path, converted: &Path) -> anyhow::Result<Imported> {
    let input = File::open(perf_file).with_context(|| format!("reading {}", perf_file.display()))?;
    let output = private_file(converted).with_context(|| format!("making {}", converted.display()))?;
    perf_data(BufReader::new(input), output).with_context(|| perf_file.display().to_string())
}

/// Judges the stacks of a perf recording. Frame-pointer chains are in the file as the kernel walked them; copied stacks
/// are unwound by perf itself.
fn judged(mode: PerfMode, perf_file: &Path, converted: &Path, names: &HashMap<u32, String>) -> anyhow::Result<Stacks> {
    let strategy = perf_strategy(mode).to_owned();
    let (processes, unwound_by) = match mode {
        PerfMode::Fp => (chains(converted)?, None),
        PerfMode::Dwarf(_) => {
            let mut judges = Judges::default();
            (perf_script::stack_ends(perf_file, names, |frame| judges.is_root(frame))?, Some("perf script".to_owned()))
        }
    };
    let flame_graph = Measured::missing("fpprof draws its own recordings only");
    Ok(Stacks { strategy, unwound_by, processes, flame_graph })
}

fn chains(converted: &Path) -> anyhow::Result<BTreeMap<String, StackEnds>> {
    let analysis = Source::here(converted).analyse(&[])?;
    let mut processes: BTreeMap<String, StackEnds> = BTreeMap::new();
    for process in &analysis.summary.processes {
        if let Some(quality) = process.strategies.get("fp") {
            processes.entry(process.comm.clone()).or_default().add(&StackEnds::from(quality));
        }
    }
    Ok(processes)
}

/// One judge per file, created on first use.
#[derive(Debug, Default)]
struct Judges(HashMap<PathBuf, Option<OutermostJudge>>);

impl Judges {
    fn is_root(&mut self, frame: &Outermost) -> bool {
        let make = || OutermostJudge::new(&FileModules::new(), &frame.module);
        let judge = self.0.entry(frame.module.clone()).or_insert_with(make);
        judge.as_ref().is_some_and(|judge| judge.is_root(frame.file_offset))
    }
}

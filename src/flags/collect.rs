//! Collects the raw results for the analysis from the evaluation's directory.

use super::manifest::Manifest;
use super::plan::{Fact, Plan};
use super::rounds::{self, Line};
use super::store::Store;
use anyhow::Context as _;
use fpprof_analysis::audit::{self, examine};
use fpprof_analysis::flags::{ArmResult, FileSizes, FlagsEnvironment, FlagsMethod, Raw, RawProgram, TallySummary};
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Collects all finished results so far.
pub(crate) fn collect(store: &Store) -> anyhow::Result<Raw> {
    let plan: Plan = Store::read(&store.path("manifest.json")).context("cannot read manifest.json")?;
    let environment: FlagsEnvironment = Store::read(&store.path("environment.json")).unwrap_or_default();
    let lines: Vec<Line> = store.lines(rounds::FILE)?;
    let facts: Vec<Fact> = store.lines(Fact::FILE)?;
    let mut missing = plan.missing.clone();
    let mut programs = Vec::new();
    for program in plan.manifest.program.iter().filter(|program| plan.programs.contains(&program.name)) {
        let (name, arms) = (&program.name, plan.arms(program));
        let mut times: Vec<_> =
            lines.iter().filter(|line| plan.counts(program, line)).map(|line| line.times.clone()).collect();
        times.sort_by_key(|times| times.round);
        let mut results = Vec::new();
        for arm in &arms {
            let fact = facts.iter().rev().find(|fact| fact.program == *name && fact.arm == *arm);
            // Results may have been copied without the builds.
            let key = plan.fact_key(store, program, arm);
            let Some(fact) = fact.filter(|fact| key.as_ref().is_none_or(|key| *key == fact.key)) else {
                let words = if key.is_some() { "not measured since it was built" } else { "not built yet" };
                missing.push(format!("{name} under {}: {words}", arm.flags));
                continue;
            };
            missing.extend(fact.missing.iter().map(|what| format!("{name} under {}: {what}", arm.flags)));
            results.push(fact.result.clone());
        }
        if results.len() == arms.len() {
            let unknown =
                || vec![(0..plan.manifest.binaries()).map(|at| at / plan.manifest.copies).collect(); arms.len()];
            let layouts = plan.layouts.get(name).cloned().unwrap_or_else(unknown);
            programs.push(RawProgram { name: name.clone(), arms, results, layouts, times });
        }
    }
    // Both arms of an A/A comparison have the same name, so their messages are deduplicated.
    let mut seen = HashSet::new();
    missing.retain(|what| seen.insert(what.clone()));
    Ok(Raw { environment, method: method(&plan.manifest, &plan), flag_sets: plan.flag_sets, programs, missing })
}

fn method(manifest: &Manifest, plan: &Plan) -> FlagsMethod {
    FlagsMethod {
        seed: manifest.seed,
        rounds: manifest.rounds,
        layouts: manifest.layouts,
        copies: manifest.copies,
        layout: plan.layout.clone(),
        repeat: plan.repeat.clone(),
    }
}

/// Measures the sizes of a binary and audits it statically.
pub(super) fn binary(path: &Path) -> anyhow::Result<ArmResult> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let audit =
        examine(file, audit::AuditOptions::default()).with_context(|| format!("auditing {}", path.display()))?;
    let sizes = &audit.tally.sizes;
    Ok(ArmResult {
        sizes: FileSizes {
            text: sizes.text,
            unwind: sizes.eh_frame.saturating_add(sizes.eh_frame_hdr),
            sframe: sizes.sframe,
            stripped: stripped_size(path)?,
        },
        tally: Some(TallySummary::from(&audit.tally)),
        instructions: None,
        quality: None,
    })
}

fn stripped_size(path: &Path) -> anyhow::Result<u64> {
    let stripped = path.with_extension("stripped");
    let status = Command::new("strip").arg("-o").arg(&stripped).arg(path).status().context("starting strip")?;
    anyhow::ensure!(status.success(), "strip: {status}");
    let size = stripped.metadata().context("the stripped file")?.len();
    std::fs::remove_file(&stripped).context("removing the stripped file")?;
    Ok(size)
}

//! The output of `audit --json`.

use super::lists::FpUsage;
use crate::json::value;
use fpprof_analysis::audit::{CodeTally, Histogram, Survey, SurveyMetric};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Version of the format; it increases when a key is removed or changes its meaning.
const FORMAT: u32 = 1;

#[derive(Serialize)]
struct Document<'s> {
    format: u32,
    /// Per cent by metric; `null` if there is nothing to divide by.
    metrics: BTreeMap<&'static str, Option<f64>>,
    /// Packages by their usage of frame pointers.
    packages_by_habit: BTreeMap<&'static str, u64>,
    histogram_of_files: Histogram,
    histogram_of_packages: Histogram,
    /// Files by version of `.sframe`.
    sframe_versions: BTreeMap<String, u64>,
    #[serde(flatten)]
    survey: &'s Survey,
}

/// Writes the whole survey and the figures derived from it.
///
/// # Errors
/// If the writer fails.
pub fn json(survey: &Survey, out: &mut dyn Write) -> io::Result<()> {
    let mut packages_by_habit = BTreeMap::new();
    for package in &survey.packages {
        *packages_by_habit.entry(usage_key(FpUsage::of(&package.tally))).or_default() += 1;
    }
    let document = Document {
        format: FORMAT,
        metrics: metrics(&survey.total),
        packages_by_habit,
        histogram_of_files: Histogram::of(survey.files.iter().map(|file| &file.audit.tally)),
        histogram_of_packages: Histogram::of(survey.packages.iter().map(|package| &package.tally)),
        sframe_versions: survey.sframe_versions().into_iter().map(|(version, n)| (format!("{version:?}"), n)).collect(),
        survey,
    };
    value(&document, out)
}

fn metrics(tally: &CodeTally) -> BTreeMap<&'static str, Option<f64>> {
    [
        ("nonleaf", SurveyMetric::NonLeaf),
        ("functions", SurveyMetric::Functions),
        ("bytes", SurveyMetric::Bytes),
        ("covered", SurveyMetric::Covered),
    ]
    .into_iter()
    .map(|(name, metric)| {
        let (part, whole) = metric.of(tally);
        (name, (whole > 0).then(|| crate::figures::percent(part, whole)))
    })
    .collect()
}

fn usage_key(usage: FpUsage) -> &'static str {
    match usage {
        FpUsage::None => "none",
        FpUsage::Some => "some",
        FpUsage::Mixed => "mixed",
        FpUsage::Framed => "framed",
        FpUsage::Everywhere => "everywhere",
        FpUsage::TooSmall => "too_small",
    }
}

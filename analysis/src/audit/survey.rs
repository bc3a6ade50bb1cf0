//! Sums up many files, by package and in total.

use super::model::{CodeTally, Disassembled, FileAudit, Machine, Refusal, Remark, SframeVersion};
use super::weight::Weighed;
use serde::Serialize;
use std::collections::BTreeMap;

/// Fewest calling functions for which a file's or package's share of frame pointers is computed.
pub(super) const MIN_FUNCTIONS: u64 = 20;

/// Number of intervals in the histogram of shares.
const BINS: usize = 20;

/// The findings in a set of files.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Survey {
    /// Sum of all files.
    pub total: CodeTally,
    /// Audited files, ascending by path. Files with several names (hard links) are counted once.
    pub files: Vec<FileRow>,
    /// Packages with an audited file, ascending by name.
    pub packages: Vec<PackageRow>,
    /// Files examined, ELF or not.
    pub looked_at: u64,
    /// Further names of files already counted (hard links).
    pub other_names: u64,
    /// ELF files not audited, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Static archives; their members are not linked, so they are not audited.
    pub archives: u64,
    /// Files that could not be opened or read, and why. At most a hundred are listed.
    pub unreadable: Vec<String>,
    /// Number of files that could not be opened or read.
    pub n_unreadable: u64,
    /// Results of decoding; `None` unless asked for.
    pub disassembled: Option<Disassembled>,
    /// A recording's samples by location; `None` without a recording.
    pub weighed: Option<Weighed>,
}

/// The most unreadable files that are listed.
const MAX_UNREADABLE: usize = 100;

/// An audited file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileRow {
    /// Its path, as the user would type it.
    pub path: String,
    /// The package that owns it; `None` if there is none, or if packages were not looked up.
    pub package: Option<String>,
    /// The findings.
    #[serde(flatten)]
    pub audit: FileAudit,
}

/// One package.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PackageRow {
    /// Its name.
    pub name: String,
    /// Number of its audited files.
    pub files: u64,
    /// Their sum.
    pub tally: CodeTally,
    /// Its files that look compiled without optimisation.
    pub unoptimised: u64,
    /// Its files that have code but no unwind information.
    pub without_unwind_information: u64,
}

/// The metric a gate checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SurveyMetric {
    /// Calling functions that keep a frame pointer, of all calling functions.
    NonLeaf,
    /// Functions that keep a frame pointer, of all functions.
    Functions,
    /// Bytes where a frame-pointer walk finds the caller, of all bytes covered by rows.
    Bytes,
    /// Bytes covered by rows, of all executable bytes except padding.
    Covered,
}

impl SurveyMetric {
    /// The numerator and denominator.
    #[must_use]
    pub fn of(self, tally: &CodeTally) -> (u64, u64) {
        let (functions, code) = (&tally.functions, &tally.code);
        match self {
            Self::NonLeaf => (functions.non_leaf_framed, functions.non_leaf),
            Self::Functions => (functions.framed, functions.total),
            Self::Bytes => (code.ok, code.judged()),
            Self::Covered => (code.judged(), code.executable.saturating_sub(code.padding)),
        }
    }
}

/// Number of files or packages by their share of framed functions among those that call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// Counts for [0, 5), [5, 10), … [95, 100] per cent.
    pub bins: Vec<u64>,
    /// Those with too few functions.
    pub too_small: u64,
}

impl Histogram {
    /// Counts the given tallies.
    pub fn of<'t>(tallies: impl IntoIterator<Item = &'t CodeTally>) -> Self {
        let mut histogram = Self { bins: vec![0; BINS], too_small: 0 };
        for tally in tallies {
            let (part, whole) = SurveyMetric::NonLeaf.of(tally);
            if whole < MIN_FUNCTIONS {
                histogram.too_small += 1;
                continue;
            }
            let bin = u128::from(part) * BINS as u128 / u128::from(whole);
            let last = BINS - 1;
            if let Some(count) = histogram.bins.get_mut(usize::try_from(bin).unwrap_or(last).min(last)) {
                *count += 1;
            }
        }
        histogram
    }
}

impl Survey {
    /// Adds an audited file.
    pub fn add(&mut self, path: String, package: Option<String>, audit: FileAudit) {
        self.total += audit.tally;
        if let Some(disassembled) = audit.disassembled {
            *self.disassembled.get_or_insert_default() += disassembled;
        }
        self.files.push(FileRow { path, package, audit });
    }

    /// Adds an ELF file that is not audited. One that is damaged counts as unreadable: it may be code that somebody runs.
    pub fn refuse(&mut self, path: &str, refusal: Refusal) {
        if refusal == Refusal::Damaged {
            return self.unreadable(format!("{path}: {refusal}"));
        }
        *self.refused.entry(refusal.to_string()).or_default() += 1;
    }

    /// Adds a file that could not be read.
    pub fn unreadable(&mut self, what: String) {
        self.n_unreadable += 1;
        if self.unreadable.len() < MAX_UNREADABLE {
            self.unreadable.push(what);
        }
    }

    /// Sorts files and packages, so that the order in which they were added does not matter.
    pub fn finish(&mut self) {
        self.files.sort_by(|a, b| a.path.cmp(&b.path));
        self.unreadable.sort();
        let mut packages: BTreeMap<&str, PackageRow> = BTreeMap::new();
        for file in &self.files {
            let Some(name) = &file.package else { continue };
            let row = packages.entry(name).or_insert_with(|| PackageRow {
                name: name.clone(),
                files: 0,
                tally: CodeTally::default(),
                unoptimised: 0,
                without_unwind_information: 0,
            });
            row.files += 1;
            row.tally += file.audit.tally;
            row.unoptimised += u64::from(file.audit.remarks.contains(&Remark::LooksUnoptimised));
            row.without_unwind_information += u64::from(file.audit.remarks.contains(&Remark::NoUnwindInformation));
        }
        self.packages = packages.into_values().collect();
    }

    /// Number of files by version of `.sframe`.
    #[must_use]
    pub fn sframe_versions(&self) -> BTreeMap<SframeVersion, u64> {
        let mut versions = BTreeMap::new();
        for version in self.files.iter().filter_map(|file| file.audit.sframe) {
            *versions.entry(version).or_default() += 1;
        }
        versions
    }

    /// Number of files by architecture.
    #[must_use]
    pub fn machines(&self) -> BTreeMap<Machine, u64> {
        let mut machines = BTreeMap::new();
        for file in &self.files {
            *machines.entry(file.audit.machine).or_default() += 1;
        }
        machines
    }

    /// Files with a remark.
    pub fn with<'s>(&'s self, remark: &'s Remark) -> impl Iterator<Item = &'s FileRow> {
        self.files.iter().filter(move |file| file.audit.remarks.contains(remark))
    }
}

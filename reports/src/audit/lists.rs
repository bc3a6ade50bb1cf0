//! Selects the files and packages to list.

use fpprof_analysis::audit::{CodeTally, FileRow, PackageRow, Remark, Survey, SurveyMetric};

/// Fewest calling functions for a share to count as a package's usage of frame pointers.
const MIN_FUNCTIONS: u64 = 20;

/// Limits on what is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// The most rows in a list; one line counts the rest.
    pub rows: usize,
    /// Whether to list the functions of every file.
    pub functions: bool,
}

/// How a package treats frame pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FpUsage {
    /// Below 5 %.
    None,
    /// 5 to 20 %.
    Some,
    /// 20 to 95 %.
    Mixed,
    /// 95 % or more.
    Framed,
    /// 95 % or more, leaf functions included.
    Everywhere,
    /// Too few functions to judge.
    TooSmall,
}

impl FpUsage {
    /// All variants in display order.
    pub(super) const ALL: [Self; 6] =
        [Self::None, Self::Some, Self::Mixed, Self::Framed, Self::Everywhere, Self::TooSmall];

    /// The variant in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none (below 5 %)",
            Self::Some => "some (5 to 20 %)",
            Self::Mixed => "mixed (20 to 95 %)",
            Self::Framed => "framed (95 % or more)",
            Self::Everywhere => "framed, leaf functions too",
            Self::TooSmall => "too small (fewer than 20 non-leaf functions)",
        }
    }

    /// Classifies a package or file by its tally.
    pub(super) fn of(tally: &CodeTally) -> Self {
        let functions = &tally.functions;
        let (part, whole) = SurveyMetric::NonLeaf.of(tally);
        let at_least =
            |part: u64, whole: u64, percent: u64| u128::from(part) * 100 >= u128::from(whole) * u128::from(percent);
        match () {
            () if whole < MIN_FUNCTIONS => Self::TooSmall,
            () if !at_least(part, whole, 5) => Self::None,
            () if !at_least(part, whole, 20) => Self::Some,
            () if !at_least(part, whole, 95) => Self::Mixed,
            () if functions.leaf >= MIN_FUNCTIONS && at_least(functions.leaf_framed, functions.leaf, 95) => {
                Self::Everywhere
            }
            () => Self::Framed,
        }
    }
}

/// Packages with the given usage of frame pointers, largest code first.
pub(super) fn packages_with(survey: &Survey, usage: FpUsage) -> Vec<&PackageRow> {
    let mut rows: Vec<_> = survey.packages.iter().filter(|row| FpUsage::of(&row.tally) == usage).collect();
    rows.sort_by(|a, b| b.tally.code.executable.cmp(&a.tally.code.executable).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Files that stand out, by kind with a heading, the largest first.
pub(super) fn outliers(survey: &Survey) -> Vec<(&'static str, Vec<&FileRow>)> {
    let by = |select: fn(&FileRow) -> bool, size: fn(&CodeTally) -> u64| {
        let mut rows: Vec<_> = survey.files.iter().filter(|file| select(file)).collect();
        rows.sort_by(|a, b| size(&b.audit.tally).cmp(&size(&a.audit.tally)).then_with(|| a.path.cmp(&b.path)));
        rows
    };
    vec![
        (
            "Probably compiled without optimisation",
            by(|file| file.audit.remarks.contains(&Remark::LooksUnoptimised), |tally| tally.code.executable),
        ),
        (
            "Code without any unwind information",
            by(|file| file.audit.remarks.contains(&Remark::NoUnwindInformation), |tally| tally.code.executable),
        ),
        (
            "Large parts without unwind information (64 kB or more)",
            by(
                |file| {
                    file.audit.tally.code.no_cfi >= 64_000 && !file.audit.remarks.contains(&Remark::NoUnwindInformation)
                },
                |tally| tally.code.no_cfi,
            ),
        ),
        ("Go programs", by(|file| file.audit.go, |tally| tally.code.executable)),
        (
            "Mixed flags within one file",
            by(|file| FpUsage::of(&file.audit.tally) == FpUsage::Mixed, |tally| tally.code.executable),
        ),
        ("Corrupt or unusual", by(is_odd, |tally| tally.code.executable)),
    ]
}

fn is_odd(file: &FileRow) -> bool {
    file.audit.remarks.iter().any(|remark| {
        matches!(remark, Remark::BadEntries(_) | Remark::Overlaps(_) | Remark::SectionLeftOut(_) | Remark::CodeCut)
    })
}

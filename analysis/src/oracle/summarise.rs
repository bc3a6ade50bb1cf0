//! Sums up counts by instruction to functions, files and compilers.

use super::model::{Group, JudgedStack, Mismatch, StrategyVerdicts, Verdicts, Verification, VerifiedRun};
use super::producers::Producers;
use super::tally::{Classes, Shown, Site, StoredDisagreement, Tally};
use super::verdict::Verdict;
use crate::address_space::FileIx;
use crate::modules::ModuleTable;
use crate::shown_frame::ShownFrame;
use crate::symbols::{Detail, Symbolizer};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// Name of generated code.
const NO_FILE: &str = "[generated code]";

/// Names all counts of a run. `modules` are those of its whole history.
#[must_use]
pub fn summarise(run: VerifiedRun, tally: &Tally, modules: &ModuleTable<'_>, n_threads: NonZeroUsize) -> Verification {
    let wanted = wanted(tally);
    let symbols = Symbolizer::new(modules, &wanted, None, Detail::Inlines, n_threads);
    let names = Namer { modules, symbols };
    let producers: BTreeMap<FileIx, Producers> =
        wanted.keys().map(|&file| (file, Producers::of(modules, file))).collect();
    let n = tally.strategies.len();
    let mut functions = Groups::new(n);
    let mut files = Groups::new(n);
    let mut compilers = Groups::new(n);
    for (counts, is_leaf) in [(&tally.sites, true), (&tally.culprits, false)] {
        for (&site, classes) in counts {
            let file = names.path(site);
            functions.add((names.function(site), names.base_name(site)), classes, is_leaf);
            files.add((file, String::new()), classes, is_leaf);
            let producer = site.file.and_then(|file| producers.get(&file)?.at(site.svma));
            let compiler = producer.unwrap_or(if site.file.is_none() { NO_FILE } else { "[unknown]" });
            compilers.add((compiler.to_owned(), String::new()), classes, is_leaf);
        }
    }
    let mut warnings = names.symbols.warnings().to_vec();
    warnings.extend(modules.warnings());
    if tally.n_over_limit > 0 {
        warnings.push(format!(
            "{} stacks are counted in the totals only: too many different instructions",
            tally.n_over_limit
        ));
    }
    Verification {
        run,
        checked: tally.checked,
        partly_judged: tally.partly_judged,
        excluded: tally.unknown.iter().map(|(why, &n)| (why.name().to_owned(), n)).collect(),
        strategies: (0..n).filter_map(|index| strategy(tally, index)).collect(),
        kernel_walks: (tally.walks.n_walks() > 0).then(|| tally.walks.clone()),
        functions: functions.finish(),
        files: files.finish(),
        compilers: compilers.finish(),
        disagreements: tally.kept.iter().map(|kept| disagreement(kept, tally, &names)).collect(),
        warnings,
    }
}

/// Every address that needs a name, by file.
fn wanted(tally: &Tally) -> BTreeMap<FileIx, Vec<u64>> {
    let mut wanted: BTreeMap<FileIx, BTreeSet<u64>> = BTreeMap::new();
    let mut want = |site: Site| {
        if let Some(file) = site.file {
            wanted.entry(file).or_default().insert(site.svma);
        }
    };
    tally.sites.keys().chain(tally.culprits.keys()).for_each(|&site| want(site));
    for kept in &tally.kept {
        let frames = kept.stacks.iter().flat_map(|(_, frames)| frames).chain(&kept.truth);
        frames.for_each(|frame| want(frame.site));
    }
    wanted.into_iter().map(|(file, svmas)| (file, svmas.into_iter().collect())).collect()
}

fn strategy(tally: &Tally, index: usize) -> Option<StrategyVerdicts> {
    let mut verdicts = StrategyVerdicts {
        name: tally.strategies.get(index)?.to_string(),
        exact: 0,
        roots_missed: *tally.roots_missed.get(index)?,
        truncated: BTreeMap::new(),
        flagged: BTreeMap::new(),
        wrong: BTreeMap::new(),
        leaf_skips: *tally.leaf_skips.get(index)?,
    };
    for (verdict, &n) in tally.totals.get(index)? {
        let class = match verdict {
            Verdict::Exact => {
                verdicts.exact = n;
                continue;
            }
            Verdict::Truncated(_) => &mut verdicts.truncated,
            Verdict::Flagged(_) => &mut verdicts.flagged,
            Verdict::Wrong(_) => &mut verdicts.wrong,
        };
        let count = class.entry(verdict.name().to_owned()).or_default();
        *count = count.saturating_add(n);
    }
    Some(verdicts)
}

fn disagreement(kept: &StoredDisagreement, tally: &Tally, names: &Namer<'_>) -> Mismatch {
    let name = |index: usize| tally.strategies.get(index).map(ToString::to_string).unwrap_or_default();
    let stacks = kept.stacks.iter().enumerate().map(|(index, (verdict, frames))| JudgedStack {
        strategy: name(index),
        class: verdict.class().to_owned(),
        reason: verdict.name().to_owned(),
        frames: frames.iter().map(|frame| names.frame(frame)).collect(),
    });
    Mismatch {
        instruction: kept.instruction,
        strategy: name(kept.strategy),
        place: names.place(kept.site),
        culprit: names.place(kept.culprit),
        culprit_svma: kept.culprit.svma,
        culprit_file: names.path(kept.culprit),
        row: kept.row.clone(),
        truth: kept.truth.iter().map(|frame| names.frame(frame)).collect(),
        stacks: stacks.collect(),
    }
}

struct Namer<'a> {
    modules: &'a ModuleTable<'a>,
    symbols: Symbolizer,
}

impl Namer<'_> {
    /// The function itself, not functions inlined into it: only it has a frame.
    fn symbol(&self, site: Site) -> Option<String> {
        self.symbols.function(site.file?, site.svma).map(str::to_owned)
    }

    fn function(&self, site: Site) -> String {
        self.symbol(site).unwrap_or_else(|| match site.file {
            // All unnamed code of one file shares a row of the table.
            Some(_) => format!("[{}]", self.base_name(site)),
            None => NO_FILE.to_owned(),
        })
    }

    fn place(&self, site: Site) -> String {
        let name = self.symbol(site).map(|name| format!("{name} ")).unwrap_or_default();
        format!("{name}{}+{:#x}", self.base_name(site), site.svma)
    }

    fn path(&self, site: Site) -> String {
        let file = site.file.and_then(|file| self.modules.file(file));
        file.map_or_else(|| NO_FILE.to_owned(), |file| String::from_utf8_lossy(&file.path).into_owned())
    }

    fn base_name(&self, site: Site) -> String {
        let file = site.file.and_then(|file| self.modules.file(file));
        file.map_or_else(|| NO_FILE.to_owned(), |file| file.base_name())
    }

    fn frame(&self, shown: &Shown) -> ShownFrame {
        ShownFrame { address: shown.address, cfa: shown.cfa, name: self.place(shown.site) }
    }
}

/// Counts by name.
struct Groups {
    n_strategies: usize,
    groups: FxHashMap<(String, String), Group>,
}

impl Groups {
    fn new(n_strategies: usize) -> Self {
        Self { n_strategies, groups: FxHashMap::default() }
    }

    fn add(&mut self, name: (String, String), classes: &[Classes], is_leaf: bool) {
        let n = self.n_strategies;
        let group = self.groups.entry(name).or_insert_with_key(|(name, file)| Group {
            name: name.clone(),
            file: file.clone(),
            checked: 0,
            leaf: vec![Verdicts::default(); n],
            broke: vec![Verdicts::default(); n],
        });
        if is_leaf {
            let checked = classes.first().map_or(0, |classes| classes.iter().sum());
            group.checked = group.checked.saturating_add(checked);
        }
        let into = if is_leaf { &mut group.leaf } else { &mut group.broke };
        for (into, &[exact, truncated, flagged, wrong]) in into.iter_mut().zip(classes) {
            into.exact = into.exact.saturating_add(exact);
            into.truncated = into.truncated.saturating_add(truncated);
            into.flagged = into.flagged.saturating_add(flagged);
            into.wrong = into.wrong.saturating_add(wrong);
        }
    }

    fn finish(self) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        groups.sort_unstable_by(|a, b| {
            b.checked.cmp(&a.checked).then_with(|| (&a.name, &a.file).cmp(&(&b.name, &b.file)))
        });
        groups
    }
}

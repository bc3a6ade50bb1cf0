//! Makes a report, with names, on the disagreement of two strategies in a recording.

use super::collector::{Caller, Collector, ExampleStack, ReasonKey, Split, StoredExample};
use super::evidence::{CallChecker, Evidence, EvidenceVerdict};
use super::model::{Disagreement, Example, Reason, ShownStack};
use crate::Error;
use crate::accuracy::{Agreement, Blame, Relation};
use crate::address_space::FileIx;
use crate::analyse::check_filter;
use crate::filter::Filter;
use crate::fold::Where;
use crate::modules::{ModuleTable, Resolver};
use crate::replay::{Input, Recorded};
use crate::shown_frame::ShownFrame;
use crate::strategy::Strategy;
use crate::symbols::{Detail, Symbolizer};
use fpprof_recording::Recording;
use fpprof_unwind::{ModuleId, Modules as _, StopReason, row_at};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;

/// The row that a frame-pointer walk assumes for every instruction of x86-64.
const FRAME_POINTER_ROW: &str = "CFA=rbp+16, rbp=c-16, ra=c-8";

/// What to compare, and how.
#[derive(Debug, Clone)]
pub struct AgreementOptions<'a> {
    /// The reference strategy.
    pub reference: Strategy,
    /// The strategy compared with it.
    pub other: Strategy,
    /// The most examples for each reason, each at a different place.
    pub max_examples: usize,
    /// The event whose samples are compared, as in [`crate::Options::event`].
    pub event: Option<&'a str>,
    /// Selects among those samples.
    pub filter: Filter,
    /// Finds the files of modules.
    pub resolver: &'a dyn Resolver,
    /// Limits and options of strategies that use call frame information.
    pub unwinding: fpprof_unwind::Options,
    /// Number of threads; the result does not depend on it.
    pub n_threads: NonZeroUsize,
}

/// Compares two strategies over every sample of a recording.
///
/// # Errors
/// [`Error::Strategy`] for a strategy that the recording does not support, [`Error::StrategyTwice`],
/// [`Error::Recording`] if the file cannot be read, [`Error::NoneMatch`].
pub fn disagreement(
    recording: &mut Recording<dyn Input + '_>,
    options: &AgreementOptions<'_>,
) -> Result<Disagreement, Error> {
    let strategies = [options.reference, options.other];
    if options.reference == options.other {
        return Err(Error::StrategyTwice(options.other.to_string()));
    }
    strategies.iter().try_for_each(|strategy| strategy.check(recording.meta()))?;
    let recorded = Recorded::read(recording, options.event)?.only(options.filter.clone());
    let modules = recorded.modules(options.resolver);
    let replay = recorded.replay(&modules, &strategies, options.unwinding);
    let replayed = replay.run(recording, options.n_threads, || Collector::new(options.max_examples))?;
    let collected = &replayed.collected;
    check_filter(&recorded.selection, collected.shown, &recorded.timeline)?;
    let mut report = Report::new(collected, &modules, options).make();
    report.warnings.splice(0..0, recording.damage().lines());
    if !options.filter.is_all() {
        report.warnings.push(format!("only the samples of {} are compared", options.filter));
    }
    report.warnings.extend(replayed.malformed.iter().map(ToString::to_string));
    report.warnings.extend(replayed.refused.iter().map(|(words, n)| format!("{n} samples: {words}")));
    report.warnings.extend(modules.warnings());
    Ok(report)
}

/// Turns the counts into a report.
struct Report<'a> {
    collected: &'a Collector,
    modules: &'a ModuleTable<'a>,
    options: &'a AgreementOptions<'a>,
    symbols: Symbolizer,
    /// The evidence for both callers of each split.
    evidence: FxHashMap<Split, (Evidence, Evidence)>,
}

impl<'a> Report<'a> {
    fn new(collected: &'a Collector, modules: &'a ModuleTable<'a>, options: &'a AgreementOptions<'a>) -> Self {
        let wanted = wanted(collected);
        wanted.keys().for_each(|&file| modules.mark_used(file));
        let symbols = Symbolizer::new(modules, &wanted, None, Detail::Inlines, options.n_threads);
        let mut checker = CallChecker::new(modules);
        let mut evidence = FxHashMap::default();
        for &(_, split) in collected.splits.keys() {
            evidence.entry(split).or_insert_with(|| {
                let callee = entry(modules, split.after);
                let mut look = |caller: Option<Caller>| evidence_of(&mut checker, caller, callee);
                (look(split.reference), look(split.other))
            });
        }
        Self { collected, modules, options, symbols, evidence }
    }

    fn make(&self) -> Disagreement {
        let mut agreement = Agreement {
            reference: self.options.reference.to_string(),
            other: self.options.other.to_string(),
            samples: self.collected.samples,
            frames: self.collected.frames,
            ..Agreement::default()
        };
        for (&(relation, reference, other), &n) in &self.collected.reasons {
            let is_same = relation == Relation::Same;
            let is_complete = [reference, other].iter().all(|stop| matches!(stop, StopReason::Complete(_)));
            count(&mut agreement.relations, relation, n);
            for (total, holds) in [
                (&mut agreement.same, is_same),
                (&mut agreement.both_complete, is_complete),
                (&mut agreement.both_complete_same, is_same && is_complete),
            ] {
                *total = total.saturating_add(if holds { n } else { 0 });
            }
        }
        let mut report = Disagreement::default();
        let mut verdicts: FxHashMap<ReasonKey, BTreeMap<EvidenceVerdict, u64>> = FxHashMap::default();
        let mut blame = Blame::default();
        for (&(reason, split), &n) in &self.collected.splits {
            let verdict = self.verdict(split);
            count(&mut report.verdicts, verdict, n);
            count(verdicts.entry(reason).or_default(), verdict, n);
            let (name, module) = self.function(split.after);
            blame.add(name, module, reason.0, n);
        }
        (agreement.functions, agreement.modules) = blame.ranked();
        report.agreement = agreement;
        report.reasons = self.reasons(&mut verdicts);
        report.warnings = self.symbols.warnings().to_vec();
        report
    }

    fn reasons(&self, verdicts: &mut FxHashMap<ReasonKey, BTreeMap<EvidenceVerdict, u64>>) -> Vec<Reason> {
        let mut sorted: Vec<(&ReasonKey, &u64)> = self.collected.reasons.iter().collect();
        sorted.sort_unstable_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let reason = |(&key, &samples): (&ReasonKey, &u64)| Reason {
            relation: key.0,
            reference_end: end(key.1),
            other_end: end(key.2),
            samples,
            verdicts: verdicts.remove(&key).unwrap_or_default(),
            examples: self.examples(key),
        };
        sorted.into_iter().map(reason).collect()
    }

    fn examples(&self, reason: ReasonKey) -> Vec<Example> {
        let kept = self.collected.kept.get(&reason);
        kept.into_iter().flat_map(BTreeMap::values).map(|kept| self.example(kept)).collect()
    }

    fn example(&self, kept: &StoredExample) -> Example {
        let (time_ns, _, tid) = kept.name;
        let (reference_evidence, other_evidence) = self.evidence(kept.split);
        Example {
            time_ns,
            pid: kept.pid,
            tid,
            frame: kept.frame,
            place: self.place(kept.split.after),
            svma: address(kept.split.after),
            row: self.row(kept.split.after),
            other_row: (self.options.other == Strategy::Fp).then(|| FRAME_POINTER_ROW.to_owned()),
            verdict: self.verdict(kept.split),
            reference_evidence,
            other_evidence,
            reference: self.stack(&kept.reference),
            other: self.stack(&kept.other),
        }
    }

    fn stack(&self, kept: &ExampleStack) -> ShownStack {
        let shown = kept.frames.iter().map(|(frame, place)| ShownFrame {
            address: frame.address,
            cfa: (frame.cfa != 0).then_some(frame.cfa),
            name: self.place(*place),
        });
        ShownStack { end: end(kept.stop), n_before: kept.n_before, frames: shown.collect(), n_more: kept.n_more }
    }

    fn evidence(&self, split: Split) -> (Evidence, Evidence) {
        self.evidence.get(&split).copied().unwrap_or((Evidence::Unknown, Evidence::Unknown))
    }

    fn verdict(&self, split: Split) -> EvidenceVerdict {
        let (reference, other) = self.evidence(split);
        match (split.reference, split.other) {
            // One strategy has no caller, and the other's has called this very function.
            (Some(_), None) if reference == Evidence::CallOfCallee => EvidenceVerdict::Reference,
            (None, Some(_)) if other == Evidence::CallOfCallee => EvidenceVerdict::Other,
            _ => EvidenceVerdict::weigh(reference, other),
        }
    }

    fn row(&self, place: Where) -> String {
        let Where::Module(file, svma) = place else { return "no module".to_owned() };
        match self.modules.module(ModuleId(file.0)) {
            Ok(module) => row_at(module, svma).map_or_else(|error| error.to_string(), |row| row.to_string()),
            Err(reason) => reason.name().to_owned(),
        }
    }

    fn symbol(&self, place: Where) -> Option<&str> {
        let Where::Module(file, svma) = place else { return None };
        self.symbols.function(file, svma)
    }

    fn module(&self, place: Where) -> String {
        match place {
            Where::Module(file, _) => self.modules.file(file).map_or_else(String::new, |file| file.base_name()),
            Where::Unmapped(_) | Where::Unnamed(_) | Where::Compiled(..) => "[no module]".to_owned(),
            Where::Kernel(_) => "[kernel]".to_owned(),
        }
    }

    fn function(&self, place: Where) -> (String, String) {
        let module = self.module(place);
        // All unnamed code of one module shares a row of the table.
        let name = self.symbol(place).map(str::to_owned).unwrap_or_else(|| "[no symbol]".to_owned());
        (name, module)
    }

    fn place(&self, place: Where) -> String {
        let name = self.symbol(place).map(|name| format!("{name} ")).unwrap_or_default();
        format!("{name}{}+{:#x}", self.module(place), address(place))
    }
}

/// Every place that needs a name, by file, in ascending order.
fn wanted(collected: &Collector) -> BTreeMap<FileIx, Vec<u64>> {
    let mut wanted: BTreeMap<FileIx, BTreeSet<u64>> = BTreeMap::new();
    let places = collected.splits.keys().map(|(_, split)| split.after);
    let kept = collected.kept.values().flat_map(BTreeMap::values);
    let shown = kept.flat_map(|kept| kept.reference.frames.iter().chain(&kept.other.frames)).map(|&(_, place)| place);
    for place in places.chain(shown) {
        if let Where::Module(file, svma) = place {
            wanted.entry(file).or_default().insert(svma);
        }
    }
    wanted.into_iter().map(|(file, svmas)| (file, svmas.into_iter().collect())).collect()
}

/// The file and first SVMA of the function at a place, according to its call frame information.
fn entry(modules: &ModuleTable<'_>, place: Where) -> Option<(FileIx, u64)> {
    let Where::Module(file, svma) = place else { return None };
    let module = modules.module(ModuleId(file.0)).ok()?;
    Some((file, row_at(module, svma).ok()?.entry_range.start))
}

fn evidence_of(checker: &mut CallChecker<'_>, caller: Option<Caller>, callee: Option<(FileIx, u64)>) -> Evidence {
    match caller {
        Some(Caller { place: Where::Module(file, lookup), is_instruction: false }) => {
            let callee = callee.filter(|&(callee_file, _)| callee_file == file).map(|(_, svma)| svma);
            // The byte before a return address is what is looked up.
            checker.before(file, lookup.wrapping_add(1), callee)
        }
        _ => Evidence::Unknown,
    }
}

fn end(stop: StopReason) -> String {
    format!("{} {}", stop.class(), stop.name())
}

fn address(place: Where) -> u64 {
    match place {
        Where::Module(_, address)
        | Where::Unmapped(address)
        | Where::Unnamed(address)
        | Where::Compiled(_, address)
        | Where::Kernel(address) => address,
    }
}

fn count<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, n: u64) {
    let total = counts.entry(key).or_default();
    *total = total.saturating_add(n);
}

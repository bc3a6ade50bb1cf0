//! Compares every sample of a recording with the true stack.

use crate::table::Counts;
use fpprof_analysis::accuracy::{Comparison, Relation};
use fpprof_analysis::address_space::FileIx;
use fpprof_analysis::fold::{Where, locate};
use fpprof_analysis::modules::{FileModules, ModuleTable};
use fpprof_analysis::replay::{Collect, Recorded, Seen};
use fpprof_analysis::strategy::Strategy;
use fpprof_analysis::symbols::{Detail, Symbolizer};
use fpprof_recording::Recording;
use fpprof_unwind::{FrameSource, StackRef, StopReason};
use fpprof_workloads::{Fit, Program};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroUsize;
use std::path::Path;

/// Functions above `main` or a thread's first function, which start a program or a thread.
const STARTS: &[&str] = &[
    "",
    "_start",
    "_start_c",
    "__libc_start_main",
    "__libc_start_call_main",
    "libc_start_main_stage2",
    "start_thread",
    "clone",
    "clone3",
    "main",
    // Between `main` and its caller, if `main` runs on a new segment of a split stack.
    "__morestack",
];
/// Prefixes of such functions whose names differ between versions.
const START_PREFIXES: &[&str] =
    &["__libc_start_main", "__clone", "std::", "core::", "alloc::", "<std::", "<core::", "<alloc::", "__rust"];

/// A strategy's stack of a sample, as far as it is compared.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Stack {
    places: Vec<Where>,
    is_complete: bool,
    is_broken: bool,
    is_leaf_skip_suspect: bool,
    /// Number of frames before the first one found by a fallback or heuristic.
    n_certain: usize,
}

impl Stack {
    fn new(stack: StackRef<'_>, seen: &Seen<'_>, strategy: Strategy) -> Self {
        let is_own = strategy == Strategy::Fp;
        let is_certain = |frame: &&fpprof_unwind::Frame| {
            let is_by_fp = frame.flags.fp_fallback || frame.flags.fp_in_jit;
            frame.source != FrameSource::Heuristic && (is_own || !is_by_fp)
        };
        Self {
            places: stack
                .frames
                .iter()
                .map(|frame| locate(frame, seen.space, seen.modules, seen.sample.time_ns))
                .collect(),
            is_complete: matches!(stack.stop, StopReason::Complete(_)),
            is_broken: matches!(stack.stop, StopReason::Broken(_)),
            is_leaf_skip_suspect: stack.frames.iter().any(|frame| frame.flags.leaf_skip_suspect),
            n_certain: stack.frames.iter().take_while(is_certain).count(),
        }
    }
}

/// All strategies' stacks of a sample, and whether frame pointers differ from call frame information by more than an
/// early end.
type Key = (Vec<Stack>, bool);

/// Distinct results with their numbers of samples.
#[derive(Debug, Default)]
struct Collector {
    strategies: Vec<Strategy>,
    outcomes: HashMap<Key, u64>,
}

impl Collect for Collector {
    fn add(&mut self, seen: &Seen<'_>) {
        if seen.stacks.iter().flatten().all(|stack| stack.frames.is_empty()) {
            return;
        }
        let stacks = seen.stacks.iter().flatten().zip(&self.strategies);
        let stacks = stacks.map(|(stack, strategy)| Stack::new(*stack, seen, *strategy)).collect();
        let at = |wanted: Strategy| {
            let index = self.strategies.iter().position(|strategy| *strategy == wanted);
            index.and_then(|index| seen.stack(index))
        };
        let reference = at(Strategy::Dwarf).or(at(Strategy::Cfi)).expect("one of them is always asked for");
        let relation = Comparison::new(reference, at(Strategy::Fp).expect("always asked for")).relation;
        let is_suspected =
            matches!(relation, Relation::WrongFrame | Relation::LeafCallerMissing | Relation::FrameMissing);
        *self.outcomes.entry((stacks, is_suspected)).or_default() += 1;
    }

    fn merge(&mut self, other: Self) {
        for (key, n) in other.outcomes {
            *self.outcomes.entry(key).or_default() += n;
        }
    }
}

/// The verdict on a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Has every frame from the leaf to `main` or the thread's first function, and only start code above.
    Exact,
    /// Right as far as it goes, and truncated.
    Truncated,
    /// Wrong, but flagged.
    Flagged,
    /// Wrong without a flag.
    Wrong,
}

/// The verdict on a stack by the names of its frames, leaf first; `None` if the sample belongs to no chain.
fn verdict(program: &Program, stack: &Stack, names: &[&str]) -> Option<Verdict> {
    let leaf = *names.first()?;
    let chains = program.chains.iter().filter(|chain| chain.has_leaf(leaf) != Some(false));
    let fits: Vec<Fit> = chains.map(|chain| chain.fit(names)).collect();
    if fits.is_empty() {
        return None;
    }
    let is_start = |name: &&str| STARTS.contains(name) || START_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let is_exact = |fit: &Fit| matches!(fit, Fit::Whole(end) if names[*end..].iter().all(is_start));
    let is_prefix = fits.iter().any(|fit| matches!(fit, Fit::Prefix | Fit::Whole(_)));
    let is_leaf_skip = stack.is_leaf_skip_suspect && fits.contains(&Fit::CallerOfLeafMissing);
    Some(if fits.iter().any(is_exact) {
        Verdict::Exact
    } else if is_prefix && fits.contains(&Fit::Prefix) && !stack.is_complete {
        Verdict::Truncated
    } else if stack.is_broken || is_leaf_skip || stack.n_certain < names.len() {
        Verdict::Flagged
    } else {
        Verdict::Wrong
    })
}

/// Judges every sample of a recording of `program` under every strategy.
pub(crate) fn judge(program: &Program, file: &Path, strategies: &[Strategy]) -> Counts {
    let reader = BufReader::new(File::open(file).expect("the recording is there"));
    let mut recording = Recording::open(reader).expect("it is one");
    let recorded = Recorded::read(&mut recording, None).expect("it is whole");
    let resolver = FileModules::new();
    let modules = recorded.modules(&resolver);
    let replay = recorded.replay(&modules, strategies, fpprof_unwind::Options::default());
    let make = || Collector { strategies: strategies.to_vec(), outcomes: HashMap::new() };
    let replayed = replay.run(&mut recording, NonZeroUsize::MIN, make).expect("it is whole");
    assert!(replayed.malformed.is_empty() && replayed.refused.is_empty(), "{}: {:?}", program.name, replayed.refused);
    let outcomes = replayed.collected.outcomes;
    let names = Names::new(&outcomes, &modules);
    let mut counts = Counts::new(strategies.len(), program.is_described);
    for ((stacks, is_suspected), n) in &outcomes {
        count(program, stacks, *is_suspected, *n, &names, &mut counts);
    }
    counts
}

fn count(program: &Program, stacks: &[Stack], is_suspected: bool, n: u64, names: &Names, counts: &mut Counts) {
    let verdicts: Vec<Option<Verdict>> = stacks.iter().map(|stack| verdict(program, stack, &names.of(stack))).collect();
    let leaf = stacks.iter().find_map(|stack| names.of(stack).first().copied()).unwrap_or("");
    // If the leaf does not identify the chain, a sample belongs to the program and not to its start code only if some
    // strategy finds a chain.
    let is_leaf_of_chain = program.chains.iter().any(|chain| chain.has_leaf(leaf) == Some(true));
    if !is_leaf_of_chain && !verdicts.contains(&Some(Verdict::Exact)) {
        counts.n_outside += n;
        return;
    }
    let is_known = program.chains.iter().all(fpprof_workloads::Chain::is_known_throughout);
    counts.judge(&verdicts, is_known.then_some(is_suspected), n);
}

/// The function names of frames.
struct Names(HashMap<Where, String>);

impl Names {
    fn new(outcomes: &HashMap<Key, u64>, modules: &ModuleTable<'_>) -> Self {
        let places: BTreeSet<Where> =
            outcomes.keys().flat_map(|(stacks, _)| stacks).flat_map(|stack| stack.places.iter().copied()).collect();
        let mut wanted: BTreeMap<FileIx, Vec<u64>> = BTreeMap::new();
        for place in &places {
            if let Where::Module(file, svma) = place {
                wanted.entry(*file).or_default().push(*svma);
            }
        }
        let symbols = Symbolizer::new(modules, &wanted, None, Detail::Inlines, NonZeroUsize::MIN);
        let name = |place: Where| match place {
            Where::Module(file, svma) => symbols.function(file, svma).map(str::to_owned),
            Where::Unmapped(_) | Where::Unnamed(_) | Where::Compiled(..) | Where::Kernel(_) => None,
        };
        Self(places.into_iter().map(|place| (place, name(place).unwrap_or_default())).collect())
    }

    fn of(&self, stack: &Stack) -> Vec<&str> {
        stack.places.iter().map(|place| self.0[place].as_str()).collect()
    }
}

/// Check that a wrong stack, a flagged one, a truncated one and start code are distinguished.
#[test]
fn verdicts_are_what_stacks_deserve() {
    let program = fpprof_workloads::programs().iter().find(|program| program.name == "leaf").expect("it is there");
    let stack = |is_complete, is_leaf_skip_suspect| Stack {
        places: Vec::new(),
        is_complete,
        is_broken: false,
        is_leaf_skip_suspect,
        n_certain: 9,
    };
    let (complete, cut) = (stack(true, false), stack(false, false));
    let judge = |stack: &Stack, names: &[&str]| verdict(program, stack, names);
    assert_eq!(judge(&complete, &["burn", "mid", "outer", "main", "_start"]), Some(Verdict::Exact));
    assert_eq!(judge(&cut, &["burn", "mid", "outer", "main"]), Some(Verdict::Exact));
    assert_eq!(judge(&complete, &["burn", "mid", "outer", "main", "burn"]), Some(Verdict::Wrong));
    assert_eq!(judge(&cut, &["burn", "mid"]), Some(Verdict::Truncated));
    assert_eq!(judge(&complete, &["burn", "mid"]), Some(Verdict::Wrong));
    assert_eq!(judge(&stack(true, true), &["burn", "outer", "main"]), Some(Verdict::Flagged));
    assert_eq!(judge(&complete, &["burn", "outer", "main"]), Some(Verdict::Wrong));
    assert_eq!(judge(&stack(true, true), &["burn", "main"]), Some(Verdict::Wrong));
    let guessed = Stack { n_certain: 1, ..stack(true, false) };
    assert_eq!(judge(&guessed, &["burn", "main"]), Some(Verdict::Flagged));
    assert_eq!(judge(&complete, &["main"]), None, "another leaf is another sample");
}

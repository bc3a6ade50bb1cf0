//! Makes the models of a recording.

use crate::Error;
use crate::accuracy::{AgreementCounter, Around, ChunkSizeCounter, ChunkSizes, NamedChunkSizes, chunk_needs};
use crate::address_space::{MappedFile, Timeline};
use crate::detail::{self, OverTimeCounter, PairCounter, pair_of, paired_stacks};
use crate::events::Selection;
use crate::filter::{Filter, TimeRange};
use crate::fold::{Folder, Labels, WithoutCall, fold, name_roots, wanted};
use crate::folded::Folded;
use crate::hottest::hottest;
use crate::listed::Listed;
use crate::modules::Resolver;
use crate::profile::{Profile, Profiles};
use crate::quality::QualityCounter;
use crate::replay::{Collect, Input, Recorded, Replay, Seen};
use crate::strategy::Strategy;
use crate::summarise::{lost_in_the_end, summarise};
use crate::summary::Summary;
use crate::symbols::{Detail, KernelMissing, KernelSymbols, Symbolizer, kernel_symbols};
use crate::totals::Totals;
use fpprof_recording::Recording;
use fpprof_recording::model::{Collector, Meta, Sample};
use fpprof_unwind::Fallback;
use stacks::Stacks;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Functions in [`Summary::hottest`].
const MAX_HOTTEST: usize = 100;

/// What to compute from a recording, and how.
#[derive(Debug)]
pub struct Options<'a> {
    /// Strategies to unwind with; if empty, [`Strategy::defaults`].
    pub strategies: Vec<Strategy>,
    /// The event whose samples are analysed; by default those that [`Selection::new`](crate::events::Selection::new)
    /// selects.
    pub event: Option<String>,
    /// Selects among those samples; the balance covers all.
    pub filter: Filter,
    /// Finds the files of modules.
    pub resolver: &'a dyn Resolver,
    /// The recording was made on this machine: symbols of the running kernel may be right, if it has not changed.
    pub is_this_machine: bool,
    /// Detail of an address's label.
    pub detail: Detail,
    /// Also compute the model of the HTML page ([`Analysis::detail`]).
    pub page: bool,
    /// Also compute profiles ([`Analysis::profiles`]).
    pub profiles: Profiles,
    /// Open every file that a sampled process had mapped, also those that no frame is in.
    pub all_files: bool,
    /// Limits and options of strategies that use call frame information.
    pub unwinding: fpprof_unwind::Options,
    /// Number of threads; the result does not depend on it.
    pub n_threads: NonZeroUsize,
}

impl<'a> Options<'a> {
    /// Default strategies, all cores, and the kernel of this machine.
    #[must_use]
    pub fn new(resolver: &'a dyn Resolver) -> Self {
        let n_threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self {
            strategies: Vec::new(),
            event: None,
            filter: Filter::default(),
            resolver,
            is_this_machine: true,
            detail: Detail::default(),
            page: false,
            profiles: Profiles::None,
            all_files: false,
            unwinding: fpprof_unwind::Options { fallback: Fallback::Jit, ..fpprof_unwind::Options::default() },
            n_threads,
        }
    }
}

/// The models of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// Balance, volume, quality, cost, hottest functions.
    pub summary: Summary,
    /// Folded stacks by the names of the strategies.
    pub folded: BTreeMap<String, Folded>,
    /// The strategy shown if none is selected: `dwarf` if it was asked for or is a default, else the first; where some
    /// stacks only are copied, `fp` before `dwarf`, since it has all samples.
    pub default_strategy: String,
    /// What other chunk sizes would have given, over all processes and for each name, most samples first; if `dwarf`
    /// was asked for.
    pub chunk_sizes: Option<(ChunkSizes, Vec<NamedChunkSizes>)>,
    /// The samples by thread, as selected by [`Options::profiles`]; in the order of the strategies.
    pub profiles: Vec<Profile>,
    /// The stacks of two strategies side by side, and the recording over time; if [`Options::page`] is set.
    pub detail: Option<detail::Details>,
}

/// Unwinds all samples of a recording under all requested strategies, symbolises and folds the stacks, and sums up.
///
/// # Errors
/// [`Error::Strategy`] for a strategy that the recording does not support, [`Error::StrategyTwice`],
/// [`Error::Recording`] if the file cannot be read. Damage of the file, missing modules and broken stacks are not
/// errors but part of the result.
pub fn analyse(recording: &mut Recording<dyn Input + '_>, options: &Options<'_>) -> Result<Analysis, Error> {
    let strategies = checked_strategies(recording.meta(), options)?;
    let names: Vec<String> = strategies.iter().map(Strategy::to_string).collect();
    // Otherwise totals and shares would count samples that have no stack under any of the strategies.
    let copied = recording.meta().mode.copies_some() && !strategies.contains(&Strategy::Fp);
    let filter = Filter { copied, ..options.filter.clone() };
    let recorded = Recorded::read(recording, options.event.as_deref())?.only(filter);
    let modules = recorded.modules(options.resolver);
    let Recorded { meta, timeline, selection } = &recorded;
    let strategies = strategies.as_slice();
    let replay = recorded.replay(&modules, strategies, options.unwinding);
    let full = strategies.iter().position(|&strategy| strategy == Strategy::Dwarf);
    let pair = pair_of(strategies);
    let default_strategy = default_strategy(meta, &names);
    let default = names.iter().position(|name| *name == default_strategy).unwrap_or(0);
    let listed = &Listed::read(recording, &recorded)?;
    let replayed = replay.run(recording, options.n_threads, || Collected {
        totals: Totals::new(meta),
        stacks: Stacks::new(listed, options.profiles.rows(strategies.len(), default)),
        quality: QualityCounter::new(strategies.len(), listed),
        agreement: AgreementCounter::new(strategies),
        chunk_sizes: full.map(|full| ChunkSizeCounter::new(full, timeline)),
        pairs: options.page.then(|| PairCounter::new(pair, listed)),
        over_time: options.page.then(|| OverTimeCounter::new(pair, meta.start_ns, listed)),
        all_files: options.all_files,
    })?;
    let Collected { totals, stacks, quality, agreement, chunk_sizes, pairs, over_time, .. } = replayed.collected;
    let folder = &stacks.folder;

    check_filter(selection, totals.shown, timeline)?;
    let symbols = symbolizer(folder, &replay, meta, options);
    let without_call = WithoutCall::new(folder, &modules);
    let labels = Labels::new(folder, &modules, &symbols, &without_call);
    let mut folded = fold(folder, &labels, timeline, selection.unit(), strategies.len());
    folded.iter_mut().for_each(name_roots);
    let folded: BTreeMap<String, Folded> = names.iter().cloned().zip(folded).collect();

    let mut summary = summarise(recording, &totals, selection);
    summary.strategies = quality.total(&names);
    summary.no_call_before = (0..).zip(&names).map(|(n, name)| (name.clone(), without_call.samples(n))).collect();
    summary.no_call_before.retain(|_, samples| *samples > 0);
    summary.kernel_walks = (replayed.kernel_walks.n_walks() > 0).then(|| replayed.kernel_walks.clone());
    summary.processes = quality.processes(&names);
    set_hottest(&mut summary, &folded, &default_strategy);
    summary.warnings.extend(modules.warnings().into_iter().chain(symbols.warnings().iter().cloned()));
    summary.warnings.extend(replayed.refused.iter().map(|(words, n)| format!("{n} samples: {words}")));
    summary.warnings.extend(timeline_warnings(timeline, summary.sideband_lost));
    let chunk_sizes = chunk_sizes.map(|sizes| (sizes.total(), sizes.names()));
    let around = around_chunks(&summary, meta);
    summary.chunk_sizes = chunk_sizes.as_ref().map(|(all, each)| chunk_needs(all, each, around)).unwrap_or_default();
    summary.agreements = agreement.agreements(&names, &labels);
    let duration = Duration::from_secs_f64(summary.shown_duration_s());
    let profiles = stacks.profiles((&modules, &symbols, &without_call), &recorded, &names, duration);
    // The page's model takes as much memory again.
    drop((stacks, quality, agreement));
    let mut detail = None;
    if let Some((pairs, over_time)) = pairs.zip(over_time) {
        let mut recorded = Vec::new();
        recording.gaps(|gap| recorded.extend(selection.has(gap.event).then_some(*gap)))?;
        let (stacks, processes) = paired_stacks(&pairs, &labels, listed, &names, pair);
        let (lost, end_ns) = lost_in_the_end(recording, &totals, selection);
        let around = detail::Around { processes: &processes, lost: &lost, recorded: &recorded, end_ns };
        detail = Some(detail::Details { stacks, over_time: over_time.over_time(&around) });
    }
    Ok(Analysis { summary, folded, default_strategy, chunk_sizes, profiles, detail })
}

/// Collects from the samples everything an analysis needs.
struct Collected<'a> {
    totals: Totals,
    stacks: Stacks<'a>,
    quality: QualityCounter<'a>,
    agreement: AgreementCounter,
    /// If the strategy `dwarf` was asked for.
    chunk_sizes: Option<ChunkSizeCounter<'a>>,
    /// If the page was asked for.
    pairs: Option<PairCounter<'a>>,
    over_time: Option<OverTimeCounter<'a>>,
    /// See [`Options::all_files`].
    all_files: bool,
}

impl Collect for Collected<'_> {
    fn add(&mut self, seen: &Seen<'_>) {
        let Self { totals, stacks, quality, agreement, chunk_sizes, pairs, over_time, all_files } = self;
        if *all_files {
            let _opened = seen.space.modules(seen.modules);
        }
        totals.add(seen);
        stacks.add(seen);
        quality.add(seen);
        agreement.add(seen);
        chunk_sizes.add(seen);
        pairs.add(seen);
        over_time.add(seen);
    }

    // Samples that are not unwound count in the totals only.
    fn pass(&mut self, sample: &Sample) {
        self.totals.pass(sample);
    }

    fn leave(&mut self, sample: &Sample) {
        self.totals.leave(sample);
    }

    fn merge(&mut self, other: Self) {
        let Self { totals, stacks, quality, agreement, chunk_sizes, pairs, over_time, all_files: _ } = other;
        self.totals.merge(totals);
        self.stacks.merge(stacks);
        self.quality.merge(quality);
        self.agreement.merge(agreement);
        self.chunk_sizes.merge(chunk_sizes);
        self.pairs.merge(pairs);
        self.over_time.merge(over_time);
    }
}

fn set_hottest(summary: &mut Summary, folded: &BTreeMap<String, Folded>, strategy: &str) {
    summary.hottest = folded.get(strategy).map(|folded| hottest(folded, MAX_HOTTEST)).unwrap_or_default();
    strategy.clone_into(&mut summary.hottest_strategy);
}

/// Symbolises everything that was folded.
fn symbolizer(folder: &Folder, replay: &Replay<'_>, meta: &Meta, options: &Options<'_>) -> Symbolizer {
    let Replay { timeline, modules, .. } = *replay;
    let (addresses, of_kernel) = wanted(folder, modules);
    let has_kernel = !of_kernel.is_empty();
    let read_kernel = || kernel_symbols(timeline, meta, options.resolver, options.is_this_machine, &of_kernel);
    let read_kernel: &(dyn Fn() -> Result<KernelSymbols, KernelMissing> + Sync) = &read_kernel;
    let kernel = has_kernel.then_some(read_kernel);
    Symbolizer::new(modules, &addresses, kernel, options.detail, options.n_threads).with_compiled(timeline)
}

/// The bytes of a sample besides its chunk, if the recording says so: a truncated or imported one does not.
fn around_chunks(summary: &Summary, meta: &Meta) -> Around {
    let is_padded = meta.collector == Collector::PerfEvent;
    let recorded_bytes = u64::from(meta.mode.stack_bytes());
    let copied = match is_padded {
        true => recorded_bytes as f64,
        false => summary.volume.stack_bytes as f64 / (summary.recorded.max(1)) as f64,
    };
    let other_bytes_per_sample = summary.volume.ring_bytes_per_sample.map_or(0.0, |bytes| (bytes - copied).max(0.0));
    Around { other_bytes_per_sample, duration_s: summary.shown_duration_s(), recorded_bytes, is_padded }
}

/// Rejects a filter without matches, which must be a mistake, and lists what could be matched.
///
/// # Errors
/// [`Error::NoneMatch`].
pub(crate) fn check_filter(selection: &Selection, n_shown: u64, timeline: &Timeline) -> Result<(), Error> {
    let filter = selection.filter();
    if n_shown > 0 || filter.is_all() {
        return Ok(());
    }
    let mut there = Vec::new();
    if !filter.pids.is_empty() {
        let named = |(pid, name): (u32, &[u8])| (pid, format!("{pid} ({})", String::from_utf8_lossy(name)));
        let processes: BTreeMap<u32, String> = timeline.processes().map(named).collect();
        there.push(format!("the recording has processes {}", first(processes.into_values())));
    }
    let sorted = |names: &mut dyn Iterator<Item = &[u8]>| {
        let names: BTreeSet<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        first(names.into_iter())
    };
    if !filter.comms.is_empty() || !filter.tids.is_empty() {
        there.push(format!("the recording has threads named {}", sorted(&mut timeline.comms())));
    }
    if !filter.cgroups.is_empty() {
        there.push(match sorted(&mut timeline.cgroups()) {
            groups if groups.is_empty() => "the recording has no control groups".to_owned(),
            groups => format!("the recording has control groups {groups}"),
        });
    }
    if there.is_empty() || filter.time != TimeRange::default() {
        there.push("nothing was sampled then, or the recording is shorter".to_owned());
    }
    Err(Error::NoneMatch { filter: selection.typed(), there: there.join("; ") })
}

/// The first of these texts, joined.
fn first(texts: impl Iterator<Item = String>) -> String {
    const MAX_TEXTS: usize = 20;
    let mut texts: Vec<String> = texts.take(MAX_TEXTS + 1).collect();
    let more = if texts.len() > MAX_TEXTS { " and others" } else { "" };
    texts.truncate(MAX_TEXTS);
    format!("{}{more}", texts.join(", "))
}

fn checked_strategies(meta: &Meta, options: &Options<'_>) -> Result<Vec<Strategy>, Error> {
    let strategies = match options.strategies.as_slice() {
        [] => Strategy::defaults(meta),
        asked => asked.to_vec(),
    };
    for (n, strategy) in strategies.iter().enumerate() {
        strategy.check(meta)?;
        if strategies.iter().take(n).any(|earlier| earlier == strategy) {
            return Err(Error::StrategyTwice(strategy.to_string()));
        }
    }
    Ok(strategies)
}

fn default_strategy(meta: &Meta, names: &[String]) -> String {
    let wanted = if meta.mode.copies_some() { ["fp", "dwarf"].as_slice() } else { &["dwarf"] };
    let mut found = wanted.iter().filter_map(|wanted| names.iter().find(|name| name == wanted));
    found.next().or_else(|| names.first()).cloned().unwrap_or_default()
}

fn timeline_warnings(timeline: &Timeline, sideband_lost: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if timeline.n_impossible() > 0 {
        warnings.push(format!("{} invalid mappings were ignored", timeline.n_impossible()));
    }
    if timeline.n_left_by_exec() > 0 {
        warnings.push(format!(
            "events removed by setuid exec: {} processes were not sampled after they executed a setuid program; \
             record as root, with eBPF or -a, to sample them",
            timeline.n_left_by_exec()
        ));
    }
    let names = timeline.files().iter().map(MappedFile::base_name);
    for name in names.filter(|name| is_emulator(name)).collect::<BTreeSet<_>>() {
        warnings.push(format!("{name} is an emulator: stacks show the emulator, not the program it runs"));
    }
    if sideband_lost > 0 {
        warnings.push(format!("{sideband_lost} process events were lost; some mappings may be unknown"));
    }
    warnings
}

/// Whether a file of this name is an emulator of other architectures: qemu's user mode, and others.
fn is_emulator(name: &str) -> bool {
    const ARCHITECTURES: &[&str] = &[
        "aarch64",
        "alpha",
        "arm",
        "armeb",
        "hppa",
        "i386",
        "loongarch64",
        "m68k",
        "mips",
        "mips64",
        "mips64el",
        "mipsel",
        "ppc",
        "ppc64",
        "ppc64le",
        "riscv32",
        "riscv64",
        "s390x",
        "sparc",
        "sparc64",
        "x86_64",
    ];
    let name = name.strip_suffix("-static").unwrap_or(name);
    let is_qemu = name.strip_prefix("qemu-").is_some_and(|architecture| ARCHITECTURES.contains(&architecture));
    is_qemu || ["FEXInterpreter", "box64", "rosetta"].contains(&name)
}

pub(crate) mod perf_data;
mod stacks;

#[cfg(test)]
mod tests;

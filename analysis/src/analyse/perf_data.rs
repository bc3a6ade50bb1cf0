//! Folds the stacks of a perf.data file without making a recording.

use super::stacks::Stacks;
use super::{Options, check_filter, checked_strategies, default_strategy, symbolizer, timeline_warnings};
use crate::Error;
use crate::address_space::Timeline;
use crate::fold::{Labels, WithoutCall, fold, name_roots};
use crate::folded::Folded;
use crate::import::{ImportError, Imported, PerfSamples};
use crate::listed::Listed;
use crate::profile::Profile;
use crate::replay::{Input, Recorded};
use crate::strategy::Strategy;
use fpprof_recording::model::Meta;
use std::time::Duration;

/// The stacks of a perf.data file.
#[derive(Debug)]
pub struct PerfStacks {
    /// The stacks of the default strategy.
    pub folded: Folded,
    /// The samples by thread, if [`Options::profiles`] asks for them.
    pub profiles: Vec<Profile>,
    /// What was imported and what was left out.
    pub imported: Imported,
    /// What is missing from the mappings and from modules on the stacks, as text.
    pub warnings: Vec<String>,
}

/// Unwinds, symbolises and folds the samples of a perf.data file: the stacks that [`analyse`](super::analyse()) gives
/// for the recording made by [`perf_data`](crate::import::perf_data), under one strategy.
///
/// The file is read twice, its events ([`perf_events`](crate::import::perf_events)) before its samples, so that memory
/// does not grow with it.
///
/// # Errors
/// [`Error::PerfData`] if the file is not a perf.data file, is damaged or has no samples, [`Error::Strategy`] for a
/// strategy that its samples do not support.
pub fn fold_perf_data(
    (meta, timeline): (Meta, Timeline),
    samples: &mut dyn Input,
    options: &Options<'_>,
) -> Result<PerfStacks, Error> {
    let recorded = Recorded::new(meta, timeline, options.event.as_deref())?.only(options.filter.clone());
    let Recorded { meta, timeline, selection } = &recorded;
    let asked = checked_strategies(meta, options)?;
    let names: Vec<String> = asked.iter().map(Strategy::to_string).collect();
    let default = default_strategy(meta, &names);
    let strategies: Vec<Strategy> = asked.into_iter().filter(|strategy| strategy.to_string() == default).collect();
    let modules = recorded.modules(options.resolver);
    let replay = recorded.replay(&modules, &strategies, options.unwinding);
    let mut samples = PerfSamples::new(samples)?;
    let listed = Listed::all(timeline);
    let make = || Stacks::new(&listed, options.profiles.rows(1, 0));
    let replayed = replay.run_blocks::<_, ImportError, _>(&mut samples, options.n_threads, make)?;
    let imported = samples.finish()?;
    let stacks = replayed.collected;
    let folder = &stacks.folder;
    check_filter(selection, folder.counts().map(|(_, amount)| amount.samples).sum(), timeline)?;
    let symbols = symbolizer(folder, &replay, meta, options);
    let without_call = WithoutCall::new(folder, &modules);
    let labels = Labels::new(folder, &modules, &symbols, &without_call);
    let profiles = stacks.profiles((&modules, &symbols, &without_call), &recorded, &[default], Duration::ZERO);
    let mut folded = fold(folder, &labels, timeline, selection.unit(), 1);
    folded.iter_mut().for_each(name_roots);
    let mut warnings = timeline_warnings(timeline, 0);
    warnings.extend(modules.warnings());
    warnings.extend(symbols.warnings().iter().cloned());
    warnings.extend(replayed.refused.iter().map(|(words, n)| format!("{n} samples: {words}")));
    Ok(PerfStacks { folded: folded.pop().unwrap_or_default(), profiles, imported, warnings })
}

//! Makes counts of a second of a recording.

use super::table::{Counts, count};
use crate::live;
use crate::worker::Modules;
use fpprof_analysis::modules::FileModules;
use fpprof_analysis::{Analysis, Options, analyse};
use fpprof_recording::Recording;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroUsize;

/// What became of a second.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum ViewUpdate {
    /// Counts by strategy.
    Counted {
        by_strategy: BTreeMap<String, Counts>,
        /// Blocks that found no room and are not in the counts.
        left_out: u64,
        /// In words: how and by what is recorded.
        how: String,
    },
    /// It could not be made sense of.
    Failed(String),
}

/// A second's worth of a recording.
#[derive(Debug)]
pub(crate) struct Second {
    /// A recording without an end.
    pub(crate) bytes: Vec<u8>,
    /// Blocks that found no room.
    pub(crate) left_out: u64,
}

impl From<live::Part> for Second {
    fn from(part: live::Part) -> Self {
        Self { left_out: part.left_out, bytes: part.into_bytes() }
    }
}

/// Works until there is no next second or `tell` says that nobody listens. One thread: the profiled programs need the other
/// processors.
pub(crate) fn work(mut next: impl FnMut() -> Option<Second>, mut tell: impl FnMut(ViewUpdate) -> bool) {
    while let Some(second) = next() {
        let left_out = second.left_out;
        let told = match counted(second) {
            Ok((by_strategy, how)) => ViewUpdate::Counted { by_strategy, left_out, how },
            Err(error) => ViewUpdate::Failed(format!("{error:#}")),
        };
        if !tell(told) {
            return;
        }
    }
}

fn counted(second: Second) -> anyhow::Result<(BTreeMap<String, Counts>, String)> {
    let mut recording = Recording::open(Cursor::new(second.bytes))?;
    let modules = Modules::new(FileModules::new());
    let options = Options { n_threads: NonZeroUsize::MIN, ..Options::new(&modules) };
    let Analysis { summary, folded, .. } = analyse(&mut recording, &options)?;
    let by_strategy =
        folded.iter().map(|(name, folded)| (name.clone(), count(folded, summary.strategies.get(name)))).collect();
    let environment = &summary.environment;
    let how = [&environment.mode, &environment.event, &environment.rate, &environment.collector];
    Ok((by_strategy, how.map(String::as_str).join(" · ")))
}

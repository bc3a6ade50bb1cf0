//! Computes the counts of each second of a recording.

use super::table::{Counts, count};
use crate::live;
use crate::worker::Modules;
use fpprof_analysis::modules::FileModules;
use fpprof_analysis::{Analysis, Options, analyse};
use fpprof_recording::Recording;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroUsize;

/// The result of analysing a second.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum ViewUpdate {
    /// Counts by strategy.
    Counted {
        by_strategy: BTreeMap<String, Counts>,
        /// Number of blocks that found no room and are not in the counts.
        left_out: u64,
        /// The recording mode and sampling method in words.
        how: String,
    },
    /// The second could not be analysed; the reason in words.
    Failed(String),
}

/// One second of a recording.
#[derive(Debug)]
pub(crate) struct Second {
    /// The bytes of a recording without its end.
    pub(crate) bytes: Vec<u8>,
    /// Number of blocks that found no room.
    pub(crate) left_out: u64,
}

impl From<live::Part> for Second {
    fn from(part: live::Part) -> Self {
        Self { left_out: part.left_out, bytes: part.into_bytes() }
    }
}

/// Analyses seconds until `next` returns none, or `send` returns that the receiver is gone. Uses one thread: the
/// profiled programs need the other CPUs.
pub(crate) fn work(mut next: impl FnMut() -> Option<Second>, mut send: impl FnMut(ViewUpdate) -> bool) {
    while let Some(second) = next() {
        let left_out = second.left_out;
        let update = match counted(second) {
            Ok((by_strategy, how)) => ViewUpdate::Counted { by_strategy, left_out, how },
            Err(error) => ViewUpdate::Failed(format!("{error:#}")),
        };
        if !send(update) {
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

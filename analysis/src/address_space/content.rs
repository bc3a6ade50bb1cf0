//! The mappings of an address space at a moment, made when a sample needs them.

use super::files::FileIx;
use super::timeline::{Backing, Edit, SpaceKey, Timeline};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Most mappings kept in [`Contents`] for later moments of the same log; 48 bytes each.
const MAX_KEPT_MAPPINGS: usize = 200_000;

/// A content takes as much as so many mappings besides.
const CONTENT_MAPPINGS: usize = 4;

/// An executable mapping at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapping {
    /// First address.
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// What it was made from; `None` for anonymous memory, which holds no module.
    pub file: Option<FileIx>,
    /// Offset into the file of `start`.
    pub file_offset: u64,
}

/// Makes the mappings of address spaces, each from the nearest earlier moment it still has.
#[derive(Debug, Default)]
pub struct Contents {
    kept: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    logs: FxHashMap<u32, BTreeMap<u32, Arc<[SpaceMapping]>>>,
    n_mappings: usize,
}

impl Contents {
    /// The executable mappings of `key`, ascending, not overlapping.
    #[must_use]
    pub fn get(&self, timeline: &Timeline, key: SpaceKey) -> Arc<[SpaceMapping]> {
        let mut mappings: BTreeMap<u64, SpaceMapping> = BTreeMap::new();
        let mut pending: Vec<(SpaceKey, u32)> = Vec::new();
        let mut wanted = Some(key);
        while let Some(key) = wanted {
            let earlier = self.nearest(key);
            if let Some((edits, found)) = earlier {
                if edits == key.edits && pending.is_empty() {
                    return found;
                }
                mappings = found.iter().map(|mapping| (mapping.start, *mapping)).collect();
                pending.push((key, edits));
                break;
            }
            pending.push((key, 0));
            wanted = timeline.logs.get(key.log as usize).and_then(|log| log.base);
        }
        for (key, from) in pending.into_iter().rev() {
            let edits = timeline.logs.get(key.log as usize).map_or(&[][..], |log| &log.edits);
            for edit in edits.get(from as usize..key.edits as usize).unwrap_or(&[]) {
                apply(&mut mappings, edit);
            }
        }
        let content: Arc<[SpaceMapping]> = mappings.into_values().collect();
        self.keep(key, &content);
        content
    }

    /// Mappings kept at present.
    #[cfg(test)]
    pub(super) fn n_kept(&self) -> usize {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.logs.values().flat_map(|log| log.values()).map(|content| content.len()).sum()
    }

    /// The state of the same log after at most as many edits.
    fn nearest(&self, key: SpaceKey) -> Option<(u32, Arc<[SpaceMapping]>)> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (&edits, content) = kept.logs.get(&key.log)?.range(..=key.edits).next_back()?;
        Some((edits, Arc::clone(content)))
    }

    fn keep(&self, key: SpaceKey, content: &Arc<[SpaceMapping]>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let own = content.len().saturating_add(CONTENT_MAPPINGS);
        let n_mappings = kept.n_mappings.saturating_add(own);
        if n_mappings > MAX_KEPT_MAPPINGS {
            *kept = Cache::default();
        }
        if kept.logs.entry(key.log).or_default().insert(key.edits, Arc::clone(content)).is_none() {
            kept.n_mappings = kept.n_mappings.saturating_add(own);
        }
    }
}

/// Takes the edit's range out of the mappings it overlaps, then puts its own mapping there.
fn apply(mappings: &mut BTreeMap<u64, SpaceMapping>, edit: &Edit) {
    while let Some(hit) = mappings.range(..edit.end).next_back().map(|(_, &hit)| hit).filter(|hit| hit.end > edit.start)
    {
        mappings.remove(&hit.start);
        if hit.end > edit.end {
            let file_offset = hit.file_offset.wrapping_add(edit.end.wrapping_sub(hit.start));
            mappings.insert(edit.end, SpaceMapping { start: edit.end, file_offset, ..hit });
        }
        if hit.start < edit.start {
            mappings.insert(hit.start, SpaceMapping { end: edit.start, ..hit });
        }
    }
    if let Some(Backing { file, file_offset }) = edit.executable {
        let Edit { start, end, .. } = *edit;
        mappings.insert(start, SpaceMapping { start, end, file, file_offset });
    }
}

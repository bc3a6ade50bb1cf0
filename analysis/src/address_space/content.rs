//! The mappings of an address space at a moment, built when a sample needs them.

use super::files::FileIx;
use super::moments::MomentCache;
use super::timeline::{Backing, Edit, SpaceKey, Timeline};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An executable mapping at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceMapping {
    /// First address.
    pub start: u64,
    /// First address above.
    pub end: u64,
    /// The mapped file; `None` for anonymous memory, which holds no module.
    pub file: Option<FileIx>,
    /// Offset into the file of `start`.
    pub file_offset: u64,
}

/// Builds the mappings of address spaces, each from the nearest earlier moment in its cache.
#[derive(Debug, Default)]
pub struct Contents {
    cache: Mutex<MomentCache<Arc<[SpaceMapping]>>>,
}

impl SpaceMapping {
    /// The rest of the mapping from an address inside it on.
    fn from(self, start: u64) -> Self {
        let file_offset = self.file_offset.wrapping_add(start.wrapping_sub(self.start));
        Self { start, file_offset, ..self }
    }
}

impl Contents {
    /// The executable mappings of `key`, ascending, not overlapping.
    #[must_use]
    pub fn get(&self, timeline: &Timeline, key: SpaceKey) -> Arc<[SpaceMapping]> {
        let mut earlier: Arc<[SpaceMapping]> = Arc::default();
        let mut pending: Vec<(SpaceKey, u32)> = Vec::new();
        let mut wanted = Some(key);
        while let Some(key) = wanted {
            if let Some((edits, found)) = self.cache().nearest(key) {
                if edits == key.edits && pending.is_empty() {
                    return found;
                }
                earlier = found;
                pending.push((key, edits));
                break;
            }
            pending.push((key, 0));
            wanted = timeline.logs.get(key.log as usize).and_then(|log| log.base);
        }
        let mut changes = BTreeMap::new();
        for (key, from) in pending.into_iter().rev() {
            let edits = timeline.logs.get(key.log as usize).map_or(&[][..], |log| &log.edits);
            edits
                .get(from as usize..key.edits as usize)
                .unwrap_or(&[])
                .iter()
                .for_each(|edit| apply(&mut changes, edit));
        }
        let content: Arc<[SpaceMapping]> = changed(&earlier, &changes).into();
        self.cache().insert(key, Arc::clone(&content), content.len());
        content
    }

    fn cache(&self) -> MutexGuard<'_, MomentCache<Arc<[SpaceMapping]>>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Changed parts of an address space by start address: their end, and what is mapped there now if that is executable.
type Changes = BTreeMap<u64, (u64, Option<Backing>)>;

/// Cuts the edit's range out of the changes it overlaps, then adds its own.
fn apply(changes: &mut Changes, edit: &Edit) {
    while let Some((hit_start, (hit_end, backing))) =
        changes.range(..edit.end).next_back().map(|(&start, &hit)| (start, hit)).filter(|(_, hit)| hit.0 > edit.start)
    {
        changes.remove(&hit_start);
        if hit_end > edit.end {
            let further = |backing: Backing| {
                let file_offset = backing.file_offset.wrapping_add(edit.end.wrapping_sub(hit_start));
                Backing { file_offset, ..backing }
            };
            changes.insert(edit.end, (hit_end, backing.map(further)));
        }
        if hit_start < edit.start {
            changes.insert(hit_start, (edit.start, backing));
        }
    }
    changes.insert(edit.start, (edit.end, edit.executable));
}

/// The mappings of an address space after the changes; ascending, as `before` must be.
fn changed(before: &[SpaceMapping], changes: &Changes) -> Vec<SpaceMapping> {
    let mut after = Vec::with_capacity(before.len() + changes.len());
    let mut before = before.iter().copied();
    let mut next = before.next();
    for (&start, &(end, backing)) in changes {
        while let Some(mapping) = next.filter(|mapping| mapping.start < end) {
            if mapping.start < start {
                after.push(SpaceMapping { end: mapping.end.min(start), ..mapping });
            }
            next = if mapping.end > end { Some(mapping.from(end)) } else { before.next() };
        }
        after.extend(backing.map(|Backing { file, file_offset }| SpaceMapping { start, end, file, file_offset }));
    }
    after.extend(next.into_iter().chain(before));
    after
}

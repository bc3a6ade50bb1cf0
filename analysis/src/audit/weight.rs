//! Weighs an audit by where time was spent: the class of the byte at each sample.

use super::file::{AuditOptions, examine};
use super::model::{Class, FileAudit, class_at};
use crate::Error;
use crate::address_space::FileIx;
use crate::modules::{Location, ModuleTable, Resolver};
use crate::replay::{Collect, Input, Recorded, Seen};
use crate::strategy::Strategy;
use fpprof_recording::Recording;
use fpprof_unwind::Modules as _;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::io::Cursor;
use std::num::NonZeroUsize;
use std::ops::AddAssign;

/// Samples by what a frame-pointer walk that starts at them does. `samples` is exactly the sum of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Weights {
    /// All samples.
    pub samples: u64,
    /// The walk finds the caller.
    pub ok: u64,
    /// The walk continues without the function's caller.
    pub drops_caller: u64,
    /// The walk reads a register that holds something else.
    pub breaks_chain: u64,
    /// Code of Go programs, framed by Go's convention.
    pub go: u64,
    /// Code that no row covers.
    pub no_cfi: u64,
    /// In files that cannot be audited: missing, changed, or refused.
    pub unaudited: u64,
    /// Not in a file: code generated at run time, and samples without a user stack.
    pub no_file: u64,
}

/// The samples in one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileWeight {
    /// Its path when it was mapped.
    pub path: String,
    /// Its samples.
    pub weights: Weights,
    /// Why it was not audited.
    pub reason: Option<String>,
}

/// The weights of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Weighed {
    /// All files together.
    pub total: Weights,
    /// Files with samples, most samples first.
    pub files: Vec<FileWeight>,
}

/// The innermost user instructions of all samples.
#[derive(Debug, Default)]
struct Leaves {
    /// By file and SVMA.
    at: FxHashMap<(FileIx, u64), u64>,
    no_file: u64,
}

impl Collect for Leaves {
    fn add(&mut self, seen: &Seen<'_>) {
        let leaf = seen.stack(0).and_then(|stack| stack.frames.first());
        let placed = leaf.and_then(|leaf| {
            let mapping = seen.space.space.find(leaf.address)?;
            Some((FileIx(mapping.module?.0), leaf.address.wrapping_sub(seen.modules.bias(mapping))))
        });
        match placed {
            Some(at) => *self.at.entry(at).or_default() += 1,
            None => self.no_file += 1,
        }
    }

    fn merge(&mut self, other: Self) {
        for (at, n) in other.at {
            *self.at.entry(at).or_default() += n;
        }
        self.no_file += other.no_file;
    }
}

/// Weighs every file that has samples. Files are verified to be those that were mapped before they are read.
///
/// # Errors
/// [`Error::Recording`] if the recording cannot be read.
pub fn weigh(
    recording: &mut Recording<dyn Input + '_>,
    resolver: &dyn Resolver,
    n_threads: NonZeroUsize,
) -> Result<Weighed, Error> {
    let recorded = Recorded::read(recording, None)?;
    let modules = recorded.modules(resolver);
    // The leaf is the sampled instruction under every strategy, so any one will do.
    let strategies: Vec<Strategy> = Strategy::defaults(&recorded.meta).into_iter().take(1).collect();
    let replay = recorded.replay(&modules, &strategies, fpprof_unwind::Options::default());
    let leaves = replay.run(recording, n_threads, Leaves::default)?.collected;
    let mut by_file: FxHashMap<FileIx, Vec<(u64, u64)>> = FxHashMap::default();
    for ((file, svma), n) in leaves.at {
        by_file.entry(file).or_default().push((svma, n));
    }
    let mut files: Vec<_> =
        by_file.into_iter().map(|(file, samples)| weigh_file(&modules, resolver, file, &samples)).collect();
    files.sort_by(|a, b| b.weights.samples.cmp(&a.weights.samples).then_with(|| a.path.cmp(&b.path)));
    let mut total = Weights { samples: leaves.no_file, no_file: leaves.no_file, ..Weights::default() };
    files.iter().for_each(|file| total += file.weights);
    Ok(Weighed { total, files })
}

fn weigh_file(modules: &ModuleTable<'_>, resolver: &dyn Resolver, ix: FileIx, samples: &[(u64, u64)]) -> FileWeight {
    let path = modules.file(ix).map_or_else(String::new, |file| String::from_utf8_lossy(&file.path).into_owned());
    let audit = audit(modules, resolver, ix);
    let mut weights = Weights::default();
    for &(svma, n) in samples {
        weights.samples += n;
        *match &audit {
            Err(_) => &mut weights.unaudited,
            Ok(audit) => match class_at(&audit.ranges, svma) {
                Some(Class::Ok) => &mut weights.ok,
                Some(Class::DropsCaller) => &mut weights.drops_caller,
                Some(Class::BreaksChain) => &mut weights.breaks_chain,
                None if audit.go => &mut weights.go,
                None => &mut weights.no_cfi,
            },
        } += n;
    }
    FileWeight { path, weights, reason: audit.err() }
}

fn audit(modules: &ModuleTable<'_>, resolver: &dyn Resolver, ix: FileIx) -> Result<FileAudit, String> {
    let options = AuditOptions { ranges: true, ..AuditOptions::default() };
    let audited = match modules.location(ix).map_err(|missing| missing.text().to_owned())? {
        Location::Bytes(bytes) => examine(Cursor::new(bytes), options),
        Location::Path(path) => {
            // Opened first to detect a change since it was verified.
            modules.open(ix).map_err(|missing| missing.text().to_owned())?;
            examine(resolver.open(path).map_err(|missing| missing.text().to_owned())?.reader, options)
        }
    };
    audited.map_err(|refusal| refusal.to_string())
}

impl AddAssign for Weights {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.ok += other.ok;
        self.drops_caller += other.drops_caller;
        self.breaks_chain += other.breaks_chain;
        self.go += other.go;
        self.no_cfi += other.no_cfi;
        self.unaudited += other.unaudited;
        self.no_file += other.no_file;
    }
}

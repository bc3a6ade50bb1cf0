//! The files that answers are computed from: those of a store, or one table.

use crate::tables::{Table, range_of};
use anyhow::ensure;
use fpprof_reports::store::{Filter, GoesOn, Rows, StoreError, read};
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use walkdir::WalkDir;

/// The location of tables.
#[derive(Debug)]
pub(crate) enum Files {
    /// The directory of a store.
    Store(PathBuf),
    /// One file, which has stacks only, and the name of the recording it was made of.
    One(File, PathBuf),
}

/// A file that may have rows in the range of a filter.
#[derive(Debug)]
pub(super) struct Found {
    /// Path relative to the store's directory.
    pub(super) name: String,
    path: Option<PathBuf>,
}

impl Found {
    /// Whether it is not there any more. A symbolic link to nothing is.
    pub(super) fn is_gone(&self) -> bool {
        self.path.as_ref().is_none_or(|path| path.symlink_metadata().is_err())
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("damaged")]
    Damaged,
}

impl Files {
    /// Opens the store in this directory.
    ///
    /// # Errors
    /// If it is not a store.
    pub(crate) fn store(path: &Path) -> anyhow::Result<Self> {
        std::fs::read_dir(path)?;
        let has_tables = [Table::Stacks, Table::Counters].iter().any(|table| path.join(table.name()).is_dir());
        ensure!(has_tables, "no store of `fpprof agent`: it has neither stacks/ nor counters/");
        Ok(Self::Store(path.to_owned()))
    }

    /// The name shown on the page.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Store(path) | Self::One(_, path) => path.display().to_string(),
        }
    }

    /// Whether it has tables of counters.
    pub(super) fn has_counters(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// Lists the files of a table of which some intervals began in the range of a filter, in order of time; also returns an
    /// error for each directory that cannot be read. Files whose names have no time are included: their rows are
    /// filtered.
    pub(super) fn found(&self, table: Table, filter: &Filter) -> (Vec<Found>, Vec<String>) {
        let Self::Store(store) = self else {
            let one = Found { name: self.name(), path: None };
            return (if table == Table::Stacks { vec![one] } else { Vec::new() }, Vec::new());
        };
        let is_wanted = |path: &Path| is_table(path) && range_of(path).is_none_or(|range| filter.has_some_of(range));
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for entry in WalkDir::new(store.join(table.name())).min_depth(2).max_depth(2).sort_by_file_name() {
            match entry {
                Ok(entry) if !entry.file_type().is_dir() && is_wanted(entry.path()) => {
                    let name = entry.path().strip_prefix(store).unwrap_or(entry.path()).display().to_string();
                    found.push(Found { name, path: Some(entry.into_path()) });
                }
                Ok(_) => {}
                // A store may have no counters, and retention may remove a day meanwhile.
                Err(error) if error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound) => {}
                Err(error) => refused.push(error.to_string()),
            }
        }
        (found, refused)
    }

    /// Reads rows of a file.
    ///
    /// # Errors
    /// If it is gone or damaged.
    pub(super) fn rows(
        &self,
        found: &Found,
        columns: &[&str],
        filter: Option<&Arc<Filter>>,
        goes_on: &GoesOn,
    ) -> Result<Vec<Rows>, Unread> {
        let file = match (self, &found.path) {
            (_, Some(path)) => open(path)?,
            (Self::One(file, _), None) => file.try_clone()?,
            (Self::Store(_), None) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
        };
        // The `parquet` crate panics on some damaged files.
        let rows = catch_unwind(AssertUnwindSafe(|| read(file, columns, filter, goes_on)));
        Ok(rows.map_err(|_| Unread::Damaged)??)
    }

    /// The starts of the first and of the last interval, from file names: microseconds since 1970.
    pub(super) fn span(&self) -> Option<[i64; 2]> {
        let Self::Store(store) = self else { return None };
        let tables = [Table::Stacks, Table::Counters].map(|table| store.join(table.name()));
        let entries = tables.iter().flat_map(|table| WalkDir::new(table).min_depth(2).max_depth(2)).flatten();
        let starts = entries.map(walkdir::DirEntry::into_path).filter(|path| is_table(path));
        let ranges = starts.filter_map(|path| range_of(&path));
        ranges.reduce(|[first, last], [from, to]| [first.min(from), last.max(to)])
    }
}

/// Whether a file is a table that is complete.
fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "parquet")
}

/// Opens a regular file. A pipe of that name would wait for its writer.
fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

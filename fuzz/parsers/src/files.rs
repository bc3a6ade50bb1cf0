//! Files of the bytes that are fuzzed.

use fpprof_analysis::address_space::MappedFile;
use fpprof_analysis::modules::{Candidate, FileStat, Missing, Opened, Resolver};
use fpprof_recording::model::BuildId;
use std::fs::{File, OpenOptions};
use std::io::Cursor;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Every file that is asked for is this one.
pub(crate) struct Only(Vec<u8>);

impl Only {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(crate) fn opened(&self) -> Opened {
        let stat = FileStat { len_bytes: self.0.len() as u64, ..FileStat::default() };
        Opened { reader: Box::new(Cursor::new(self.0.clone())), stat }
    }
}

impl std::fmt::Debug for Only {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Only")
    }
}

impl Resolver for Only {
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        let _ = file;
        vec![Candidate { path: PathBuf::from("/program"), has_recorded_inodes: false }]
    }

    fn debug_candidates(&self, _: BuildId) -> Vec<PathBuf> {
        vec![PathBuf::from("/debug")]
    }

    fn link_candidates(&self, _: &Path, _: &[u8]) -> Vec<PathBuf> {
        vec![PathBuf::from("/link")]
    }

    fn open(&self, _: &Path) -> Result<Opened, Missing> {
        Ok(self.opened())
    }
}

/// A file of these bytes, for what wants a descriptor.
pub(crate) fn written(bytes: &[u8]) -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        // O_TMPFILE: without a name.
        let in_memory = OpenOptions::new().read(true).write(true).custom_flags(0o20_200_000).open("/dev/shm");
        in_memory.expect("a file in /dev/shm")
    });
    file.set_len(0).and_then(|()| file.write_all_at(bytes, 0)).expect("room in /dev/shm");
    file
}

//! A file for random access.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::os::unix::fs::FileExt as _;

/// A file whose position is kept here, so that seeking needs no system call.
#[derive(Debug)]
pub(crate) struct Positioned {
    file: File,
    at: u64,
}

impl Positioned {
    /// Creates a reader at the start of the file.
    pub(crate) fn new(file: File) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for Positioned {
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let n = self.file.read_at(bytes, self.at)?;
        self.at = self.at.saturating_add(n as u64);
        Ok(n)
    }
}

impl Seek for Positioned {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
            SeekFrom::End(by) => self.file.metadata()?.len().checked_add_signed(by),
        };
        self.at = at.ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that reading and seeking work as in any file, and that seeking before its start fails.
    #[test]
    fn reads_where_it_was_sent() {
        let path = std::env::current_exe().unwrap();
        let (mut plain, mut ours) = (File::open(&path).unwrap(), Positioned::new(File::open(&path).unwrap()));
        for to in [SeekFrom::Start(4), SeekFrom::Current(60), SeekFrom::End(-9), SeekFrom::Current(-30)] {
            assert_eq!(ours.seek(to).unwrap(), plain.seek(to).unwrap());
            let [mut one, mut other] = [[0; 8]; 2];
            plain.read_exact(&mut one).unwrap();
            ours.read_exact(&mut other).unwrap();
            assert_eq!(one, other);
        }
        assert!(ours.seek(SeekFrom::Current(i64::MIN)).is_err());
        ours.seek(SeekFrom::End(5)).unwrap();
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
    }
}

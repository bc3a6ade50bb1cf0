//! Joining the two records of one mapping.

use fpprof_recording::model::{BuildId, Mmap};

/// Joins, within one CPU's ring, the record that names device and inode with the one that names the build id.
///
/// The kernel writes them one right after the other, in either order, the second only for executable mappings of files.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    /// Has device and inode, and may get a build id yet.
    waiting: Option<Mmap>,
    /// A build id that came first.
    early: Option<(Key, BuildId)>,
}

/// What both records say alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    pid: u32,
    tid: u32,
    start: u64,
    len: u64,
    file_offset: u64,
}

impl From<&Mmap> for Key {
    fn from(mmap: &Mmap) -> Self {
        Self { pid: mmap.pid, tid: mmap.tid, start: mmap.start, len: mmap.len, file_offset: mmap.file_offset }
    }
}

impl Merger {
    /// Takes a record with device and inode, and hands on what is complete.
    pub(crate) fn with_inode(&mut self, mut mmap: Mmap, mut emit: impl FnMut(Mmap)) {
        self.finish(&mut emit);
        if let Some((key, build_id)) = self.early.take()
            && key == Key::from(&mmap)
        {
            mmap.identity.build_id = Some(build_id);
            return emit(mmap);
        }
        let may_have_build_id = mmap.identity.inode != 0 && mmap.prot & libc::PROT_EXEC.cast_unsigned() != 0;
        if may_have_build_id { self.waiting = Some(mmap) } else { emit(mmap) }
    }

    /// Takes a record of the event that names build ids; one without says nothing new.
    pub(crate) fn with_build_id(&mut self, mmap: &Mmap, mut emit: impl FnMut(Mmap)) {
        let key = Key::from(mmap);
        match self.waiting.take() {
            Some(mut waiting) if Key::from(&waiting) == key => {
                waiting.identity.build_id = mmap.identity.build_id;
                emit(waiting);
            }
            Some(other) => emit(other),
            None => self.early = mmap.identity.build_id.map(|build_id| (key, build_id)),
        }
    }

    /// When the mapping that waits was made.
    pub(crate) fn waiting_since_ns(&self) -> Option<u64> {
        self.waiting.as_ref().map(|mmap| mmap.time_ns)
    }

    /// Hands on what waits: nothing more will come for it.
    pub(crate) fn finish(&mut self, mut emit: impl FnMut(Mmap)) {
        self.waiting.take().into_iter().for_each(&mut emit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpprof_recording::model::FileIdentity;

    fn mmap(start: u64, identity: FileIdentity) -> Mmap {
        let prot = libc::PROT_EXEC.cast_unsigned();
        let path = b"/bin/true".to_vec();
        Mmap {
            time_ns: 5,
            pid: 1,
            tid: 2,
            start,
            len: 4096,
            file_offset: 0,
            prot,
            flags: 2,
            path,
            identity,
            synthesized: false,
        }
    }

    fn inode(start: u64) -> Mmap {
        mmap(start, FileIdentity { inode: 77, dev_major: 8, ..FileIdentity::default() })
    }

    fn build_id(start: u64) -> Mmap {
        mmap(start, FileIdentity { build_id: BuildId::new(&[1, 2, 3]), ..FileIdentity::default() })
    }

    /// Check that inode and build id meet whichever comes first, and that nothing else changes.
    #[test]
    fn both_orders_are_joined() {
        for inode_first in [true, false] {
            let (mut merger, mut out) = (Merger::default(), Vec::new());
            if inode_first {
                merger.with_inode(inode(0x1000), |mmap| out.push(mmap));
                assert_eq!(merger.waiting_since_ns(), Some(5));
                merger.with_build_id(&build_id(0x1000), |mmap| out.push(mmap));
            } else {
                merger.with_build_id(&build_id(0x1000), |mmap| out.push(mmap));
                merger.with_inode(inode(0x1000), |mmap| out.push(mmap));
            }
            let mut expected = inode(0x1000);
            expected.identity.build_id = BuildId::new(&[1, 2, 3]);
            assert_eq!(out, [expected], "inode first: {inode_first}");
            assert_eq!(merger.waiting_since_ns(), None);
        }
    }

    /// Check that a build id of another mapping is not taken, and that a mapping whose partner was lost still comes.
    #[test]
    fn strangers_are_not_joined() {
        let (mut merger, mut out) = (Merger::default(), Vec::new());
        merger.with_inode(inode(0x1000), |mmap| out.push(mmap));
        merger.with_inode(inode(0x2000), |mmap| out.push(mmap));
        merger.with_build_id(&build_id(0x3000), |mmap| out.push(mmap));
        merger.finish(|mmap| out.push(mmap));
        assert_eq!(out, [inode(0x1000), inode(0x2000)]);
    }

    /// Check that mappings that can have no build id do not wait for one.
    #[test]
    fn data_does_not_wait() {
        let (mut merger, mut out) = (Merger::default(), Vec::new());
        let mut data = inode(0x1000);
        data.prot = libc::PROT_READ.cast_unsigned();
        let anonymous = mmap(0x9000, FileIdentity::default());
        merger.with_inode(data.clone(), |mmap| out.push(mmap));
        merger.with_inode(anonymous.clone(), |mmap| out.push(mmap));
        assert_eq!(out, [data, anonymous]);
    }
}

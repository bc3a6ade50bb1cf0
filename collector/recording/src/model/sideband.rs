//! What processes did while samples were taken.

/// One event beside the samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sideband {
    /// A mapping was made (or existed before the recording).
    Mmap(Mmap),
    /// A process was named, by exec or by itself.
    Comm(Comm),
    /// A process or thread was made.
    Fork(Fork),
    /// A process or thread ended.
    Exit(Exit),
    /// The control group that a process is in.
    Cgroup(Cgroup),
    /// Bytes of a module that no file holds (the vDSO), or that would be gone (a deleted file).
    Module(ModuleBytes),
}

/// A mapping of a process's address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmap {
    /// When; the start of the recording for what existed before.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread that made it.
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Offset into the file, bytes.
    pub file_offset: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// `MAP_*` bits.
    pub flags: u32,
    /// Path as the kernel names it: absolute, or `[stack]`, `[vdso]`, `//anon`.
    pub path: Vec<u8>,
    /// Which file it is, when it is one.
    pub identity: FileIdentity,
    /// It existed before the recording and was read from `/proc`.
    pub synthesized: bool,
}

/// Which file a mapping was made from, taken when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct FileIdentity {
    /// Device, major number.
    pub dev_major: u32,
    /// Device, minor number.
    pub dev_minor: u32,
    /// Inode; 0 for no file.
    pub inode: u64,
    /// Inode generation; 0 when unknown.
    pub inode_generation: u64,
    /// GNU build id, when it could be read.
    pub build_id: Option<BuildId>,
}

/// A GNU build id, at most 20 bytes.
///
/// # Sources
/// The kernel's `BUILD_ID_SIZE_MAX` (`include/linux/buildid.h`).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BuildId {
    len: u8,
    bytes: [u8; 20],
}

impl BuildId {
    /// The first 20 bytes of `id`, or `None` if it is empty.
    #[must_use]
    pub fn new(id: &[u8]) -> Option<Self> {
        let len = id.len().min(20);
        let mut bytes = [0; 20];
        bytes.get_mut(..len)?.copy_from_slice(id.get(..len)?);
        let len = u8::try_from(len).ok().filter(|&n| n > 0)?;
        Some(Self { len, bytes })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }
}

impl std::fmt::Display for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for BuildId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// A new name of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comm {
    /// When.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The name, at most 15 bytes.
    pub comm: Vec<u8>,
    /// It came with an exec: the process's mappings before it are gone.
    pub exec: bool,
    /// Start time of the process, clock ticks since boot (`/proc/PID/stat` field 22), 0 when unknown.
    pub start_ticks: u64,
}

/// A new process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// When.
    pub time_ns: u64,
    /// The new process, or the process of the new thread.
    pub pid: u32,
    /// The new thread.
    pub tid: u32,
    /// Process that made it; equal to `pid` for a new thread.
    pub parent_pid: u32,
    /// Thread that made it.
    pub parent_tid: u32,
}

/// The end of a process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// When.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Thread; equal to `pid` for the process's first thread.
    pub tid: u32,
}

/// The control group of a process, from this time on. A process that is forked is in its parent's until it is said to be in
/// another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// When: the time of the sample or the event for which it was read, which was a little later.
    pub time_ns: u64,
    /// Process.
    pub pid: u32,
    /// Its path as `/proc/PID/cgroup` gives it, `/` for the root; at most [`MAX_CGROUP_BYTES`](crate::MAX_CGROUP_BYTES).
    pub path: Vec<u8>,
}

/// Path of a [`ModuleBytes`] that is no file: lines of `/proc/kallsyms`, those of the kernel's functions that samples went
/// through.
pub const KERNEL_SYMBOLS_PATH: &[u8] = b"[kernel.kallsyms]";

/// A module's bytes, kept in the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleBytes {
    /// Path as in [`Mmap::path`].
    pub path: Vec<u8>,
    /// Identity as in [`Mmap::identity`].
    pub identity: FileIdentity,
    /// The ELF image.
    pub bytes: Vec<u8>,
}

//! Events of processes while samples were taken.

use serde::{Deserialize, Serialize};

/// A process event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sideband {
    /// A mapping was created (or existed before the recording).
    Mmap(Mmap),
    /// A thread got a new name, by exec or by itself.
    Comm(Comm),
    /// A process or thread was created.
    Fork(Fork),
    /// A process or thread ended.
    Exit(Exit),
    /// The control group that a process is in.
    Cgroup(Cgroup),
    /// Bytes of a module that is not in a file (the vDSO), or whose file would be gone (deleted).
    Module(ModuleBytes),
}

impl Sideband {
    /// Its time; `None` for a module, which has none.
    #[must_use]
    pub fn time_ns(&self) -> Option<u64> {
        match self {
            Self::Mmap(event) => Some(event.time_ns),
            Self::Comm(event) => Some(event.time_ns),
            Self::Fork(event) => Some(event.time_ns),
            Self::Exit(event) => Some(event.time_ns),
            Self::Cgroup(event) => Some(event.time_ns),
            Self::Module(_) => None,
        }
    }
}

/// A mapping of a process's address space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmap {
    /// Time; the start of the recording for mappings that existed before.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread that created it.
    pub tid: u32,
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub len: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// `MAP_*` bits.
    pub flags: u32,
    /// Path as reported by the kernel: absolute, or `[stack]`, `[vdso]`, `//anon`.
    pub path: Vec<u8>,
    /// The file's identity, if it is a file.
    pub identity: FileIdentity,
    /// Whether it existed before the recording and was read from `/proc`.
    pub synthesized: bool,
}

/// The identity of a mapped file, taken when it was mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct FileIdentity {
    /// Device, major number.
    pub dev_major: u32,
    /// Device, minor number.
    pub dev_minor: u32,
    /// Inode; 0 for no file.
    pub inode: u64,
    /// Inode generation; 0 if unknown.
    pub inode_generation: u64,
    /// GNU build ID, if it could be read.
    pub build_id: Option<BuildId>,
}

/// A GNU build ID, at most 20 bytes.
///
/// # Sources
/// The kernel's `BUILD_ID_SIZE_MAX` (`include/linux/buildid.h`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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

impl From<BuildId> for String {
    fn from(id: BuildId) -> Self {
        id.to_string()
    }
}

/// Parses hexadecimal digits.
impl TryFrom<String> for BuildId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.as_deref().and_then(Self::new).ok_or("a build id consists of hexadecimal digits")
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
    /// Time.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// The name, at most 15 bytes.
    pub comm: Vec<u8>,
    /// Whether it is due to an exec, which removed the process's earlier mappings.
    pub exec: bool,
    /// Start time of the process, clock ticks since boot (`/proc/PID/stat` field 22), 0 if unknown.
    pub start_ticks: u64,
}

/// A new process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// Time.
    pub time_ns: u64,
    /// The new process, or the process of the new thread.
    pub pid: u32,
    /// The new thread.
    pub tid: u32,
    /// Process that created it; equal to `pid` for a new thread.
    pub parent_pid: u32,
    /// Thread that created it.
    pub parent_tid: u32,
}

/// The end of a process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Time.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID; equal to `pid` for the process's first thread.
    pub tid: u32,
}

/// The control group of a process and what is kept of its environment, from this time on. A forked process has its
/// parent's until an event of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cgroup {
    /// Time of the sample or event for which the group was read, slightly later.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Its path as in `/proc/PID/cgroup`, `/` for the root; at most [`MAX_CGROUP_BYTES`](crate::MAX_CGROUP_BYTES).
    pub path: Vec<u8>,
    /// The environment variables that were asked for and are set: for each, `NAME=VALUE` and a zero byte as in
    /// `/proc/PID/environ`, or `NAME` and a zero byte if its value could not be read; at most
    /// [`MAX_ENVIRONMENT_BYTES`](crate::MAX_ENVIRONMENT_BYTES).
    pub environment: Vec<u8>,
}

/// Path of a [`ModuleBytes`] that is not a file: the lines of `/proc/kallsyms` for the kernel functions on the samples'
/// stacks.
pub const KERNEL_SYMBOLS_PATH: &[u8] = b"[kernel.kallsyms]";

/// A module's bytes, stored in the recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleBytes {
    /// Path as in [`Mmap::path`].
    pub path: Vec<u8>,
    /// Identity as in [`Mmap::identity`].
    pub identity: FileIdentity,
    /// The ELF image, or other contents.
    pub bytes: Vec<u8>,
}

//! Finds the files of modules.

use super::Missing;
use crate::address_space::MappedFile;
use fpprof_recording::model::BuildId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A seekable reader.
pub trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

/// A possible location of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Path, to be opened with [`Resolver::open`].
    pub path: PathBuf,
    /// Whether device and inode numbers there are those of the recording: the same machine, not a copy.
    pub has_recorded_inodes: bool,
}

/// The file system's metadata of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileStat {
    /// Major device number, as shown for mappings.
    pub dev_major: u32,
    /// Minor device number.
    pub dev_minor: u32,
    /// Inode, as shown for mappings.
    pub inode: u64,
    /// Size in bytes.
    pub len_bytes: u64,
    /// Last modification, nanoseconds since 1970.
    pub modified_unix_ns: i128,
    /// Last change of data or metadata, nanoseconds since 1970.
    pub changed_unix_ns: i128,
    /// User id of its owner.
    pub owner: u32,
}

/// An open regular file.
pub struct Opened {
    /// Its content.
    pub reader: Box<dyn ReadSeek>,
    /// Its metadata.
    pub stat: FileStat,
}

impl FileStat {
    /// Its device and inode.
    #[must_use]
    pub const fn inode_of_device(&self) -> Inode {
        (self.dev_major, self.dev_minor, self.inode)
    }

    /// The result of stat(2).
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            dev_major: libc::major(metadata.dev()),
            dev_minor: libc::minor(metadata.dev()),
            inode: metadata.ino(),
            len_bytes: metadata.len(),
            modified_unix_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_unix_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
            owner: metadata.uid(),
        }
    }
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").field("stat", &self.stat).finish_non_exhaustive()
    }
}

/// Finds the files of modules. Verification is up to the caller: an implementation only knows names.
pub trait Resolver: Sync + std::fmt::Debug {
    /// Possible locations of a mapped file, best first.
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate>;

    /// Possible locations of the debug file with a build ID, best first.
    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf>;

    /// Possible locations of the debug file `name` of the module at `path`, best first.
    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf>;

    /// Possible locations of the symbol table of the kernel with a build ID, in the format of `/proc/kallsyms`, best first.
    fn kernel_tables(&self, _build_id: BuildId) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Opens a regular file for reading; of pseudo-files only [`KERNEL_FILES`].
    ///
    /// # Errors
    /// [`Missing::NotFound`], [`Missing::NotRegular`], [`Missing::OfKernel`] or [`Missing::Unreadable`].
    fn open(&self, path: &Path) -> Result<Opened, Missing>;

    /// Opens the first of these files that [`Resolver::open`] can open; returns its index.
    fn open_first(&self, paths: &[PathBuf]) -> Option<(usize, Opened)> {
        paths.iter().enumerate().find_map(|(at, path)| Some((at, self.open(path).ok()?)))
    }

    /// Whether the bytes of this file may be used if they are in the recording.
    fn uses_recorded_bytes(&self, _file: &MappedFile) -> bool {
        true
    }

    /// The same as [`Resolver::open`], for a file that must be this inode. If possible, no other file is opened, not even to identify it.
    ///
    /// # Errors
    /// Those of [`Resolver::open`], and [`Missing::Replaced`] if it is another inode.
    fn open_inode(&self, path: &Path, inode: Inode) -> Result<Opened, Missing> {
        self.open(path)
            .and_then(|opened| if opened.stat.inode_of_device() == inode { Ok(opened) } else { Err(Missing::Replaced) })
    }
}

/// Device (major and minor number) and inode, as shown for mappings.
pub type Inode = (u32, u32, u64);

/// Name of the kernel's symbol table in perf's build-id cache.
pub const KERNEL_TABLE: &str = "kallsyms";

/// The kernel's pseudo-files that are needed for kernel symbols.
pub const KERNEL_FILES: [&str; 3] = ["/proc/kallsyms", "/proc/stat", "/proc/sys/kernel/osrelease"];

/// File systems of pseudo-files: opening or reading them may block, consume data meant for others, or have side
/// effects.
///
/// # Sources
/// `include/uapi/linux/magic.h` of Linux 6.18; those of configfs, fusectl, mqueue, `rpc_pipefs` and nfsd are in their
/// source.
const KERNEL_FILE_SYSTEMS: [(&str, u64); 24] = [
    ("apparmorfs", 0x5a3c_69f0),
    ("binfmt_misc", 0x4249_4e4d),
    ("bpf", 0xcafe_4a11),
    ("cgroup", 0x0027_e0eb),
    ("cgroup2", 0x6367_7270),
    ("configfs", 0x6265_6570),
    ("debugfs", 0x6462_6720),
    ("devpts", 0x1cd1),
    ("efivarfs", 0xde5e_81e4),
    ("fusectl", 0x6573_5543),
    ("mqueue", 0x1980_0202),
    ("nfsd", 0x6e66_7364),
    ("nsfs", 0x6e73_6673),
    ("pidfs", 0x5049_4446),
    ("proc", 0x9fa0),
    ("pstore", 0x6165_676c),
    ("resctrl", 0x0765_5821),
    ("rpc_pipefs", 0x6759_6969),
    ("securityfs", 0x7363_6673),
    ("selinuxfs", 0xf97c_ff8c),
    ("smackfs", 0x4341_5d53),
    ("sysfs", 0x6265_6572),
    ("tracefs", 0x7472_6163),
    ("xenfs", 0xabba_1974),
];

/// ext2 to ext4, XFS and tmpfs, where stat(2) returns the device and inode that mappings show.
///
/// # Sources
/// `ext4_getattr`, `xfs_vn_getattr` and `shmem_getattr` of Linux return `s_dev` and `i_ino`, as `show_map_vma` does.
const PLAIN_FILE_SYSTEMS: [u64; 3] = [0xef53, 0x5846_5342, 0x0102_1994];

/// The magic number of the file system that an open file is on.
fn file_system(handle: &File) -> Result<u64, Missing> {
    let kind = rustix::fs::fstatfs(handle).map_err(|_| Missing::Unreadable)?.f_type;
    u64::try_from(kind).map_err(|_| Missing::Unreadable)
}

/// The modules in the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileModules {
    roots: Vec<PathBuf>,
    debug_dirs: Vec<PathBuf>,
    debuginfod_cache: Option<PathBuf>,
    perf_cache: Option<PathBuf>,
    has_recorded_inodes: bool,
    /// Devices of mounts by mount ID, read on first use.
    devices: OnceLock<BTreeMap<u64, (u32, u32)>>,
}

impl Default for FileModules {
    fn default() -> Self {
        Self {
            roots: Vec::new(),
            debug_dirs: vec!["/usr/lib/debug".into()],
            debuginfod_cache: None,
            perf_cache: None,
            has_recorded_inodes: true,
            devices: OnceLock::new(),
        }
    }
}

impl FileModules {
    /// The files of this machine, with debug files under `/usr/lib/debug`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `root`, a copy of the recorded machine's files, which takes precedence over the path itself.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.roots.push(root.into());
        self
    }

    /// Adds a directory of debug files, `dir/.build-id/xx/yyyy.debug`, which takes precedence over those added before.
    #[must_use]
    pub fn with_debug_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.debug_dirs.insert(0, dir.into());
        self
    }

    /// Looks last in `dir`, the cache of debuginfod clients: `dir/BUILDID/executable` and `dir/BUILDID/debuginfo`.
    #[must_use]
    pub fn with_debuginfod_cache(mut self, dir: impl Into<PathBuf>) -> Self {
        self.debuginfod_cache = Some(dir.into());
        self
    }

    /// Also looks in `dir`, perf's build-id cache, where `perf record` keeps the files it met: `dir/.build-id/xx/yyyy/elf`,
    /// `vdso` and `kallsyms`. It is also looked for in `.debug` of each root.
    ///
    /// # Sources
    /// `__dsos__cache_build_ids` and `build_id_cache__basename` in `tools/perf/util/build-id.c`.
    #[must_use]
    pub fn with_perf_cache(mut self, dir: impl Into<PathBuf>) -> Self {
        self.perf_cache = Some(dir.into());
        self
    }

    fn in_perf_caches(&self, build_id: BuildId, name: &str) -> Vec<PathBuf> {
        let hex = build_id.to_string();
        let Some((dir, rest)) = hex.split_at_checked(2) else { return Vec::new() };
        let place = Path::new(".build-id").join(dir).join(rest).join(name);
        let in_roots = self.roots.iter().map(|root| root.join(".debug").join(&place));
        in_roots.chain(self.perf_cache.iter().map(|cache| cache.join(&place))).collect()
    }

    fn in_debuginfod_cache(&self, build_id: BuildId, kind: &str) -> Option<PathBuf> {
        self.debuginfod_cache.as_ref().map(|dir| dir.join(build_id.to_string()).join(kind))
    }

    /// For a recording from another machine: inode numbers are meaningless here, build IDs decide.
    #[must_use]
    pub fn from_another_machine(mut self) -> Self {
        self.has_recorded_inodes = false;
        self
    }
}

impl Resolver for FileModules {
    fn candidates(&self, file: &MappedFile) -> Vec<Candidate> {
        let path = file.path.strip_suffix(b" (deleted)").unwrap_or(&file.path);
        let path = Path::new(OsStr::from_bytes(path));
        let kept_as = if path == Path::new("[vdso]") { "vdso" } else { "elf" };
        let kept = file.identity.build_id.map(|build_id| self.in_perf_caches(build_id, kept_as)).unwrap_or_default();
        let kept = kept.into_iter().map(|path| Candidate { path, has_recorded_inodes: false });
        let Ok(relative) = path.strip_prefix("/") else { return kept.collect() };
        let is_traversal = relative.components().any(|part| matches!(part, std::path::Component::ParentDir));
        if is_traversal {
            return Vec::new();
        }
        let own = Candidate { path: path.to_path_buf(), has_recorded_inodes: self.has_recorded_inodes };
        let copies = self.roots.iter().map(|root| Candidate { path: root.join(relative), has_recorded_inodes: false });
        let fetched = file.identity.build_id.and_then(|build_id| self.in_debuginfod_cache(build_id, "executable"));
        let fetched = fetched.map(|path| Candidate { path, has_recorded_inodes: false });
        copies.chain([own]).chain(kept).chain(fetched).collect()
    }

    fn debug_candidates(&self, build_id: BuildId) -> Vec<PathBuf> {
        let hex = build_id.to_string();
        let Some((dir, rest)) = hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) else {
            return Vec::new();
        };
        let name = format!(".build-id/{dir}/{rest}.debug");
        let in_roots = self.roots.iter().map(|root| root.join("usr/lib/debug").join(&name));
        let fetched = self.in_debuginfod_cache(build_id, "debuginfo");
        self.debug_dirs.iter().map(|dir| dir.join(&name)).chain(in_roots).chain(fetched).collect()
    }

    /// Next to the module, in `.debug` there, and under the debug directories at the module's path.
    ///
    /// # Sources
    /// GDB manual, "Debugging Information in Separate Files".
    fn link_candidates(&self, path: &Path, name: &[u8]) -> Vec<PathBuf> {
        let Some(dir) = path.parent().filter(|_| !name.is_empty() && !name.contains(&b'/')) else { return Vec::new() };
        let name = OsStr::from_bytes(name);
        let beside = [dir.join(name), dir.join(".debug").join(name)];
        let below = |root: &PathBuf| Some(root.join(dir.strip_prefix("/").ok()?).join(name));
        let candidates = beside.into_iter().chain(self.debug_dirs.iter().filter_map(below));
        // A link to the module itself has nothing to add.
        candidates.filter(|candidate| candidate != path).collect()
    }

    fn kernel_tables(&self, build_id: BuildId) -> Vec<PathBuf> {
        self.in_perf_caches(build_id, KERNEL_TABLE)
    }

    fn open(&self, path: &Path) -> Result<Opened, Missing> {
        let (file, stat) = self.open_file(path, None)?;
        Ok(Opened { reader: Box::new(file), stat })
    }

    fn open_inode(&self, path: &Path, inode: Inode) -> Result<Opened, Missing> {
        let (file, stat) = self.open_file(path, Some(inode))?;
        Ok(Opened { reader: Box::new(file), stat })
    }
}

impl FileModules {
    /// Opens a regular file for reading, like [`Resolver::open`], or with `only` like [`Resolver::open_inode`].
    ///
    /// # Errors
    /// Those of these functions.
    pub fn open_file(&self, path: &Path, only: Option<Inode>) -> Result<(File, FileStat), Missing> {
        let missing = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Missing::NotFound,
            _ => Missing::Unreadable,
        };
        // Examined before it is opened: opening a device may start it, and opening a pipe unblocks its writer.
        let handle = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).map_err(missing)?;
        let metadata = handle.metadata().map_err(missing)?;
        if !metadata.is_file() {
            return Err(Missing::NotRegular);
        }
        let file_system = file_system(&handle)?;
        let is_of_kernel = KERNEL_FILE_SYSTEMS.iter().any(|&(_, magic)| file_system == magic);
        if is_of_kernel && !KERNEL_FILES.iter().any(|known| Path::new(known) == path) {
            return Err(Missing::OfKernel);
        }
        let is_plain = PLAIN_FILE_SYSTEMS.contains(&file_system);
        let shown = if is_plain { None } else { self.shown_identity(&handle) };
        let (dev_major, dev_minor) = device_numbers(metadata.dev());
        let (dev_major, dev_minor, inode) = shown.unwrap_or((dev_major, dev_minor, metadata.ino()));
        if only.is_some_and(|only| only != (dev_major, dev_minor, inode)) {
            return Err(Missing::Replaced);
        }
        let by_handle = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(by_handle).map_err(missing)?;
        Ok((file, FileStat { dev_major, dev_minor, inode, ..FileStat::of(&metadata) }))
    }

    /// Device and inode of an open file as shown for mappings, and so in recordings. stat(2) may differ: btrfs returns
    /// the device of the subvolume, overlayfs that of the layer.
    ///
    /// # Sources
    /// proc(5), `/proc/PID/mountinfo` and `/proc/PID/fdinfo`; before Linux 5.14 the latter has no inode.
    fn shown_identity(&self, file: &File) -> Option<(u32, u32, u64)> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let devices = self.devices.get_or_init(devices_of_mounts);
        let &(dev_major, dev_minor) = devices.get(&field("mnt_id:")?)?;
        Some((dev_major, dev_minor, field("ino:")?))
    }
}

/// The devices of this process's mounts, by mount ID.
fn devices_of_mounts() -> BTreeMap<u64, (u32, u32)> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let device = |line: &str| {
        let mut fields = line.split(' ');
        let (mount, (major, minor)) = (fields.next()?.parse().ok()?, fields.nth(1)?.split_once(':')?);
        Some((mount, (major.parse().ok()?, minor.parse().ok()?)))
    };
    String::from_utf8_lossy(&text).lines().filter_map(device).collect()
}

fn nanoseconds(seconds: i64, nanoseconds: i64) -> i128 {
    i128::from(seconds).saturating_mul(1_000_000_000).saturating_add(i128::from(nanoseconds))
}

/// Major and minor number of an `st_dev`.
///
/// # Sources
/// glibc `bits/sysmacros.h`.
fn device_numbers(dev: u64) -> (u32, u32) {
    (libc::major(dev), libc::minor(dev))
}

//! A file name in a directory that is kept open.
//!
//! Checks, creation and renames all happen in the same directory, whatever its path refers to by then: its owner may
//! replace it by a link at any time.

use anyhow::Context as _;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, open, openat, renameat, statat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The place of a file that exists or is to be created.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
    /// The path, for messages only.
    path: PathBuf,
}

impl Place {
    /// Opens the directory of `path`.
    ///
    /// # Errors
    /// If it is a link of another user, who can change its target; if there is none; if `path` names no file.
    pub(super) fn of(path: &Path) -> anyhow::Result<Self> {
        let name = path.file_name().filter(|_| !path.as_os_str().as_bytes().ends_with(b"/"));
        let name = name.with_context(|| format!("{} is not a file name", path.display()))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let is_others = |link: Stat| {
            FileType::from_raw_mode(link.st_mode) == FileType::Symlink && ![0, own_uid()].contains(&link.st_uid)
        };
        let open_parent = || match open(parent, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(directory) => Ok(Some(directory)),
            Err(_) if rustix::fs::lstat(parent).is_ok_and(is_others) => Ok(None),
            Err(_) => open(parent, flags, Mode::empty()).map(Some),
        };
        let directory = open_parent().with_context(|| format!("cannot open the directory {}", parent.display()))?;
        let directory = directory.with_context(|| {
            format!("{} is a link of another user; name the directory that it leads to", parent.display())
        })?;
        Ok(Self { directory, name, path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The metadata of the file; if it is a link and `follow`, of its target.
    pub(super) fn stat(&self, follow: bool) -> io::Result<Stat> {
        let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        Ok(statat(&self.directory, &self.name, flags)?)
    }

    /// Opens the file, or creates it for its owner only, depending on `flags`.
    pub(super) fn open(&self, flags: OFlags) -> io::Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.directory, &self.name, flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Renames the file; a file with the new name is replaced.
    pub(super) fn rename(&self, to: &Self) -> io::Result<()> {
        Ok(renameat(&self.directory, &self.name, &to.directory, &to.name)?)
    }

    /// Removes the file.
    pub(super) fn remove(&self) -> io::Result<()> {
        Ok(unlinkat(&self.directory, &self.name, AtFlags::empty())?)
    }

    /// The place in the same directory whose name has `suffix` appended.
    pub(super) fn beside(&self, suffix: &str) -> io::Result<Self> {
        let with = |name: &OsStr| {
            let mut name = name.to_owned();
            name.push(suffix);
            name
        };
        Ok(Self {
            directory: self.directory.try_clone()?,
            name: with(&self.name),
            path: PathBuf::from(with(self.path.as_os_str())),
        })
    }

    /// Whether another user could have created the file.
    pub(super) fn is_open_to_others(&self) -> bool {
        fstat(&self.directory).is_ok_and(|stat| stat.st_mode & 0o022 != 0 || ![0, own_uid()].contains(&stat.st_uid))
    }
}

pub(super) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

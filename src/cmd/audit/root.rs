//! The directory tree to audit: this machine's, or an image's, whose links must not lead out of it.

use anyhow::Context as _;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// The most bytes of `/etc/os-release` that are read.
const MAX_OS_RELEASE_BYTES: u64 = 64 << 10;

/// A directory tree.
#[derive(Debug)]
pub(super) struct Root {
    /// The image's directory and its path; `None` for `/`.
    image: Option<(OwnedFd, PathBuf)>,
}

impl Root {
    /// Opens an image; `None` is this machine's own tree.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else { return Ok(Self { image: None }) };
        let open = || {
            let directory = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            Ok::<_, io::Error>((directory, path.canonicalize()?))
        };
        Ok(Self { image: Some(open().with_context(|| format!("cannot open {}", path.display()))?) })
    }

    /// Converts a path in the tree to a path of this machine, following links. Links in an image are resolved by the
    /// kernel as if after `chroot`.
    pub(super) fn resolve(&self, path: &Path) -> anyhow::Result<PathBuf> {
        let resolve = || match &self.image {
            None => path.canonicalize(),
            Some((directory, _)) => {
                let flags = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                let found = openat2(directory, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), flags)?;
                std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
            }
        };
        resolve().with_context(|| format!("cannot find {}{}", path.display(), self.inside()))
    }

    /// Converts a path of this machine to a path in the tree.
    pub(super) fn show(&self, path: &Path) -> PathBuf {
        match &self.image {
            Some((_, root)) => Path::new("/").join(path.strip_prefix(root).unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// The image's directory.
    pub(super) fn image(&self) -> Option<&Path> {
        self.image.as_ref().map(|(_, path)| path.as_path())
    }

    /// The tree's distribution name; empty if unknown.
    pub(super) fn distribution(&self) -> String {
        let text = self.resolve(Path::new("/etc/os-release")).and_then(|path| {
            let mut text = String::new();
            open_regular(&path)?.take(MAX_OS_RELEASE_BYTES).read_to_string(&mut text)?;
            Ok(text)
        });
        let text = text.unwrap_or_default();
        let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
        name.trim_matches(['"', '\'']).to_owned()
    }

    /// `" inside ROOT"`, for messages; empty without an image.
    pub(super) fn inside(&self) -> String {
        self.image().map_or_else(String::new, |root| format!(" inside {}", root.display()))
    }
}

/// Opens a regular file for reading. Never blocks on a pipe, and never follows a link that was put in the file's place.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty())?);
    Ok(file)
}

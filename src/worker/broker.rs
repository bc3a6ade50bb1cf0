//! The privileged side: opens files that the worker may have.

use super::files::{Files, KERNEL_NAMES};
use super::message::{Reply, Request, receive, send};
use crate::output::Pending;
use fpprof_analysis::modules::{FileModules, FileStat, Inode, KERNEL_FILES, KERNEL_TABLE, Missing};
use fpprof_collector::Place;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// Returns the next part of a running recording, as a file and the number of blocks left out of it. `None` at the end.
pub(crate) type Parts<'a> = &'a mut dyn FnMut() -> Option<(File, u64)>;

/// Answers requests until the worker has ended.
///
/// # Errors
/// If a request cannot be parsed or a reply cannot be sent.
pub(crate) fn serve(socket: &OwnedFd, files: &Files, parts: Parts<'_>) -> io::Result<()> {
    let modules = Arc::new(FileModules::new());
    let mut pending = None;
    while let Some((request, _)) = receive::<Request>(socket)? {
        let (reply, file) = answer(request, files, &modules, &mut pending, parts);
        match send(socket, &reply, file.as_ref().map(AsFd::as_fd)) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            sent => sent?,
        }
    }
    Ok(())
}

/// Answers one request. `pending` keeps the file of [`Request::Create`] until [`Request::Commit`] gives it its name.
pub(super) fn answer(
    request: Request,
    files: &Files,
    modules: &Arc<FileModules>,
    pending: &mut Option<Pending>,
    parts: Parts<'_>,
) -> (Reply, Option<OwnedFd>) {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let failed = |error: &anyhow::Error| (Reply::Failed(None, format!("{error:#}")), None);
    match request {
        Request::Module(bytes, only) => match module(&path(&bytes), only, files, modules) {
            Ok((file, stat)) => (Reply::Module(stat), Some(file.into())),
            Err(missing) => (Reply::Missing(missing), None),
        },
        Request::FirstModule(paths) => {
            let opened = |bytes: &Vec<u8>| module(&path(bytes), None, files, modules).ok();
            match paths.iter().enumerate().find_map(|(at, bytes)| Some((at, opened(bytes)?))) {
                Some((at, (file, stat))) => (Reply::FirstModule(at, stat), Some(file.into())),
                None => (Reply::Missing(Missing::NotFound), None),
            }
        }
        Request::Input(bytes) => match input(&path(&bytes), files) {
            Ok(file) => (Reply::Done, Some(file)),
            Err(error) => (Reply::Failed(error.raw_os_error(), error.to_string()), None),
        },
        Request::Create(bytes, older) => {
            match output(path(&bytes), files).and_then(|path| Pending::create(&path, older)) {
                Ok((file, created)) => {
                    *pending = Some(created);
                    (Reply::Done, Some(file.into()))
                }
                Err(error) => failed(&error),
            }
        }
        Request::Commit => match pending.take().map(Pending::commit) {
            Some(Ok(())) => (Reply::Done, None),
            Some(Err(error)) => failed(&error),
            None => failed(&anyhow::anyhow!("nothing was written")),
        },
        Request::Part => {
            let (file, left_out) = parts().map_or((None, 0), |(file, left_out)| (Some(file.into()), left_out));
            (Reply::Part(left_out), file)
        }
    }
}

/// Opens a module: an ELF file, a kernel's symbol table, or a file named on the command line or known by name. The worker may have been taken
/// over by the files it parses, so it gets no other file's bytes.
fn module(
    path: &Path,
    only: Option<Inode>,
    files: &Files,
    modules: &Arc<FileModules>,
) -> Result<(File, FileStat), Missing> {
    if let Some(debuginfod) = &files.debuginfod {
        debuginfod.fetch(path);
    }
    let Module { mut file, stat, kind } = match &files.calls {
        None => Module::open(path, only, modules)?,
        Some(calls) => {
            let (its_path, modules) = (path.to_owned(), Arc::clone(modules));
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            let opened = calls.call(Place::directory_of(path), move || Module::open(&its_path, only, &modules));
            opened.unwrap_or(Err(Missing::Unreadable))?
        }
    };
    if let Some(names) = files.kernel_names.as_ref().filter(|_| path == Path::new(KERNEL_NAMES)) {
        file = names.open(&file).map_err(|_error| Missing::Unreadable)?;
    }
    let is_named =
        files.inputs.iter().any(|input| input == path) || KERNEL_FILES.iter().any(|known| Path::new(known) == path);
    let is_expected = match kind {
        Kind::Elf => true,
        Kind::KernelTable => path.ends_with(KERNEL_TABLE),
        Kind::Other => false,
    };
    if is_named || is_expected { Ok((file, stat)) } else { Err(Missing::NotElf) }
}

/// An open file.
struct Module {
    file: File,
    stat: FileStat,
    kind: Kind,
}

/// What a file is by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Elf,
    /// A line begins with an address of 16 digits and a space.
    KernelTable,
    Other,
}

impl Kind {
    fn of(first: [u8; 17]) -> Self {
        match first {
            [0x7f, b'E', b'L', b'F', ..] => Self::Elf,
            [ref address @ .., b' '] if address.iter().all(u8::is_ascii_hexdigit) => Self::KernelTable,
            _ => Self::Other,
        }
    }
}

impl Module {
    fn open(path: &Path, only: Option<Inode>, modules: &FileModules) -> Result<Self, Missing> {
        let (file, stat) = modules.open_file(path, only)?;
        let mut first = [0; 17];
        let is_read = file.read_exact_at(&mut first, 0).is_ok();
        Ok(Self { file, stat, kind: if is_read { Kind::of(first) } else { Kind::Other } })
    }
}

fn input(path: &Path, files: &Files) -> io::Result<OwnedFd> {
    if !files.inputs.iter().any(|input| input == path) {
        return Err(io::Error::from(rustix::io::Errno::ACCESS));
    }
    if path == Path::new("-") {
        return io::stdin().as_fd().try_clone_to_owned();
    }
    File::open(path).map(OwnedFd::from)
}

fn output(path: PathBuf, files: &Files) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(files.outputs.contains(&path), "{} may not be written", path.display());
    Ok(path)
}

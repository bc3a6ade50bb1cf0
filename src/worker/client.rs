//! The worker's side: asks the broker for files that it cannot open itself.

use super::message::{Older, Reply, Request, receive, send};
use fpprof_analysis::modules::{Inode, Missing, Opened};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

static CLIENT: OnceLock<Client> = OnceLock::new();

/// The connection to the broker, at standard input. One request at a time: threads take turns.
#[derive(Debug, Default)]
pub(crate) struct Client {
    one: Mutex<()>,
}

/// Makes this process a worker whose broker is at standard input.
pub(super) fn connect() {
    CLIENT.get_or_init(Client::default);
}

/// The connection to the broker; `None` unless this process is a worker.
pub(crate) fn client() -> Option<&'static Client> {
    CLIENT.get()
}

impl Client {
    fn ask(&self, request: &Request) -> anyhow::Result<(Reply, Option<OwnedFd>)> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        send(io::stdin(), request, None)?;
        let answered = receive(io::stdin())?;
        answered.ok_or_else(|| anyhow::anyhow!("the process that opens files has ended"))
    }

    /// Creates a file that gets its name by [`Client::commit`].
    ///
    /// # Errors
    /// If it cannot be created.
    pub(crate) fn create(&self, path: &Path, older: Older) -> anyhow::Result<File> {
        self.file(&Request::Create(bytes_of(path), older))
    }

    /// Gives the created file its name, now that it is complete.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub(crate) fn commit(&self) -> anyhow::Result<()> {
        match self.ask(&Request::Commit)? {
            (Reply::Done, _) => Ok(()),
            (other, _) => Err(error_of(other)),
        }
    }

    /// The next part of a running recording, and how many blocks were left out of it. `None` at the end.
    ///
    /// # Errors
    /// If the broker is gone.
    pub(crate) fn part(&self) -> anyhow::Result<Option<(File, u64)>> {
        match self.ask(&Request::Part)? {
            (Reply::Part(left_out), file) => Ok(file.map(|file| (file.into(), left_out))),
            (other, _) => Err(error_of(other)),
        }
    }

    pub(super) fn module(&self, path: &Path, only: Option<Inode>) -> Result<Opened, Missing> {
        match self.ask(&Request::Module(bytes_of(path), only)) {
            Ok((Reply::Module(stat), Some(file))) => Ok(Opened { reader: Box::new(File::from(file)), stat }),
            Ok((Reply::Missing(missing), _)) => Err(missing),
            _ => Err(Missing::Unreadable),
        }
    }

    /// Opens the first of these files that there is; returns its index.
    pub(super) fn first_module(&self, paths: &[PathBuf]) -> Option<(usize, Opened)> {
        let request = Request::FirstModule(paths.iter().map(|path| bytes_of(path)).collect());
        match self.ask(&request) {
            Ok((Reply::FirstModule(at, stat), Some(file))) => {
                Some((at, Opened { reader: Box::new(File::from(file)), stat }))
            }
            _ => None,
        }
    }

    fn file(&self, request: &Request) -> anyhow::Result<File> {
        match self.ask(request)? {
            (Reply::Done, Some(file)) => Ok(file.into()),
            (other, _) => Err(error_of(other)),
        }
    }
}

fn error_of(reply: Reply) -> anyhow::Error {
    match reply {
        Reply::Failed(Some(code), _) => io::Error::from_raw_os_error(code).into(),
        Reply::Failed(None, words) => anyhow::Error::msg(words),
        other => anyhow::anyhow!("unexpected answer of the process that opens files: {other:?}"),
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

/// Opens a file of the command line for reading.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn open_input(path: &Path) -> anyhow::Result<File> {
    match client() {
        Some(client) => client.file(&Request::Input(bytes_of(path))),
        None => Ok(File::open(path)?),
    }
}

/// The standard input of the command: in a worker it is the broker's, since the worker's own is the socket.
///
/// # Errors
/// If the broker refuses it.
pub(crate) fn standard_input() -> anyhow::Result<File> {
    match client() {
        Some(_) => open_input(Path::new("-")),
        None => Ok(io::stdin().as_fd().try_clone_to_owned()?.into()),
    }
}

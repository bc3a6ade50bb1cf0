//! Messages between a worker and its broker: JSON, one message per packet, with a file descriptor if a file is passed.

use fpprof_analysis::modules::{FileStat, Inode, Missing};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum size of a message in bytes: room for a path of 4,096 bytes, the kernel's limit, each of which JSON writes as
/// a number.
const MAX_BYTES: usize = 32 << 10;
/// Maximum size of the paths of [`Request::FirstModule`] together.
pub(super) const MAX_PATH_BYTES: usize = 4096;

/// A request of the worker; paths are bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// A file needed for unwinding or symbolization; with an inode if no other file will do.
    Module(Vec<u8>, Option<Inode>),
    /// The first of these files that there is.
    FirstModule(Vec<Vec<u8>>),
    /// A file named on the command line.
    Input(Vec<u8>),
    /// A file to be written atomically, first under a temporary name.
    Create(Vec<u8>, Older),
    /// The file of [`Request::Create`] is complete.
    Commit,
    /// The next part of a recording in progress, once it is available.
    Part,
}

/// What becomes of an existing file of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Older {
    /// It is replaced, unless it is a recording or a program.
    Replaced,
    /// It is renamed to `NAME.old`, as an older recording.
    SetAside,
}

/// The broker's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The file is attached.
    Module(FileStat),
    /// The file with this index is attached.
    FirstModule(usize, FileStat),
    /// There is no such file.
    Missing(Missing),
    /// Success; the file is attached, if one was requested.
    Done,
    /// The part is in the attached file; the number of blocks that found no room in it. No file at the end.
    Part(u64),
    /// Failure: the error number, if the system gave one, and a message.
    Failed(Option<i32>, String),
}

/// Sends a message.
///
/// # Errors
/// If it is longer than [`MAX_BYTES`], as hostile paths in a recording can make it, or the receiver is gone.
pub(super) fn send(socket: impl AsFd, message: &impl Serialize, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MAX_BYTES {
        return Err(io::Error::from(rustix::io::Errno::NAMETOOLONG));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a message; `None` if the other side is gone.
///
/// # Errors
/// If it is not a valid message.
pub(super) fn receive<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(M, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    let length = match received {
        // The worker ended without reading an answer.
        Err(rustix::io::Errno::CONNRESET) => 0,
        other => other?.bytes,
    };
    let mut file = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            file = files.last().or(file);
        }
    }
    match bytes.get(..length) {
        None | Some([]) => Ok(None),
        Some(bytes) => Ok(Some((serde_json::from_slice(bytes)?, file))),
    }
}

//! What a worker and its broker say to each other: JSON, one message a packet, with a file where one is handed over.

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

/// Limit of a message in bytes: room for a path of the kernel's 4,096 bytes, each of which JSON writes as a number.
const MAX_BYTES: usize = 32 << 10;

/// What a worker asks for; paths as bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// A file that unwinding or naming needs; if one inode only will do, which.
    Module(Vec<u8>, Option<Inode>),
    /// A file of the command line.
    Input(Vec<u8>),
    /// A file to be written whole, beside its final name first.
    Create(Vec<u8>),
    /// The file of [`Request::Create`] is whole.
    Commit,
    /// The file of a new recording.
    Recording(Vec<u8>),
    /// The next part of a recording under way, once it is there.
    Part,
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// With the file.
    Module(FileStat),
    /// There is none.
    Missing(Missing),
    /// With the file, if one was asked for.
    Done,
    /// With the file.
    Recording(Made),
    /// With a file that holds it, and the number of blocks that found no room in it. Without a file at the end.
    Part(u64),
    /// By the number of the system's error, where it is one, or in words.
    Failed(Option<i32>, String),
}

/// What was made for a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Made {
    /// Nothing: it goes to a device or a pipe that was there.
    Nothing,
    /// A new file.
    New,
    /// A new file, for which an older one was moved aside.
    InPlaceOfOlder,
}

/// Sends a message.
///
/// # Errors
/// If it is longer than [`MAX_BYTES`], which the paths in a hostile recording can be, or nobody receives it.
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

/// Waits for a message; `None` where the other side is gone.
///
/// # Errors
/// If it is no message.
pub(super) fn receive<M: DeserializeOwned>(socket: impl AsFd) -> io::Result<Option<(M, Option<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    let length = match received {
        // A worker that ends with an answer unread.
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

//! Writes to a file that may block: a pipe that nobody reads.

use fpprof_collector::StopFlag;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

/// How long a recording that is to end waits for a reader that does not read.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval between attempts to open a pipe that has no reader.
const TRY_EVERY: Duration = Duration::from_millis(50);
/// A pipe that polls as writable accepts this many bytes without blocking.
///
/// # Sources
/// `PIPE_BUF` in pipe(7).
const PIPE_BYTES: usize = 4096;

/// A file whose writes wait until they are accepted, but not forever once `stop` is set.
#[derive(Debug)]
pub(crate) struct Patient {
    file: File,
    stop: &'static StopFlag,
    /// The most bytes per write; unlimited for regular files.
    most: usize,
    has_given_up: bool,
}

impl Patient {
    pub(crate) fn new(file: File, stop: &'static StopFlag) -> Self {
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self { file, stop, most: if is_file { usize::MAX } else { PIPE_BYTES }, has_given_up: false }
    }

    /// Stdout without a buffer.
    ///
    /// # Errors
    /// If the process has too many open files.
    pub(crate) fn stdout(stop: &'static StopFlag) -> io::Result<Self> {
        Ok(Self::new(File::from(io::stdout().as_fd().try_clone_to_owned()?), stop))
    }

    /// Waits until the file is writable; fails at once after an earlier wait has timed out.
    fn wait(&mut self) -> io::Result<()> {
        if self.has_given_up {
            return Err(Errno::EAGAIN.into());
        }
        let mut since = None;
        loop {
            let stopping = self.stop.signal().map(|_| since.get_or_insert_with(Instant::now).elapsed());
            let left = stopping.map(|waited| PATIENCE.saturating_sub(waited));
            let out = PollFd::new(self.file.as_fd(), PollFlags::POLLOUT);
            let stop = PollFd::new(self.stop.as_fd(), PollFlags::POLLIN);
            let mut fds = [out, stop];
            // The flag stays readable once it is set, so it is no longer polled.
            let watched = if stopping.is_some() { &mut fds[..1] } else { &mut fds[..] };
            let timeout = left.and_then(|left| PollTimeout::try_from(left).ok()).unwrap_or(PollTimeout::NONE);
            match poll(watched, timeout) {
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
                Ok(_) => {}
            }
            // The write reports an error.
            if fds[0].any() == Some(true) {
                return Ok(());
            }
            if left.is_some_and(|left| left.is_zero()) {
                self.has_given_up = true;
                return Err(Errno::EAGAIN.into());
            }
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.most == usize::MAX {
            return self.file.write(bytes);
        }
        loop {
            self.wait()?;
            match self.file.write(bytes.get(..self.most).unwrap_or(bytes)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a pipe or a device by `open`, which is passed additional flags. Waits for a pipe's reader, unless `stop` is
/// set before there is one.
///
/// # Errors
/// If it cannot be opened.
pub(super) fn open(open: impl Fn(OFlags) -> io::Result<File>, stop: &StopFlag) -> io::Result<File> {
    loop {
        match open(OFlags::NONBLOCK) {
            Err(error) if error.raw_os_error() == Some(nix::libc::ENXIO) && stop.signal().is_none() => {
                let mut fds = [PollFd::new(stop.as_fd(), PollFlags::POLLIN)];
                let timeout = PollTimeout::try_from(TRY_EVERY).unwrap_or(PollTimeout::ZERO);
                match poll(&mut fds, timeout) {
                    Err(error) if error != Errno::EINTR => return Err(error.into()),
                    _ => {}
                }
            }
            Err(error) if error.raw_os_error() == Some(nix::libc::ENXIO) => {
                return Err(io::Error::other("stopped before anything read it"));
            }
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// Check that a reader that did not read in time is given up permanently: nothing is offered to it again, even if
    /// it would read then, so that there is no second wait.
    #[test]
    fn a_reader_is_given_up_once() {
        let (mut reader, writer) = io::pipe().unwrap();
        let stop: &'static StopFlag = Box::leak(Box::new(StopFlag::new().unwrap()));
        let mut patient = Patient::new(File::from(std::os::fd::OwnedFd::from(writer)), stop);
        stop.stop(nix::libc::SIGINT);
        let written = std::iter::repeat_with(|| patient.write(&[7; PIPE_BYTES])).map_while(Result::ok).sum();
        assert!(written >= PIPE_BYTES, "what there is room for is written");
        reader.read_exact(&mut vec![0; written]).unwrap();
        let refused = patient.write(&[7]).map_err(|error| error.kind());
        assert_eq!(refused, Err(io::ErrorKind::WouldBlock));
    }
}

//! The kernel's messages about devices, including CPUs.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A socket for the kernel's messages about devices.
///
/// # Sources
/// `NETLINK_KOBJECT_UEVENT` in netlink(7); `lib/kobject_uevent.c`: `ACTION@DEVPATH`, a zero byte, and more.
#[derive(Debug)]
pub(crate) struct Uevents {
    socket: OwnedFd,
}

/// Multicast group 1 is the kernel's; group 2 is udev's.
const FROM_KERNEL: u32 = 1;
/// `UEVENT_BUFFER_SIZE` and room for the rest.
const MESSAGE_BYTES: usize = 8192;

impl Uevents {
    /// Starts listening.
    pub(crate) fn listen() -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_KOBJECT_UEVENT) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: all zeroes is a value of this C struct of integers.
        let mut address: libc::sockaddr_nl = unsafe { zeroed() };
        address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or_default();
        address.nl_groups = FROM_KERNEL;
        let bytes = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
        let pointer = (&raw const address).cast::<libc::sockaddr>();
        // SAFETY: `address` is readable for the bytes it says.
        let result = unsafe { libc::bind(socket.as_raw_fd(), pointer, bytes) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { socket }) }
    }

    /// The next message, truncated to its first bytes; `None` if there is none. Lost messages yield an empty one, which
    /// may be about anything.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut message = vec![0u8; MESSAGE_BYTES];
        let buffer = message.as_mut_ptr().cast();
        // SAFETY: `message` is writable for its length.
        let n = unsafe { libc::recv(self.socket.as_raw_fd(), buffer, MESSAGE_BYTES, 0) };
        match usize::try_from(n) {
            Ok(n) => {
                message.truncate(n);
                Some(message)
            }
            Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => Some(Vec::new()),
            Err(_) => None,
        }
    }
}

impl AsFd for Uevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

//! Parsing of perf ring records.

use fpprof_recording::model::{Comm, Exit, FileIdentity, Fork, Mmap};
use perf_event_open_sys::bindings;

/// Content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Body {
    /// A mapping; its identity has device and inode.
    Mmap(Mmap),
    Comm(Comm),
    Fork(Fork),
    Exit(Exit),
    /// Number of records lost for lack of room.
    Lost(u64),
    /// The kernel stopped a sampling event until its next timer tick.
    Throttle {
        time_ns: u64,
    },
    /// The kernel lets the event continue.
    Unthrottle {
        time_ns: u64,
    },
    /// A record of another type.
    Other,
}

/// Splits the bytes of a ring into records; stops at a malformed one.
pub(crate) struct Records<'a> {
    pub(crate) bytes: &'a [u8],
}

/// A record, not parsed yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'a> {
    kind: u32,
    misc: u32,
    body: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let mut header = Fields(self.bytes);
        let (kind, misc, size) = (header.u32()?, u32::from(header.u16()?), usize::from(header.u16()?));
        let body = self.bytes.get(8..size)?;
        self.bytes = self.bytes.get(size..)?;
        Some(Record { kind, misc, body })
    }
}

impl Record<'_> {
    /// Parses its content.
    pub(crate) fn body(&self) -> Body {
        parse(self.kind, self.misc, self.body).unwrap_or(Body::Other)
    }

    /// For a mapping without code: its process, and its time.
    pub(crate) fn data_mapping(&self) -> Option<(u32, u64)> {
        let prot = Fields(self.body.get(PROT_AT..)?).u32().filter(|_| self.kind == bindings::PERF_RECORD_MMAP2)?;
        let mut trailer = Fields(self.body.get(self.body.len().checked_sub(TRAILER_BYTES)?..)?.get(8..)?);
        let pid = Fields(self.body).u32()?;
        (prot & libc::PROT_EXEC.cast_unsigned() == 0).then_some((pid, trailer.u64()?))
    }
}

/// Offset of the protection in the body of a `PERF_RECORD_MMAP2`.
const PROT_AT: usize = 56;

/// Bytes after each record: process and thread, time, CPU, event (`PERF_SAMPLE_TID | TIME | CPU | IDENTIFIER`).
///
/// # Sources
/// `struct sample_id` in `include/uapi/linux/perf_event.h`.
const TRAILER_BYTES: usize = 32;

fn parse(kind: u32, misc: u32, body: &[u8]) -> Option<Body> {
    let (body, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER_BYTES)?)?;
    let mut trailer = Fields(trailer.get(8..)?);
    let time_ns = trailer.u64()?;
    let mut fields = Fields(body);
    Some(match kind {
        bindings::PERF_RECORD_MMAP2 => Body::Mmap(mmap(&mut fields, time_ns)?),
        bindings::PERF_RECORD_COMM => {
            let (pid, tid) = (fields.u32()?, fields.u32()?);
            let exec = misc & bindings::PERF_RECORD_MISC_COMM_EXEC != 0;
            Body::Comm(Comm { time_ns, pid, tid, comm: fields.string(), exec, start_ticks: 0 })
        }
        bindings::PERF_RECORD_FORK | bindings::PERF_RECORD_EXIT => {
            let (pid, parent_pid, tid, parent_tid) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
            let time_ns = fields.u64()?;
            match kind {
                bindings::PERF_RECORD_FORK => Body::Fork(Fork { time_ns, pid, tid, parent_pid, parent_tid }),
                _ => Body::Exit(Exit { time_ns, pid, tid }),
            }
        }
        bindings::PERF_RECORD_LOST => Body::Lost((fields.u64()?, fields.u64()?).1),
        bindings::PERF_RECORD_THROTTLE => Body::Throttle { time_ns: fields.u64()? },
        bindings::PERF_RECORD_UNTHROTTLE => Body::Unthrottle { time_ns: fields.u64()? },
        _ => Body::Other,
    })
}

/// Parses a mapping with device and inode, whatever its header says: we request no build IDs, but if somebody else's
/// event does, the kernel leaves their mark (`PERF_RECORD_MISC_MMAP_BUILD_ID`) on our record.
fn mmap(fields: &mut Fields<'_>, time_ns: u64) -> Option<Mmap> {
    let (pid, tid) = (fields.u32()?, fields.u32()?);
    let (start, len, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let identity = FileIdentity {
        dev_major: fields.u32()?,
        dev_minor: fields.u32()?,
        inode: fields.u64()?,
        inode_generation: fields.u64()?,
        build_id: None,
    };
    let (prot, flags) = (fields.u32()?, fields.u32()?);
    let path = fields.string();
    Some(Mmap { time_ns, pid, tid, start, len, file_offset, prot, flags, path, identity, synthesized: false })
}

/// Reads a record's fields from front to back.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_ne_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.take(8)?.try_into().ok()?))
    }

    /// The rest, up to its first zero byte.
    fn string(&mut self) -> Vec<u8> {
        self.0.split(|&byte| byte == 0).next().unwrap_or(&[]).to_vec()
    }
}

#[cfg(test)]
mod tests;

//! Encodes and decodes sideband events one after the other; compression is left to zstd.

use super::varint::{Cursor, put, put_delta};
use crate::error::Error;
use crate::model::{BuildId, Cgroup, Comm, Exit, FileIdentity, Fork, Mmap, ModuleBytes, Sideband};

/// The most bytes of an event: a path, a name or a module's image.
pub const MAX_EVENT_BYTES: usize = 48 << 20;

/// The most bytes of the path of a control group.
///
/// # Sources
/// `proc_cgroup_show` in `kernel/cgroup/cgroup.c`: the kernel shows no paths longer than `PATH_MAX`.
pub const MAX_CGROUP_BYTES: usize = 4096;

/// The most bytes that are kept of the environment of a process.
pub const MAX_ENVIRONMENT_BYTES: usize = 16 << 10;

const MMAP: u8 = 1;
const COMM: u8 = 2;
const FORK: u8 = 3;
const EXIT: u8 = 4;
const MODULE: u8 = 5;
const CGROUP: u8 = 6;
const CGROUP_AND_ENVIRONMENT: u8 = 7;

/// Collects the events of one block.
#[derive(Debug, Default)]
pub(crate) struct SidebandEncoder {
    payload: Vec<u8>,
    items: u32,
    time: u64,
}

impl SidebandEncoder {
    pub(crate) fn items(&self) -> u32 {
        self.items
    }

    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.items = 0;
        self.time = 0;
    }

    /// Adds an event; on an error, nothing is added.
    pub(crate) fn push(&mut self, event: &Sideband) -> Result<(), Error> {
        let sizes = match event {
            Sideband::Cgroup(event) => [
                ("the bytes of a control group's path", event.path.len(), MAX_CGROUP_BYTES),
                ("the bytes of an environment", event.environment.len(), MAX_ENVIRONMENT_BYTES),
            ],
            _ => [("a process event's bytes", variable_bytes(event), MAX_EVENT_BYTES); 2],
        };
        for (what, size, limit) in sizes {
            if size > limit {
                return Err(Error::TooLarge { what, value: size as u64, limit: limit as u64 });
            }
        }
        self.items += 1;
        let out = &mut self.payload;
        let time = &mut self.time;
        match event {
            Sideband::Mmap(event) => mmap(out, time, event),
            Sideband::Comm(event) => {
                head(out, time, COMM, event.time_ns, event.pid, event.tid);
                put_bytes(out, &event.comm);
                out.push(u8::from(event.exec));
                put(out, event.start_ticks);
            }
            Sideband::Fork(event) => {
                head(out, time, FORK, event.time_ns, event.pid, event.tid);
                put_delta(out, u64::from(event.parent_pid), u64::from(event.pid));
                put_delta(out, u64::from(event.parent_tid), u64::from(event.pid));
            }
            Sideband::Exit(event) => head(out, time, EXIT, event.time_ns, event.pid, event.tid),
            Sideband::Cgroup(event) => {
                let has_environment = !event.environment.is_empty();
                out.push(if has_environment { CGROUP_AND_ENVIRONMENT } else { CGROUP });
                put_delta(out, event.time_ns, std::mem::replace(time, event.time_ns));
                put(out, u64::from(event.pid));
                put_bytes(out, &event.path);
                if has_environment {
                    put_bytes(out, &event.environment);
                }
            }
            Sideband::Module(event) => {
                out.push(MODULE);
                put_bytes(out, &event.path);
                identity(out, &event.identity);
                put_bytes(out, &event.bytes);
            }
        }
        Ok(())
    }
}

/// Size of the parts of an event that vary.
pub(crate) fn variable_bytes(event: &Sideband) -> usize {
    match event {
        Sideband::Mmap(event) => event.path.len(),
        Sideband::Comm(event) => event.comm.len(),
        Sideband::Fork(_) | Sideband::Exit(_) => 0,
        Sideband::Cgroup(event) => event.path.len().saturating_add(event.environment.len()),
        Sideband::Module(event) => event.path.len().saturating_add(event.bytes.len()),
    }
}

fn head(out: &mut Vec<u8>, time: &mut u64, tag: u8, time_ns: u64, pid: u32, tid: u32) {
    out.push(tag);
    put_delta(out, time_ns, *time);
    *time = time_ns;
    put(out, u64::from(pid));
    put_delta(out, u64::from(tid), u64::from(pid));
}

fn mmap(out: &mut Vec<u8>, time: &mut u64, event: &Mmap) {
    head(out, time, MMAP, event.time_ns, event.pid, event.tid);
    put(out, event.start);
    put(out, event.len);
    put(out, event.file_offset);
    put(out, u64::from(event.prot));
    put(out, u64::from(event.flags));
    put_bytes(out, &event.path);
    identity(out, &event.identity);
    out.push(u8::from(event.synthesized));
}

fn identity(out: &mut Vec<u8>, identity: &FileIdentity) {
    put(out, u64::from(identity.dev_major));
    put(out, u64::from(identity.dev_minor));
    put(out, identity.inode);
    put(out, identity.inode_generation);
    put_bytes(out, identity.build_id.as_ref().map_or(&[], BuildId::as_bytes));
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Calls `visit` with the events of the payload. `Err` is the number of valid events, all of which have been visited.
pub(crate) fn decode_sideband(payload: &[u8], items: u32, mut visit: impl FnMut(&Sideband)) -> Result<(), u64> {
    let mut bytes = Cursor::new(payload);
    let mut time = 0;
    // There may be millions: reuse the memory of the previous name.
    let mut spare = Vec::new();
    for item in 0..items {
        let event = event(&mut bytes, &mut time, &mut spare).ok_or(item)?;
        visit(&event);
        match event {
            Sideband::Mmap(Mmap { path: name, .. })
            | Sideband::Comm(Comm { comm: name, .. })
            | Sideband::Cgroup(Cgroup { path: name, .. }) => spare = name,
            _ => {}
        }
    }
    if bytes.is_empty() { Ok(()) } else { Err(u64::from(items)) }
}

/// Decodes an event: tag, time, process and thread, as far as its kind has them, then its own fields.
fn event(bytes: &mut Cursor<'_>, time: &mut u64, spare: &mut Vec<u8>) -> Option<Sideband> {
    let tag = bytes.byte()?;
    if tag == MODULE {
        let path = get_bytes(bytes)?;
        let identity = get_identity(bytes)?;
        return Some(Sideband::Module(ModuleBytes { path, identity, bytes: get_bytes(bytes)? }));
    }
    *time = bytes.delta(*time)?;
    let time_ns = *time;
    let pid = bytes.u32()?;
    if tag == CGROUP || tag == CGROUP_AND_ENVIRONMENT {
        let path = get_name(bytes, spare).filter(|path| path.len() <= MAX_CGROUP_BYTES)?;
        let environment = if tag == CGROUP { Vec::new() } else { get_bytes(bytes)? };
        let is_short = environment.len() <= MAX_ENVIRONMENT_BYTES;
        return is_short.then_some(Sideband::Cgroup(Cgroup { time_ns, pid, path, environment }));
    }
    let tid = near(bytes, pid)?;
    Some(match tag {
        MMAP => Sideband::Mmap(Mmap {
            time_ns,
            pid,
            tid,
            start: bytes.varint()?,
            len: bytes.varint()?,
            file_offset: bytes.varint()?,
            prot: bytes.u32()?,
            flags: bytes.u32()?,
            path: get_name(bytes, spare)?,
            identity: get_identity(bytes)?,
            synthesized: get_bool(bytes)?,
        }),
        COMM => {
            let comm = get_name(bytes, spare)?;
            let exec = get_bool(bytes)?;
            Sideband::Comm(Comm { time_ns, pid, tid, comm, exec, start_ticks: bytes.varint()? })
        }
        FORK => {
            let parent_pid = near(bytes, pid)?;
            Sideband::Fork(Fork { time_ns, pid, tid, parent_pid, parent_tid: near(bytes, pid)? })
        }
        EXIT => Sideband::Exit(Exit { time_ns, pid, tid }),
        _ => return None,
    })
}

fn near(bytes: &mut Cursor<'_>, pid: u32) -> Option<u32> {
    bytes.delta(u64::from(pid))?.try_into().ok()
}

fn get_bool(bytes: &mut Cursor<'_>) -> Option<bool> {
    match bytes.byte()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn get_bytes(bytes: &mut Cursor<'_>) -> Option<Vec<u8>> {
    let len = bytes.len()?;
    bytes.take(len).map(<[u8]>::to_vec)
}

fn get_name(bytes: &mut Cursor<'_>, spare: &mut Vec<u8>) -> Option<Vec<u8>> {
    let len = bytes.len()?;
    let mut name = std::mem::take(spare);
    name.clear();
    name.extend_from_slice(bytes.take(len)?);
    Some(name)
}

fn get_identity(bytes: &mut Cursor<'_>) -> Option<FileIdentity> {
    let dev_major = bytes.u32()?;
    let dev_minor = bytes.u32()?;
    let inode = bytes.varint()?;
    let inode_generation = bytes.varint()?;
    let len = bytes.len().filter(|&len| len <= 20)?;
    let build_id = BuildId::new(bytes.take(len)?);
    Some(FileIdentity { dev_major, dev_minor, inode, inode_generation, build_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cgroup(bytes: usize) -> Cgroup {
        Cgroup { time_ns: 5, pid: 7, path: vec![b'a'; bytes], environment: Vec::new() }
    }

    /// Check that the path of a control group can be as long as the kernel shows it, but not longer: a longer one is
    /// neither written nor read, and what was written before remains valid.
    #[test]
    fn paths_of_control_groups_are_bounded() {
        let mut encoder = SidebandEncoder::default();
        encoder.push(&Sideband::Cgroup(cgroup(MAX_CGROUP_BYTES))).unwrap();
        let refused = encoder.push(&Sideband::Cgroup(cgroup(MAX_CGROUP_BYTES + 1))).unwrap_err();
        assert!(matches!(refused, Error::TooLarge { value: 4097, limit: 4096, .. }), "{refused}");
        let mut read = Vec::new();
        decode_sideband(encoder.payload(), encoder.items(), |event| read.push(event.clone())).unwrap();
        assert_eq!(read, [Sideband::Cgroup(cgroup(MAX_CGROUP_BYTES))]);
        let mut forged = vec![CGROUP, 0, 7];
        put_bytes(&mut forged, &cgroup(MAX_CGROUP_BYTES + 1).path);
        assert_eq!(decode_sideband(&forged, 1, |event| panic!("{event:?}")), Err(0));
    }

    /// Check the same of what is kept of an environment.
    #[test]
    fn environments_are_bounded() {
        let with = |bytes| Sideband::Cgroup(Cgroup { environment: vec![b'e'; bytes], ..cgroup(2) });
        let mut encoder = SidebandEncoder::default();
        encoder.push(&with(MAX_ENVIRONMENT_BYTES)).unwrap();
        encoder.push(&with(MAX_ENVIRONMENT_BYTES + 1)).unwrap_err();
        let mut read = Vec::new();
        decode_sideband(encoder.payload(), encoder.items(), |event| read.push(event.clone())).unwrap();
        assert_eq!(read, [with(MAX_ENVIRONMENT_BYTES)]);
        let mut forged = vec![CGROUP_AND_ENVIRONMENT, 0, 7, 0];
        put_bytes(&mut forged, &[0; MAX_ENVIRONMENT_BYTES + 1]);
        assert_eq!(decode_sideband(&forged, 1, |event| panic!("{event:?}")), Err(0));
    }
}

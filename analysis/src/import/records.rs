//! The records of a perf.data file one after the other, decompressed.

use super::error::ImportError;
use std::io::{self, Read, Seek};
use zstd::stream::raw::{Decoder, Operation as _};

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Bytes of `struct perf_event_header`.
const HEAD_BYTES: usize = 8;
/// Bytes decompressed at a time.
const CHUNK_BYTES: usize = 128 << 10;
/// Compressed records may become so many times as large. perf gets some 10, and 60 where most of each stack is zeros.
const MAX_GROWTH: u64 = 256;
/// And so many bytes more, for small files.
const SPARE_BYTES: u64 = 64 << 20;

/// perf's own records: they do not come from the kernel.
///
/// # Sources
/// `enum perf_user_event_type` in `tools/lib/perf/include/perf/event.h`.
pub(super) mod user {
    pub(crate) const FIRST: u32 = 64;
    pub(crate) const HEADER_ATTR: u32 = 64;
    pub(crate) const HEADER_TRACING_DATA: u32 = 66;
    pub(crate) const FINISHED_ROUND: u32 = 68;
    pub(crate) const AUXTRACE: u32 = 71;
    pub(crate) const HEADER_FEATURE: u32 = 80;
    pub(crate) const COMPRESSED: u32 = 81;
    pub(crate) const FINISHED_INIT: u32 = 82;
    pub(crate) const COMPRESSED2: u32 = 83;
}

/// What heads a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// `PERF_RECORD_*`.
    pub(super) kind: u32,
    pub(super) misc: u16,
}

/// Reads records.
pub(super) struct Records<R> {
    input: R,
    /// Bytes of records that are left; `None` where the input's end says so.
    left: Option<u64>,
    is_pipe: bool,
    decoder: Option<Decoder<'static>>,
    /// A compressed record, and how much of it is decompressed.
    packed: Vec<u8>,
    packed_at: usize,
    /// The decoder may hold decompressed bytes that there was no room for.
    is_full: bool,
    /// Decompressed bytes, and how many of them are taken.
    plain: Vec<u8>,
    plain_at: usize,
    n_packed: u64,
    n_plain: u64,
    damage: Option<&'static str>,
    /// How samples are passed over, where nobody wants them.
    pass_over: Option<fn(&mut R, i64) -> io::Result<()>>,
}

impl<R: Read + Seek> Records<R> {
    /// Leaves samples out, without reading those that are not compressed.
    pub(super) fn without_samples(mut self) -> Self {
        self.pass_over = Some(|input, n_bytes| input.seek_relative(n_bytes));
        self
    }
}

impl<R: Read> Records<R> {
    /// The records in the next `left` bytes, or up to the end.
    pub(super) fn new(input: R, left: Option<u64>, is_pipe: bool) -> Self {
        Self {
            input,
            left,
            is_pipe,
            decoder: None,
            packed: Vec::new(),
            packed_at: 0,
            is_full: false,
            plain: Vec::new(),
            plain_at: 0,
            n_packed: 0,
            n_plain: 0,
            damage: None,
            pass_over: None,
        }
    }

    /// Why there are no more records though there was more to come.
    pub(super) fn damage(&self) -> Option<&'static str> {
        self.damage
    }

    /// The next record; its body replaces `body`. `None` at the end, or where the rest cannot be read.
    ///
    /// # Errors
    /// If the input fails, or grows beyond all measure when it is decompressed.
    pub(super) fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<Head>, ImportError> {
        loop {
            if let Some(head) = self.next_plain(body) {
                if self.pass_over.is_none() || head.kind != SAMPLE {
                    return Ok(Some(head));
                }
                continue;
            }
            if self.damage.is_some() {
                return Ok(None);
            }
            if self.packed_at < self.packed.len() || self.is_full {
                self.inflate()?;
                continue;
            }
            let Some(head) = self.next_raw(body)? else { return Ok(None) };
            match head.kind {
                user::COMPRESSED => self.unpack(body, 0, body.len()),
                user::COMPRESSED2 => {
                    let len = body.first_chunk().and_then(|len| usize::try_from(u64::from_le_bytes(*len)).ok());
                    self.unpack(body, 8, len.and_then(|len| len.checked_add(8)).unwrap_or(usize::MAX));
                }
                user::AUXTRACE => {
                    let len = body.first_chunk().map_or(0, |len| u64::from_le_bytes(*len));
                    self.skip(len)?;
                    return Ok(Some(head));
                }
                user::HEADER_TRACING_DATA if self.is_pipe => {
                    let len = body.first_chunk().map_or(0, |len| u64::from(u32::from_le_bytes(*len)));
                    self.skip(len.next_multiple_of(8))?;
                    return Ok(Some(head));
                }
                SAMPLE if self.pass_over.is_some() => {}
                _ => return Ok(Some(head)),
            }
        }
    }

    /// A record among the decompressed bytes, if a whole one is there.
    fn next_plain(&mut self, body: &mut Vec<u8>) -> Option<Head> {
        let rest = self.plain.get(self.plain_at..)?;
        let (head, len) = parse_head(rest.first_chunk()?);
        let record = rest.get(..len)?;
        let Some(content) = record.get(HEAD_BYTES..) else {
            self.damage = Some("a record is shorter than its head");
            return None;
        };
        body.clear();
        body.extend_from_slice(content);
        self.plain_at = self.plain_at.saturating_add(len);
        Some(head)
    }

    /// The next record as it stands in the file.
    fn next_raw(&mut self, body: &mut Vec<u8>) -> Result<Option<Head>, ImportError> {
        if self.left == Some(0) {
            if self.plain_at < self.plain.len() {
                self.damage = Some("the last compressed record is cut off");
            }
            return Ok(None);
        }
        let mut bytes = [0; HEAD_BYTES];
        match self.fill(&mut bytes)? {
            0 if self.left.is_none() => return Ok(None),
            HEAD_BYTES => {}
            _ => {
                self.damage = Some("it is cut off");
                return Ok(None);
            }
        }
        let (head, len) = parse_head(&bytes);
        let Some(content) = len.checked_sub(HEAD_BYTES) else {
            self.damage = Some("a record is shorter than its head");
            return Ok(None);
        };
        if let Some(pass_over) = self.pass_over.filter(|_| head.kind == SAMPLE) {
            body.clear();
            pass_over(&mut self.input, i64::try_from(content).unwrap_or(0)).map_err(ImportError::Read)?;
            self.left = self.left.map(|left| left.saturating_sub(content as u64));
            return Ok(Some(head));
        }
        body.resize(content, 0);
        if self.fill(body)? < content {
            self.damage = Some("it is cut off");
            return Ok(None);
        }
        Ok(Some(head))
    }

    /// Reads as much as there is; how much was that.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<usize, ImportError> {
        let wanted = self.left.map_or(bytes.len(), |left| bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        let mut n = 0;
        while let Some(rest) = bytes.get_mut(n..wanted).filter(|rest| !rest.is_empty()) {
            match self.input.read(rest) {
                Ok(0) => break,
                Ok(more) => n = n.saturating_add(more),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ImportError::Read(error)),
            }
        }
        self.left = self.left.map(|left| left.saturating_sub(n as u64));
        Ok(n)
    }

    /// Passes over data that follows a record.
    fn skip(&mut self, len: u64) -> Result<(), ImportError> {
        let wanted = self.left.map_or(len, |left| left.min(len));
        let skipped = io::copy(&mut self.input.by_ref().take(wanted), &mut io::sink()).map_err(ImportError::Read)?;
        self.left = self.left.map(|left| left.saturating_sub(skipped));
        if skipped < len {
            self.damage = Some("it is cut off");
        }
        Ok(())
    }

    /// Takes a part of a body to be decompressed.
    fn unpack(&mut self, body: &[u8], start: usize, end: usize) {
        self.packed.clear();
        self.packed_at = 0;
        match body.get(start..end) {
            Some(packed) => self.packed.extend_from_slice(packed),
            None => self.damage = Some("a compressed record is longer than the room for it"),
        }
    }

    /// Decompresses the next bytes.
    fn inflate(&mut self) -> Result<(), ImportError> {
        self.plain.drain(..self.plain_at);
        self.plain_at = 0;
        let decoder = match &mut self.decoder {
            Some(decoder) => decoder,
            none => none.insert(Decoder::new().map_err(ImportError::Compressed)?),
        };
        let before = self.plain.len();
        self.plain.resize(before.saturating_add(CHUNK_BYTES), 0);
        let (input, output) = (self.packed.get(self.packed_at..), self.plain.get_mut(before..));
        let status = decoder.run_on_buffers(input.unwrap_or(&[]), output.unwrap_or(&mut []));
        let Ok(status) = status else {
            self.plain.truncate(before);
            self.damage = Some("a compressed record cannot be decompressed");
            return Ok(());
        };
        self.plain.truncate(before.saturating_add(status.bytes_written));
        self.packed_at = self.packed_at.saturating_add(status.bytes_read);
        self.is_full = status.bytes_written == CHUNK_BYTES;
        if self.packed_at < self.packed.len() && status.bytes_read == 0 && status.bytes_written == 0 {
            self.damage = Some("a compressed record cannot be decompressed");
        }
        self.n_packed = self.n_packed.saturating_add(status.bytes_read as u64);
        self.n_plain = self.n_plain.saturating_add(status.bytes_written as u64);
        if self.n_plain > self.n_packed.saturating_mul(MAX_GROWTH).saturating_add(SPARE_BYTES) {
            return Err(ImportError::Bomb(MAX_GROWTH));
        }
        Ok(())
    }
}

/// What a head says, and the bytes of its record with it.
fn parse_head(&[k0, k1, k2, k3, m0, m1, s0, s1]: &[u8; HEAD_BYTES]) -> (Head, usize) {
    let head = Head { kind: u32::from_le_bytes([k0, k1, k2, k3]), misc: u16::from_le_bytes([m0, m1]) };
    (head, usize::from(u16::from_le_bytes([s0, s1])))
}

/// perf's name of a record of its own.
pub(super) fn user_name(kind: u32) -> String {
    let names = [
        "HEADER_ATTR",
        "HEADER_EVENT_TYPE",
        "HEADER_TRACING_DATA",
        "HEADER_BUILD_ID",
        "FINISHED_ROUND",
        "ID_INDEX",
        "AUXTRACE_INFO",
        "AUXTRACE",
        "AUXTRACE_ERROR",
        "THREAD_MAP",
        "CPU_MAP",
        "STAT_CONFIG",
        "STAT",
        "STAT_ROUND",
        "EVENT_UPDATE",
        "TIME_CONV",
        "HEADER_FEATURE",
        "COMPRESSED",
        "FINISHED_INIT",
        "COMPRESSED2",
    ];
    let name = kind.checked_sub(user::FIRST).and_then(|index| names.get(usize::try_from(index).ok()?));
    name.map_or_else(|| format!("type {kind}"), |&name| name.to_owned())
}

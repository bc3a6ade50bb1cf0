//! Reads and decompresses the records of a perf.data file.

use super::error::ImportError;
use super::stacks::{Prefix, StackPlace};
use std::io::{self, Read, Seek, SeekFrom};
use zstd::stream::raw::{Decoder, Operation as _};

/// `PERF_RECORD_SAMPLE`.
pub(super) const SAMPLE: u32 = 9;
/// Bytes of `struct perf_event_header`.
const HEAD_BYTES: usize = 8;
/// Bytes decompressed at a time.
const CHUNK_BYTES: usize = 128 << 10;
/// Limit of the compression ratio. perf achieves about 10, and 60 if most of each stack is zeros.
const MAX_GROWTH: u64 = 256;
/// Additional allowance for small files.
const SPARE_BYTES: u64 = 16 << 20;

/// perf's own record types from this number on, which do not exist yet, are counted together.
const MAX_NAMED: u32 = 256;

/// perf's own records, which do not come from the kernel.
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

/// A record's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// `PERF_RECORD_*`.
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// The stack of a sample, if it was left out of the body.
    pub(super) stack: Option<StackPlace>,
}

/// Seek operations of an input that is a file.
struct Seeking<R> {
    by: fn(&mut R, i64) -> io::Result<()>,
    to: fn(&mut R, u64) -> io::Result<u64>,
}

/// Reads records.
pub(super) struct Records<R> {
    input: R,
    /// Bytes of records that are left; `None` if they extend to the end of the input.
    left: Option<u64>,
    /// File offset of the next record.
    at: u64,
    /// The input's position is not `at`.
    is_elsewhere: bool,
    seeking: Option<Seeking<R>>,
    /// What precedes the stacks in samples, if stacks are left in the file.
    prefix: Option<Prefix>,
    is_pipe: bool,
    decoder: Option<Decoder<'static>>,
    /// A compressed record, and how much of it was decompressed.
    packed: Vec<u8>,
    packed_at: usize,
    /// The decoder may have more output than fitted.
    is_full: bool,
    /// Decompressed bytes, and how many of them were consumed.
    plain: Vec<u8>,
    plain_at: usize,
    n_packed: u64,
    n_plain: u64,
    damage: Option<&'static str>,
    /// Samples are to be skipped.
    is_without_samples: bool,
}

impl<R: Read + Seek> Records<R> {
    /// The records of a file starting at `at`: `left` bytes, or up to its end.
    pub(super) fn of_file(mut input: R, at: u64, left: Option<u64>) -> io::Result<Self> {
        input.seek(SeekFrom::Start(at))?;
        let seeking = Seeking {
            by: |input: &mut R, bytes| input.seek_relative(bytes),
            to: |input: &mut R, at| input.seek(SeekFrom::Start(at)),
        };
        Ok(Self { at, left, seeking: Some(seeking), ..Self::new(input, false) })
    }

    /// Skips samples, without reading uncompressed ones.
    pub(super) fn without_samples(mut self) -> Self {
        self.is_without_samples = true;
        self
    }
}

impl<R: Read> Records<R> {
    /// The records up to the end of the input.
    pub(super) fn new(input: R, is_pipe: bool) -> Self {
        Self {
            input,
            left: None,
            at: 0,
            is_elsewhere: false,
            seeking: None,
            prefix: None,
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
            is_without_samples: false,
        }
    }

    /// Leaves the stacks of samples, which follow `prefix`, in the file from now on; with `None`, reads them.
    pub(super) fn leave_stacks(&mut self, prefix: Option<Prefix>) {
        self.prefix = prefix.filter(|_| self.seeking.is_some());
    }

    /// Reads a stack that was left in the file.
    pub(super) fn read_stack(&mut self, place: StackPlace, stack: &mut Vec<u8>) -> io::Result<()> {
        self.is_elsewhere = true;
        if let Some(seeking) = &self.seeking {
            (seeking.to)(&mut self.input, place.offset)?;
        }
        stack.resize(place.len.into(), 0);
        self.input.read_exact(stack)
    }

    /// Why reading stopped although there should be more records.
    pub(super) fn damage(&self) -> Option<&'static str> {
        self.damage
    }

    /// Reads the next record; its body replaces `body`. `None` at the end, or if the rest cannot be read.
    ///
    /// # Errors
    /// If the input fails, or decompresses to more than the limit.
    pub(super) fn next(&mut self, body: &mut Vec<u8>) -> Result<Option<Head>, ImportError> {
        loop {
            if let Some(head) = self.next_plain(body) {
                if !self.is_without_samples || head.kind != SAMPLE {
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
                SAMPLE if self.is_without_samples => {}
                _ => return Ok(Some(head)),
            }
        }
    }

    /// The next record from the decompressed bytes, if it is complete.
    fn next_plain(&mut self, body: &mut Vec<u8>) -> Option<Head> {
        let rest = self.plain.get(self.plain_at..)?;
        let (head, len) = parse_head(rest.first_chunk()?);
        let record = rest.get(..len)?;
        let Some(content) = record.get(HEAD_BYTES..) else {
            self.damage = Some("a record is shorter than its header");
            return None;
        };
        body.clear();
        body.extend_from_slice(content);
        self.plain_at = self.plain_at.saturating_add(len);
        Some(head)
    }

    /// The next record as stored in the file.
    fn next_raw(&mut self, body: &mut Vec<u8>) -> Result<Option<Head>, ImportError> {
        if self.left == Some(0) {
            if self.plain_at < self.plain.len() {
                self.damage = Some("the last compressed record is truncated");
            }
            return Ok(None);
        }
        if std::mem::take(&mut self.is_elsewhere)
            && let Some(seeking) = &self.seeking
        {
            (seeking.to)(&mut self.input, self.at).map_err(ImportError::Read)?;
        }
        let mut bytes = [0; HEAD_BYTES];
        match self.fill(&mut bytes)? {
            0 if self.left.is_none() => return Ok(None),
            HEAD_BYTES => {}
            _ => {
                self.damage = Some("it is truncated");
                return Ok(None);
            }
        }
        let (mut head, len) = parse_head(&bytes);
        let Some(content) = len.checked_sub(HEAD_BYTES) else {
            self.damage = Some("a record is shorter than its header");
            return Ok(None);
        };
        body.clear();
        if head.kind == SAMPLE && self.is_without_samples && self.seek_forward(content)? {
            return Ok(Some(head));
        }
        if head.kind == SAMPLE
            && let Some(prefix) = self.prefix
        {
            head.stack = self.next_without_stack(prefix, body, content)?;
        } else {
            self.grow(body, content)?;
        }
        Ok(self.damage.is_none().then_some(head))
    }

    /// Reads a sample of this many bytes without its stack, whose size is set to zero. If the stack cannot be left out,
    /// reads all of it.
    fn next_without_stack(
        &mut self,
        prefix: Prefix,
        body: &mut Vec<u8>,
        content: usize,
    ) -> Result<Option<StackPlace>, ImportError> {
        let left = |body: &[u8]| content.saturating_sub(body.len());
        let room = prefix.read(|bytes| if bytes > left(body) { Ok(None) } else { self.grow(body, bytes) })?;
        let room = room.and_then(|room| u16::try_from(room).ok()).filter(|room| usize::from(*room) + 8 <= left(body));
        let offset = self.at;
        let Some(room) = room.filter(|room| *room > 0) else {
            self.grow(body, left(body))?;
            return Ok(None);
        };
        let rest = left(body) - usize::from(room) - 8;
        self.seek_forward(room.into())?;
        if let Some(size) = body.last_chunk_mut() {
            *size = [0; 8];
        }
        let before = body.len();
        let copied = self.grow(body, 8)?.unwrap_or(0);
        body.truncate(before);
        self.grow(body, rest)?;
        Ok(Some(StackPlace { offset, len: u16::try_from(copied).unwrap_or(u16::MAX).min(room) }))
    }

    /// Reads `bytes` more of a body, and returns their last word.
    fn grow(&mut self, body: &mut Vec<u8>, bytes: usize) -> Result<Option<u64>, ImportError> {
        let before = body.len();
        body.resize(before.saturating_add(bytes), 0);
        if self.fill(body.get_mut(before..).unwrap_or(&mut []))? < bytes {
            self.damage = Some("it is truncated");
            return Ok(None);
        }
        Ok(body.last_chunk().map(|word| u64::from_le_bytes(*word)))
    }

    /// Seeks forward in a file; false if the input is not a file. The next read detects a seek beyond the end.
    fn seek_forward(&mut self, bytes: usize) -> Result<bool, ImportError> {
        let (Some(seeking), Ok(by)) = (&self.seeking, i64::try_from(bytes)) else { return Ok(false) };
        (seeking.by)(&mut self.input, by).map_err(ImportError::Read)?;
        self.advance(bytes as u64);
        Ok(true)
    }

    fn advance(&mut self, bytes: u64) {
        self.at = self.at.saturating_add(bytes);
        self.left = self.left.map(|left| left.saturating_sub(bytes));
    }

    /// Reads as much as is available; returns how much.
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
        self.advance(n as u64);
        Ok(n)
    }

    /// Skips data that follows a record.
    fn skip(&mut self, len: u64) -> Result<(), ImportError> {
        let wanted = self.left.map_or(len, |left| left.min(len));
        let skipped = io::copy(&mut self.input.by_ref().take(wanted), &mut io::sink()).map_err(ImportError::Read)?;
        self.advance(skipped);
        if skipped < len {
            self.damage = Some("it is truncated");
        }
        Ok(())
    }

    /// Stores the part of a body that is to be decompressed.
    fn unpack(&mut self, body: &[u8], start: usize, end: usize) {
        self.packed.clear();
        self.packed_at = 0;
        match body.get(start..end) {
            Some(packed) => self.packed.extend_from_slice(packed),
            None => self.damage = Some("a compressed record is too long"),
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
            self.damage = Some("cannot decompress a record");
            return Ok(());
        };
        self.plain.truncate(before.saturating_add(status.bytes_written));
        self.packed_at = self.packed_at.saturating_add(status.bytes_read);
        self.is_full = status.bytes_written == CHUNK_BYTES;
        if self.packed_at < self.packed.len() && status.bytes_read == 0 && status.bytes_written == 0 {
            self.damage = Some("cannot decompress a record");
        }
        self.n_packed = self.n_packed.saturating_add(status.bytes_read as u64);
        self.n_plain = self.n_plain.saturating_add(status.bytes_written as u64);
        if self.n_plain > self.n_packed.saturating_mul(MAX_GROWTH).saturating_add(SPARE_BYTES) {
            return Err(ImportError::Bomb(MAX_GROWTH));
        }
        Ok(())
    }
}

/// Parses a record's header; also returns the length of the record.
fn parse_head(&[k0, k1, k2, k3, m0, m1, s0, s1]: &[u8; HEAD_BYTES]) -> (Head, usize) {
    let head = Head { kind: u32::from_le_bytes([k0, k1, k2, k3]), misc: u16::from_le_bytes([m0, m1]), stack: None };
    (head, usize::from(u16::from_le_bytes([s0, s1])))
}

/// perf's name for one of its own record types.
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
    // A file may have any number of types.
    let unknown = || if kind < MAX_NAMED { format!("type {kind}") } else { format!("types from {MAX_NAMED} on") };
    name.map_or_else(unknown, |&name| name.to_owned())
}

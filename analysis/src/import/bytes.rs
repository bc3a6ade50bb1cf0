//! Parses little-endian numbers and strings from bytes that may be truncated.

/// The bytes that are left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

/// A record: `struct perf_event_header` and its body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) misc: u16,
    pub(super) body: Bytes<'a>,
}

impl<'a> Bytes<'a> {
    /// Takes the next `len` bytes; takes nothing if there are fewer.
    pub(super) fn take(&mut self, len: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// `struct perf_header_string`: its length with padding, and the zero-terminated string.
    pub(super) fn text(&mut self) -> Option<String> {
        let len = self.u32()?;
        let bytes = Self(self.take(len.into())?).until_zero();
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// The bytes before the first zero, or all of them.
    pub(super) fn until_zero(&self) -> &'a [u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or(&[])
    }

    /// The next record.
    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        let (_, misc, len) = (self.u32()?, self.u16()?, self.u16()?);
        let body = Self(self.take(u64::from(len).checked_sub(8)?)?);
        Some(Record { misc, body })
    }
}

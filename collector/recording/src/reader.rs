//! Reads recordings.

use crate::block::{FORMAT_VERSION, HEADER_BYTES, Header, Kind, MARKER};
use crate::codec::{decode_gaps, decode_samples, decode_sideband, decode_who, is_thread_column};
use crate::damage::Damage;
use crate::error::{Error, LooksLike};
use crate::model::{Checkpoint, End, Gap, Machine, Meta, Sample, Sideband};
use crate::pack::Payload;
use crate::scan::{Found, Scan, scan, select};
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};

/// An open recording, with its metadata; its blocks are known to be intact.
///
/// Read the sideband first and then the samples: the mapping a sample needs may come after it in the file.
#[derive(Debug)]
pub struct Recording<R: ?Sized> {
    meta: Meta,
    end: Option<End>,
    checkpoint: Option<Checkpoint>,
    blocks: Vec<Found>,
    damage: Damage,
    malformed: BTreeSet<u32>,
    file_bytes: u64,
    /// Last, so that a reference converts to one of `Recording<dyn Trait>`.
    source: R,
}

impl<R: Read + Seek> Recording<R> {
    /// Reads the file once from start to end, checks every block, and skips damage; [`Self::damage`] has what is
    /// missing then.
    ///
    /// # Errors
    /// [`Error::NotARecording`], [`Error::NewerVersion`], [`Error::NoMeta`] for a file without usable contents,
    /// [`Error::BadJson`] for metadata that is intact but unknown, [`Error::Read`] if the source fails.
    pub fn open(mut source: R) -> Result<Self, Error> {
        let scan = check_and_scan(&mut source)?;
        let Some((meta, recording)) = find_meta(&mut source, &scan)? else {
            return Err(match scan.newer {
                Some(found) => Error::NewerVersion { found, supported: FORMAT_VERSION },
                None => Error::NoMeta,
            });
        };
        let (blocks, damage) = select(&scan, recording);
        let end = read_last(&mut source, &blocks, Kind::End, "end")?;
        let checkpoint = read_last(&mut source, &blocks, Kind::Checkpoint, "checkpoint")?;
        let meta = from_json("description", &meta)?;
        Ok(Self { meta, end, checkpoint, blocks, damage, malformed: BTreeSet::new(), file_bytes: scan.len, source })
    }
}

impl<R: Read + Seek + ?Sized> Recording<R> {
    /// Options and environment of the recording.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// How it ended; `None` if it broke off.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The last checkpoint of the counters, for a recording without an end; `None` if there is none.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.checkpoint.as_ref()
    }

    /// What cannot be read. Malformed blocks are added when they are encountered.
    #[must_use]
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Size of the file, bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Number of samples according to the headers of valid blocks, without decoding them.
    #[must_use]
    pub fn n_samples(&self) -> u64 {
        self.blocks.iter().filter(|b| b.header.kind == Kind::Samples).map(|b| u64::from(b.header.items)).sum()
    }

    /// Visits the process events in the order of the file, which is that of [`crate::RecordingWriter::sideband`].
    /// Blocks of samples are skipped without being unpacked.
    ///
    /// # Errors
    /// [`Error::Read`] if the source fails, [`Error::Changed`] if the file has changed.
    pub fn sideband(&mut self, mut visit: impl FnMut(&Sideband)) -> Result<(), Error> {
        for found in self.blocks_of(Kind::Sideband) {
            let stored = read_stored(&mut self.source, &found)?;
            let decoded = unpack(&found.header, &stored)
                .and_then(|payload| Some(decode_sideband(payload.only_part()?, found.header.items, &mut visit)))
                .unwrap_or(Err(0));
            if let Err(good) = decoded {
                let lost = u64::from(found.header.items).saturating_sub(good);
                self.note_malformed(found.header.sequence, |damage| &mut damage.lost_sideband, lost);
            }
        }
        Ok(())
    }

    /// Visits the gaps in the order of the file: for each CPU and cause in order of time. Recordings of format version
    /// 1 have none, only counts.
    ///
    /// # Errors
    /// As for [`Self::sideband`].
    pub fn gaps(&mut self, mut visit: impl FnMut(&Gap)) -> Result<(), Error> {
        for found in self.blocks_of(Kind::Gaps) {
            let stored = read_stored(&mut self.source, &found)?;
            let decoded = unpack(&found.header, &stored)
                .and_then(|payload| Some(decode_gaps(payload.only_part()?, found.header.items, &mut visit)));
            if decoded != Some(Ok(())) {
                self.note_malformed(found.header.sequence, |damage| &mut damage.lost_samples, 0);
            }
        }
        Ok(())
    }

    /// Visits the process, thread and time of all samples in the order of the file, including some in damaged blocks
    /// that [`Self::samples`] does not visit. Nothing else of them is unpacked.
    ///
    /// # Errors
    /// As for [`Self::sideband`].
    pub fn sampled(&mut self, mut visit: impl FnMut(u32, u32, u64)) -> Result<(), Error> {
        for found in self.blocks_of(Kind::Samples) {
            let stored = read_stored(&mut self.source, &found)?;
            let Header { parts, raw_len, items, .. } = found.header;
            let raw_len = usize::try_from(raw_len).unwrap_or(usize::MAX);
            Payload::unpack_only(&stored, parts, raw_len, is_thread_column)
                .and_then(|payload| decode_who(&payload, items, &mut visit));
        }
        Ok(())
    }

    /// Visits the samples in the order of the file. The same value is reused for all of them.
    ///
    /// # Errors
    /// As for [`Self::sideband`].
    pub fn samples(&mut self, mut visit: impl FnMut(&Sample)) -> Result<(), Error> {
        let mut sample = Sample::default();
        let machine = self.meta.host.machine();
        for found in self.blocks_of(Kind::Samples) {
            let block = SampleBlock { header: found.header, machine, stored: read_stored(&mut self.source, &found)? };
            if let Err(Error::Malformed { sequence, item }) = block.decode_into(&mut sample, |sample| visit(sample)) {
                let lost = u64::from(found.header.items).saturating_sub(item);
                self.note_malformed(sequence, |damage| &mut damage.lost_samples, lost);
            }
        }
        Ok(())
    }

    /// The blocks of samples in the order of the file, each to be decoded separately, on any thread. Decoding them in
    /// parallel and ordering the results by [`SampleBlock::first_sample`] gives the same as [`Self::samples`].
    ///
    /// # Errors
    /// Each item as for [`Self::sideband`]. Pass the errors of [`SampleBlock::decode`] to [`Self::note`].
    pub fn sample_blocks(&mut self) -> impl Iterator<Item = Result<SampleBlock, Error>> + '_ {
        let blocks = self.blocks_of(Kind::Samples);
        let (source, machine) = (&mut self.source, self.meta.host.machine());
        blocks.into_iter().map(move |found| {
            read_stored(&mut *source, &found).map(|stored| SampleBlock { header: found.header, machine, stored })
        })
    }

    /// Adds a malformed block, found by [`SampleBlock::decode`], to [`Self::damage`]; ignores other errors.
    pub fn note(&mut self, error: &Error) {
        if let Error::Malformed { sequence, item } = *error {
            let block = self.blocks.iter().find(|found| found.header.sequence == sequence);
            let lost = block.map_or(0, |found| u64::from(found.header.items).saturating_sub(item));
            self.note_malformed(sequence, |damage| &mut damage.lost_samples, lost);
        }
    }

    fn note_malformed(&mut self, sequence: u32, which: impl FnOnce(&mut Damage) -> &mut u64, lost: u64) {
        if self.malformed.insert(sequence) {
            self.damage.malformed_blocks += 1;
            // The losses according to headers may already be any number.
            let sum = which(&mut self.damage);
            *sum = sum.saturating_add(lost);
        }
    }

    fn blocks_of(&self, kind: Kind) -> Vec<Found> {
        self.blocks.iter().filter(|found| found.header.kind == kind).copied().collect()
    }
}

/// A block of samples, still packed.
#[derive(Debug, Clone)]
pub struct SampleBlock {
    header: Header,
    machine: Machine,
    stored: Vec<u8>,
}

impl SampleBlock {
    /// Number of samples in it.
    #[must_use]
    pub fn n_samples(&self) -> u32 {
        self.header.items
    }

    /// Number of samples in all blocks before it, including damaged ones: its position in the order.
    #[must_use]
    pub fn first_sample(&self) -> u64 {
        self.header.first_item
    }

    /// Visits its samples. The same value is reused for all of them; a visitor may take its contents and leave another
    /// sample to reuse the memory of its vectors.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the contents are invalid; the samples before that point have been visited.
    pub fn decode(&self, visit: impl FnMut(&mut Sample)) -> Result<(), Error> {
        self.decode_into(&mut Sample::default(), visit)
    }

    fn decode_into(&self, sample: &mut Sample, visit: impl FnMut(&mut Sample)) -> Result<(), Error> {
        let decoded = unpack(&self.header, &self.stored)
            .map_or(Err(0), |payload| decode_samples(&payload, self.header.items, self.machine, sample, visit));
        decoded.map_err(|item| Error::Malformed { sequence: self.header.sequence, item })
    }
}

/// Rejects a file that is recognisably of another format before it is read completely.
fn check_and_scan<R: Read + Seek>(source: &mut R) -> Result<Scan, Error> {
    let mut head = [0; 512];
    source.rewind().map_err(Error::Read)?;
    let len = read_up_to(source, &mut head).map_err(Error::Read)?;
    let head = head.get(..len).unwrap_or(&[]);
    let looks = LooksLike::judge(head);
    let ours = head.iter().zip(&MARKER).filter(|(a, b)| a == b).count();
    if looks != LooksLike::Unknown && ours < MARKER.len().min(len.max(1)) {
        return Err(Error::NotARecording(looks));
    }
    let scan = scan(&mut *source).map_err(Error::Read)?;
    if scan.blocks.is_empty() && scan.newer.is_none() && ours < MARKER.len().min(len) {
        return Err(Error::NotARecording(looks));
    }
    Ok(scan)
}

fn read_up_to(source: &mut (impl Read + ?Sized), bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = bytes.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// The first metadata that identifies the recording of its own block.
fn find_meta<R: Read + Seek>(source: &mut R, scan: &Scan) -> Result<Option<(Vec<u8>, u32)>, Error> {
    for found in scan.blocks.iter().filter(|found| found.header.kind == Kind::Meta) {
        let stored = read_stored(source, found)?;
        let payload = unpack(&found.header, &stored);
        let json = payload.as_ref().and_then(Payload::only_part);
        if let Some(json) = json.filter(|json| crc32c::crc32c(json) == found.header.recording) {
            return Ok(Some((json.to_vec(), found.header.recording)));
        }
    }
    Ok(None)
}

fn read_last<R: Read + Seek, T: serde::de::DeserializeOwned>(
    source: &mut R,
    blocks: &[Found],
    kind: Kind,
    what: &'static str,
) -> Result<Option<T>, Error> {
    let Some(found) = blocks.iter().rev().find(|found| found.header.kind == kind) else { return Ok(None) };
    let stored = read_stored(source, found)?;
    let payload = unpack(&found.header, &stored);
    payload.as_ref().and_then(Payload::only_part).map(|json| from_json(what, json)).transpose()
}

fn from_json<T: serde::de::DeserializeOwned>(what: &'static str, json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json).map_err(|source| Error::BadJson { what, source })
}

/// The payload as stored; fails if its checksum is not that when the file was opened.
fn read_stored<R: Read + Seek + ?Sized>(source: &mut R, found: &Found) -> Result<Vec<u8>, Error> {
    source.seek(SeekFrom::Start(found.offset + HEADER_BYTES as u64)).map_err(Error::Read)?;
    let mut stored = vec![0; usize::try_from(found.header.stored_len).unwrap_or(0)];
    let len = read_up_to(source, &mut stored).map_err(Error::Read)?;
    if len < stored.len() || crc32c::crc32c(&stored) != found.header.payload_crc {
        return Err(Error::Changed { sequence: found.header.sequence });
    }
    Ok(stored)
}

/// `None` if the payload does not agree with its header.
fn unpack(header: &Header, stored: &[u8]) -> Option<Payload> {
    Payload::unpack(stored, header.parts, usize::try_from(header.raw_len).ok()?)
}

//! The metadata of a perf.data file: its events, and its machine.

use super::bytes::Bytes;
use super::error::ImportError;
use byteorder::LittleEndian;
use fpprof_recording::model::{BuildId, KernelSymbol};
use linux_perf_event_reader::PerfEventAttr;
use std::collections::BTreeMap;

/// Smallest `struct perf_event_attr` (`PERF_ATTR_SIZE_VER0`).
const MIN_ATTR_BYTES: u64 = 64;
/// Largest accepted `struct perf_event_attr`; the kernel refuses more than a page.
const MAX_ATTR_BYTES: u64 = 4096;
/// Offset of `read_format` in `struct perf_event_attr`.
const READ_FORMAT_AT: usize = 32;
/// The most events; perf opens one for each name it is given.
pub(super) const MAX_EVENTS: usize = 1024;
/// The most IDs of all events together: one per event, CPU and thread.
pub(super) const MAX_IDS: u64 = 1 << 20;

/// A sampled event.
#[derive(Debug, Clone)]
pub(super) struct Attribute {
    pub(super) attr: PerfEventAttr,
    pub(super) name: Option<String>,
    /// Its IDs, assigned by the kernel, one for each CPU or thread.
    pub(super) ids: Vec<u64>,
    /// `PERF_FORMAT_*`, including bits that the parser does not know.
    pub(super) read_format: u64,
}

impl Attribute {
    /// Parses a `struct perf_event_attr`.
    ///
    /// # Errors
    /// If it cannot be one.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, ImportError> {
        let len = bytes.len() as u64;
        if !(MIN_ATTR_BYTES..=MAX_ATTR_BYTES).contains(&len) {
            return Err(ImportError::Damaged("the description of an event has an invalid size"));
        }
        let mut rest = bytes;
        let (attr, own_len) = PerfEventAttr::parse::<_, LittleEndian>(&mut rest)
            .map_err(|_| ImportError::Damaged("cannot read the description of an event"))?;
        if own_len > len {
            return Err(ImportError::Damaged("the description of an event is too long"));
        }
        let read_format = bytes.get(READ_FORMAT_AT..).and_then(|rest| Bytes(rest).u64()).unwrap_or(0);
        Ok(Self { attr, name: None, ids: Vec::new(), read_format })
    }
}

/// What perf recorded about the machine and its run. Any of it may be missing.
#[derive(Debug, Clone, Default)]
pub(super) struct Features {
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) perf_version: String,
    pub(super) arch: String,
    pub(super) cpu_model: String,
    pub(super) cpus_online: u32,
    pub(super) memory_kib: u64,
    pub(super) argv: Vec<String>,
    /// Names of the events, in the order of their attributes.
    pub(super) event_names: Vec<String>,
    /// By path.
    pub(super) build_ids: BTreeMap<Vec<u8>, BuildId>,
    /// Address of a kernel symbol, from the kernel's mapping, which precedes all others.
    pub(super) kernel_symbol: Option<KernelSymbol>,
}

/// The features that are read, by perf's numbers.
///
/// # Sources
/// `tools/perf/util/header.h` (`HEADER_*`); `tools/perf/Documentation/perf.data-file-format.txt`.
pub(super) mod feature {
    pub(crate) const BUILD_ID: u64 = 2;
    pub(crate) const HOSTNAME: u64 = 3;
    pub(crate) const OS_RELEASE: u64 = 4;
    pub(crate) const VERSION: u64 = 5;
    pub(crate) const ARCH: u64 = 6;
    pub(crate) const NR_CPUS: u64 = 7;
    pub(crate) const CPU_DESC: u64 = 8;
    pub(crate) const TOTAL_MEM: u64 = 10;
    pub(crate) const CMDLINE: u64 = 11;
    pub(crate) const EVENT_DESC: u64 = 12;
    /// All of them.
    pub(crate) const READ: [u64; 10] =
        [BUILD_ID, HOSTNAME, OS_RELEASE, VERSION, ARCH, NR_CPUS, CPU_DESC, TOTAL_MEM, CMDLINE, EVENT_DESC];
}

impl Features {
    /// Parses a feature; truncated parts are left out.
    pub(super) fn add(&mut self, number: u64, section: &[u8]) {
        let mut bytes = Bytes(section);
        match number {
            feature::BUILD_ID => self.build_ids = build_ids(bytes),
            feature::HOSTNAME => self.host = bytes.text().unwrap_or_default(),
            feature::OS_RELEASE => self.kernel = bytes.text().unwrap_or_default(),
            feature::VERSION => self.perf_version = bytes.text().unwrap_or_default(),
            feature::ARCH => self.arch = bytes.text().unwrap_or_default(),
            feature::CPU_DESC => self.cpu_model = bytes.text().unwrap_or_default(),
            feature::NR_CPUS => self.cpus_online = bytes.u32().and_then(|_| bytes.u32()).unwrap_or(0),
            feature::TOTAL_MEM => self.memory_kib = bytes.u64().unwrap_or(0),
            feature::CMDLINE => {
                let n = bytes.u32().unwrap_or(0);
                self.argv = (0..n).map_while(|_| bytes.text()).collect();
            }
            feature::EVENT_DESC => self.event_names = event_names(bytes).unwrap_or_default(),
            _ => {}
        }
    }
}

/// `nr`, `attr_size`, then for each event: `attr`, `nr_ids`, its name, its IDs.
fn event_names(mut bytes: Bytes<'_>) -> Option<Vec<String>> {
    let n = bytes.u32()?;
    let attr_len = u64::from(bytes.u32()?);
    let mut names = Vec::new();
    for _ in 0..n {
        bytes.take(attr_len)?;
        let n_ids = u64::from(bytes.u32()?);
        names.push(bytes.text()?);
        bytes.take(n_ids.checked_mul(8)?)?;
    }
    Some(names)
}

/// A header of 8 bytes with the record's length, a process ID, 24 bytes with the build ID, then the path.
fn build_ids(mut bytes: Bytes<'_>) -> BTreeMap<Vec<u8>, BuildId> {
    /// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the length of the build ID is in its 21st byte.
    const HAS_LEN: u16 = 1 << 15;
    let mut found = BTreeMap::new();
    while let Some(mut record) = bytes.record() {
        let Some(id) = record.body.u32().and_then(|_| record.body.take(24)) else { break };
        let len = match id.get(20) {
            Some(&len) if record.misc & HAS_LEN != 0 => usize::from(len).min(20),
            // Older perfs pad with zeros in units of four bytes.
            _ => id.get(..20).map_or(0, |id| 20 - id.iter().rev().take_while(|byte| **byte == 0).count() / 4 * 4),
        };
        let path = record.body.until_zero();
        if let Some(id) = id.get(..len).and_then(BuildId::new) {
            found.insert(path.to_vec(), id);
        }
    }
    found
}

//! A module's file as memory: libunwind reads everything through one callback.

use crate::elf::ElfFile;
use crate::modules::{Module, Modules};
use crate::sys::libunwind::Table;
use fpprof_unwind::TruncatedReason;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::os::unix::fs::FileExt as _;

/// The most bytes of unwind information read ahead; anything beyond is read page by page.
const MAX_TABLES_BYTES: u64 = 64 << 20;
/// Bytes per read outside the unwind information.
const PAGE_BYTES: u64 = 4096;
/// The most pages cached per file; when there are more, all are dropped.
const MAX_PAGES: usize = 1024;

/// The encoding of every linker's search table: relative to `.eh_frame_hdr`, four bytes, signed (LSB 5.0 Core §10.6.2,
/// `DW_EH_PE_datarel | DW_EH_PE_sdata4`). libunwind supports no other.
const TABLE_ENCODING: u8 = 0x3b;
/// The encodings of the two fields before the table, four bytes each (`DW_EH_PE_pcrel | DW_EH_PE_sdata4`,
/// `DW_EH_PE_udata4`).
const POINTER_ENCODING: u8 = 0x1b;
const COUNT_ENCODING: u8 = 0x03;

/// The readable part of a module.
#[derive(Debug)]
pub(crate) struct Image {
    elf: ElfFile,
    bias: u64,
    /// From `.eh_frame_hdr` or `.eh_frame`, whichever is first, to the end of their segment.
    tables: Vec<u8>,
    /// SVMA of the first byte of `tables`.
    tables_start: u64,
    pages: RefCell<FxHashMap<u64, Box<[u8]>>>,
    table: Option<Table>,
}

impl Image {
    /// Opens a module's file and reads its unwind information ahead.
    pub(crate) fn open(modules: &Modules, index: usize) -> Result<Self, TruncatedReason> {
        let elf = modules.open(index)?;
        let module = modules.get(index).ok_or(TruncatedReason::NoModule)?;
        let (tables, pages) = (Vec::new(), RefCell::default());
        let mut image = Self { elf, bias: module.bias, tables, tables_start: 0, pages, table: None };
        if let Some(header) = image.elf.eh_frame_hdr.as_ref().map(|range| range.start) {
            image.table = image.find_table(header, module);
            image.read_ahead(header);
        }
        Ok(image)
    }

    /// The search table; `None` if there is no `.eh_frame_hdr`, or one without a table.
    pub(crate) const fn table(&self) -> Option<Table> {
        self.table
    }

    /// The word at an AVMA, from the file.
    pub(crate) fn read_u64(&self, address: u64) -> Option<u64> {
        let svma = address.wrapping_sub(self.bias);
        let ahead = svma.checked_sub(self.tables_start).and_then(|offset| usize::try_from(offset).ok());
        if let Some(word) = ahead.and_then(|at| self.tables.get(at..at.checked_add(8)?)?.first_chunk::<8>()) {
            return Some(u64::from_le_bytes(*word));
        }
        let mut word = [0; 8];
        for (byte, distance) in word.iter_mut().zip(0_u8..) {
            *byte = self.read_u8(svma.checked_add(u64::from(distance))?)?;
        }
        Some(u64::from_le_bytes(word))
    }

    fn read_u8(&self, svma: u64) -> Option<u8> {
        let load = self.elf.loads.iter().find(|load| load.svma.start <= svma && svma < load.memory_end)?;
        if svma >= load.svma.end {
            return Some(0);
        }
        let offset = load.file_offset.checked_add(svma - load.svma.start)?;
        let mut pages = self.pages.borrow_mut();
        if pages.len() >= MAX_PAGES {
            pages.clear();
        }
        let page = pages
            .entry(offset / PAGE_BYTES)
            .or_insert_with(|| self.read_file(offset / PAGE_BYTES * PAGE_BYTES, PAGE_BYTES).into_boxed_slice());
        page.get(usize::try_from(offset % PAGE_BYTES).ok()?).copied()
    }

    /// Reads bytes of the file; fewer if it ends.
    fn read_file(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.elf.file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        bytes.truncate(filled);
        bytes
    }

    fn find_table(&self, header: u64, module: &Module) -> Option<Table> {
        let avma = header.wrapping_add(self.bias);
        let [version, pointer, count, table, ..] = self.read_u64(avma)?.to_le_bytes();
        if (version, pointer, count, table) != (1, POINTER_ENCODING, COUNT_ENCODING, TABLE_ENCODING) {
            return None;
        }
        let count = self.read_u64(avma.wrapping_add(8))? & u64::from(u32::MAX);
        // The header is as long as its segment says; a count beyond that is invalid.
        let room = self.elf.eh_frame_hdr.as_ref().map_or(0, |range| range.end.saturating_sub(range.start)) / 8;
        let entries = avma.wrapping_add(12);
        Some(Table { start: module.start, end: module.end, base: avma, entries, count: count.min(room) })
    }

    fn read_ahead(&mut self, header: u64) {
        // `eh_frame_ptr`, relative to itself, follows the four encoding bytes.
        let field = header.wrapping_add(4);
        let distance = self.read_u64(field.wrapping_add(self.bias)).unwrap_or(0).to_le_bytes();
        let [a, b, c, d, ..] = distance;
        let eh_frame = field.wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])));
        let Some(load) = self.elf.loads.iter().find(|load| load.svma.contains(&header)).cloned() else { return };
        let start = if load.svma.contains(&eh_frame) { eh_frame.min(header) } else { header };
        let len = (load.svma.end - start).min(MAX_TABLES_BYTES);
        let Some(offset) = load.file_offset.checked_add(start - load.svma.start) else { return };
        let on_disk = self.elf.file.metadata().map_or(0, |metadata| metadata.len()).saturating_sub(offset);
        self.tables = self.read_file(offset, len.min(on_disk));
        self.tables_start = start;
    }
}

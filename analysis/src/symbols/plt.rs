//! Names of the stubs that call other modules, `memcpy@plt`, which are in no symbol table.

use super::symbol_map::SymbolMap;
use crate::modules::{ElfFile, SectionInfo};
use fpprof_unwind::Arch;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Sym as _};
use object::{Endianness, pod};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The most bytes of a section of stubs, relocations, dynamic symbols or their names.
const MAX_BYTES: u64 = 32 << 20;
/// The most bytes of a name.
const MAX_NAME_BYTES: usize = 4 << 10;
/// The sizes of stubs that linkers generate for x86-64, except for the first one in `.plt`. Small ones are in `.plt.got`, and
/// in the `.plt` of static programs by GNU ld.
const STUB_BYTES: [u64; 2] = [8, 16];
/// The largest stub for aarch64: lld's with `bti c`.
const MAX_AARCH64_STUB_BYTES: u64 = 24;
/// `R_X86_64_IRELATIVE` and `R_AARCH64_IRELATIVE`: the slot gets the return value of the function at the addend.
const IRELATIVE: [u32; 2] = [37, 1032];

/// The stubs of a 64-bit module.
#[derive(Debug)]
pub(super) struct Stubs<'a> {
    elf: &'a ElfFile,
    sections: Vec<SectionInfo>,
}

impl<'a> Stubs<'a> {
    /// The stubs of a module. Only its section headers are read yet.
    pub(super) fn new(elf: &'a ElfFile) -> Self {
        Self { elf, sections: elf.sections() }
    }

    /// The functions that stubs at these addresses call, by the stub's address. `files` are used to name functions of
    /// the module itself.
    pub(super) fn names(&self, svmas: &[u64], files: &[&ElfFile]) -> BTreeMap<u64, Vec<u8>> {
        let mut slots: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
        for (svma, slot) in svmas.iter().filter_map(|&svma| Some((svma, self.slot(svma)?))) {
            slots.entry(slot).or_default().push(svma);
        }
        let mut found = Targets::default();
        if !slots.is_empty() && self.elf.is_64() {
            for relocations in self.sections.iter().filter(|section| section.kind == elf::SHT_RELA.0) {
                self.named_by(relocations, &slots, &mut found);
            }
        }
        let mut resolvers: Vec<u64> = found.resolved.values().copied().collect();
        resolvers.sort_unstable();
        let functions = SymbolMap::new(files.iter().copied(), &resolvers);
        for (svma, resolver) in &found.resolved {
            if let Some(name) = functions.find(*resolver) {
                found.named.entry(*svma).or_insert_with(|| name.to_vec());
            }
        }
        found.named.values_mut().for_each(|name| name.extend_from_slice(b"@plt"));
        found.named
    }

    /// Address of the slot from which the stub at an address loads its target.
    ///
    /// # Sources
    /// x86-64 psABI §5.2 and §B.2 (`.plt.sec`): `endbr64`, `bnd`, then `jmp *slot(%rip)`. ELF for the Arm 64-bit
    /// Architecture, §9.1, and lld's and ld's PLT: `bti c`, then `adrp x16`, `ldr x17, [x16, #low]`.
    fn slot(&self, svma: u64) -> Option<u64> {
        let section = self.sections.iter().find(|section| svma.wrapping_sub(section.svma) < section.bytes)?;
        if !section.is_code() || !section.has_stubs() {
            return None;
        }
        let in_section = svma.wrapping_sub(section.svma);
        let code = self.elf.bytes(section, MAX_BYTES)?;
        let stub = |at: u64| {
            let from = usize::try_from(at).ok()?;
            Some((section.svma.wrapping_add(at), code.get(from..from.checked_add(16)?.min(code.len()))?))
        };
        match self.elf.image().arch? {
            // No large stub has the code of a small one in its middle.
            Arch::X86_64 => STUB_BYTES.iter().find_map(|bytes| x86_64_slot(stub(in_section & !(bytes - 1))?)),
            Arch::Aarch64 => (0..MAX_AARCH64_STUB_BYTES)
                .step_by(4)
                .find_map(|offset| aarch64_slot(stub((in_section & !3).checked_sub(offset)?)?)),
            Arch::I386 => None,
        }
    }

    fn named_by(&self, relocations: &SectionInfo, slots: &FxHashMap<u64, Vec<u64>>, found: &mut Targets) -> Option<()> {
        let endian = if self.elf.image().little_endian { Endianness::Little } else { Endianness::Big };
        let bytes = self.elf.bytes(relocations, MAX_BYTES)?;
        let (rows, _) = pod::slice_from_bytes::<elf::Rela64<Endianness>>(&bytes, bytes.len() / 24).ok()?;
        for row in rows {
            for &svma in slots.get(&row.r_offset.get(endian)).into_iter().flatten() {
                if IRELATIVE.contains(&row.r_type(endian, false).0) {
                    found.resolved.entry(svma).or_insert_with(|| row.r_addend.get(endian).cast_unsigned());
                } else if let Some(name) = self.symbol(relocations.link, row.r_sym(endian, false), endian) {
                    found.named.entry(svma).or_insert(name);
                }
            }
        }
        Some(())
    }

    /// The name of a dynamic symbol.
    fn symbol(&self, table: u32, index: u32, endian: Endianness) -> Option<Vec<u8>> {
        type Symbol = <FileHeader64<Endianness> as FileHeader>::Sym;
        let table = self.sections.get(table as usize)?;
        let bytes = self.elf.bytes(table, MAX_BYTES)?;
        let (symbols, _) = pod::slice_from_bytes::<Symbol>(&bytes, bytes.len() / size_of::<Symbol>()).ok()?;
        let strings = self.elf.bytes(self.sections.get(table.link as usize)?, MAX_BYTES)?;
        let name = strings.get(symbols.get(index as usize)?.st_name(endian) as usize..)?;
        let name = name.get(..memchr::memchr(0, name)?.min(MAX_NAME_BYTES))?;
        (!name.is_empty()).then(|| name.to_vec())
    }
}

/// The targets of stubs, by address.
#[derive(Debug, Default)]
struct Targets {
    named: BTreeMap<u64, Vec<u8>>,
    /// Address of the resolver function that returns the target.
    resolved: BTreeMap<u64, u64>,
}

fn x86_64_slot((svma, code): (u64, &[u8])) -> Option<u64> {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    const BND: u8 = 0xf2;
    const JMP_RIP: [u8; 2] = [0xff, 0x25];
    let mut rest = code.strip_prefix(&ENDBR64).unwrap_or(code);
    rest = rest.strip_prefix(&[BND]).unwrap_or(rest);
    let displacement = rest.strip_prefix(&JMP_RIP)?;
    let (displacement, after) = displacement.split_first_chunk()?;
    let next = svma.wrapping_add((code.len() - after.len()) as u64);
    Some(next.wrapping_add_signed(i32::from_le_bytes(*displacement).into()))
}

fn aarch64_slot((svma, code): (u64, &[u8])) -> Option<u64> {
    const BTI_C: u32 = 0xd503_245f;
    let mut words = code.chunks_exact(4).filter_map(|word| word.first_chunk().copied().map(u32::from_le_bytes));
    let mut at = svma;
    let mut adrp = words.next()?;
    if adrp == BTI_C {
        (at, adrp) = (at.wrapping_add(4), words.next()?);
    }
    let ldr = words.next()?;
    if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    // 21 bits: the high 19 at bit 5, the low 2 at bit 29; shifted up so that the sign bit is that of the word.
    let pages = (((adrp >> 5) & 0x7_ffff) << 2 | (adrp >> 29) & 3) << 11;
    let pages = i64::from(pages.cast_signed() >> 11) << 12;
    let low = u64::from((ldr >> 10) & 0xfff) << 3;
    Some((at & !0xfff).wrapping_add_signed(pages).wrapping_add(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the stubs of current and older linkers give their slot, and that other code does not.
    #[test]
    fn slots_of_stubs() {
        let plain = [0xff, 0x25, 0xe2, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        assert_eq!(x86_64_slot((0x1030, &plain)), Some(0x4018));
        let ibt = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x75, 0x2f, 0, 0, 0x0f, 0x1f, 0x44, 0, 0];
        assert_eq!(x86_64_slot((0x1050, &ibt)), Some(0x3fd0));
        let lazy = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0, 0x90];
        assert_eq!(x86_64_slot((0x1020, &lazy)), None);
        assert_eq!(x86_64_slot((0x1020, &[0xff, 0x25])), None);
        // adrp x16, 0x11000 (from 0x6b0); ldr x17, [x16, #8]; add x16, x16, #8; br x17
        let words = [0xb000_0090_u32, 0xf940_0611, 0x9100_2210, 0xd61f_0220];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(aarch64_slot((0x6b0, &code)), Some(0x1_1008));
        assert_eq!(aarch64_slot((0x6b0, &plain)), None);
    }
}

//! A single file without a recording: its call frame information and its functions by name.

use super::unwind_sections::unwind_sections;
use super::{ElfFile, Image, Missing, Resolver, SectionInfo, debug_file};
use fpprof_unwind::{Arch, Module};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, Sym as _};
use object::{Endianness, pod};
use std::path::Path;

/// The most bytes of a symbol table or its strings.
const MAX_TABLE_BYTES: u64 = 512 << 20;

/// A file whose rows can be queried.
#[derive(Debug)]
pub struct LoneModule {
    elf: ElfFile,
    arch: Arch,
    module: Module,
}

/// A function of a [`LoneModule`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFunction {
    /// As in the symbol table.
    pub name: String,
    /// First address, SVMA.
    pub svma: u64,
    /// Size in bytes; 0 if the table has none.
    pub bytes: u64,
}

impl LoneModule {
    /// Reads the call frame information of the file at `path`, complemented by its debug file. `Ok(None)` if the
    /// unwinder does not support the architecture.
    ///
    /// # Errors
    /// Why the file cannot be used.
    pub fn open(resolver: &dyn Resolver, path: &Path) -> Result<Option<Self>, Missing> {
        let elf = ElfFile::new(resolver.open(path)?)?;
        let Some(arch) = elf.image().arch else { return Ok(None) };
        let debug = || {
            let by_build_id = elf.image().build_id.and_then(|build_id| debug_file::by_build_id(resolver, build_id));
            by_build_id.or_else(|| debug_file::by_link(resolver, &elf, path))
        };
        let module = Module::new(unwind_sections(&elf, arch, debug).sections);
        Ok(Some(Self { elf, arch, module }))
    }

    /// The architecture of its code.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Its unwind information.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// The contents of its headers.
    #[must_use]
    pub fn image(&self) -> &Image {
        self.elf.image()
    }

    /// Whether it has readable section headers.
    #[must_use]
    pub fn has_sections(&self) -> bool {
        !self.elf.sections().is_empty()
    }

    /// The function with this name, without a symbol version.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<NamedFunction> {
        let mut found = None;
        self.functions(|function| {
            if found.is_none() && function.name == name {
                found = Some(function);
            }
        });
        found
    }

    /// The function that contains an SVMA.
    #[must_use]
    pub fn function_at(&self, svma: u64) -> Option<NamedFunction> {
        let mut best: Option<NamedFunction> = None;
        self.functions(|function| {
            let is_in = svma.checked_sub(function.svma).is_some_and(|offset| offset < function.bytes.max(1));
            if is_in && best.as_ref().is_none_or(|best| best.svma < function.svma) {
                best = Some(function);
            }
        });
        best
    }

    fn functions(&self, mut each: impl FnMut(NamedFunction)) {
        let sections = self.elf.sections();
        for table in sections.iter().filter(|table| [elf::SHT_SYMTAB.0, elf::SHT_DYNSYM.0].contains(&table.kind)) {
            if self.elf.is_64() {
                self.table::<FileHeader64<Endianness>>(&sections, table, &mut each);
            } else {
                self.table::<FileHeader32<Endianness>>(&sections, table, &mut each);
            }
        }
    }

    fn table<E: FileHeader<Endian = Endianness>>(
        &self,
        sections: &[SectionInfo],
        table: &SectionInfo,
        each: &mut impl FnMut(NamedFunction),
    ) -> Option<()> {
        let endian = if self.elf.image().little_endian { Endianness::Little } else { Endianness::Big };
        let bytes = self.elf.read(table, MAX_TABLE_BYTES)?;
        let strings = self.elf.read(sections.get(usize::try_from(table.link).ok()?)?, MAX_TABLE_BYTES)?;
        let (symbols, _) = pod::slice_from_bytes::<E::Sym>(&bytes, bytes.len() / size_of::<E::Sym>()).ok()?;
        for symbol in symbols {
            let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if !is_function || symbol.st_shndx(endian) == elf::SHN_UNDEF {
                continue;
            }
            let name = usize::try_from(symbol.st_name(endian)).ok().and_then(|at| strings.get(at..)).unwrap_or(&[]);
            // `memcpy@@GLIBC_2.14`: the version is not part of the name.
            let name = name.split(|&byte| byte == 0 || byte == b'@').next().unwrap_or(&[]);
            each(NamedFunction {
                name: String::from_utf8_lossy(name).into_owned(),
                svma: symbol.st_value(endian).into(),
                bytes: symbol.st_size(endian).into(),
            });
        }
        Some(())
    }
}

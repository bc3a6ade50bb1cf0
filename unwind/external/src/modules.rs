//! The modules of one address space, kept from one request to the next.

use crate::elf::ElfFile;
use crate::{ModuleFile, ModuleRef};
use fpprof_unwind::TruncatedReason;
use std::path::PathBuf;

/// Modules sorted by address, without overlaps.
#[derive(Debug)]
pub(crate) struct Modules {
    modules: Vec<Module>,
}

/// One module.
#[derive(Debug)]
pub(crate) struct Module {
    /// AVMA of the first byte.
    pub(crate) start: u64,
    /// First AVMA above the module.
    pub(crate) end: u64,
    /// AVMA − SVMA, wrapping.
    pub(crate) bias: u64,
    file: OwnedFile,
}

#[derive(Debug)]
enum OwnedFile {
    Path(PathBuf),
    Bytes(Box<[u8]>),
    Missing(TruncatedReason),
}

impl Modules {
    /// Copies the list, without modules that are empty or overlap an earlier one.
    pub(crate) fn new(refs: &[ModuleRef<'_>]) -> Self {
        let mut modules: Vec<Module> = Vec::with_capacity(refs.len());
        for module in refs.iter().filter(|module| module.start < module.end) {
            let at = modules.partition_point(|other| other.start < module.start);
            let is_above = at.checked_sub(1).and_then(|below| modules.get(below)).is_none_or(|b| b.end <= module.start);
            let is_below = modules.get(at).is_none_or(|above| module.end <= above.start);
            if is_above && is_below {
                modules.insert(at, Module::new(module));
            }
        }
        Self { modules }
    }

    /// The index of the module at an AVMA.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let at = self.modules.partition_point(|module| module.end <= address);
        self.modules.get(at).filter(|module| module.start <= address).map(|_found| at)
    }

    /// The module with an index from [`Self::find`].
    pub(crate) fn get(&self, index: usize) -> Option<&Module> {
        self.modules.get(index)
    }

    /// Number of modules.
    pub(crate) fn len(&self) -> usize {
        self.modules.len()
    }

    /// Opens the file of a module, if its segments fit the module's addresses.
    ///
    /// The segments of a wrong file could cover other modules, and the libraries would then look up their frames there.
    pub(crate) fn open(&self, index: usize) -> Result<ElfFile, TruncatedReason> {
        let module = self.get(index).ok_or(TruncatedReason::NoModule)?;
        let elf = ElfFile::open(module.file())?;
        let span = elf.span();
        let (start, end) = (span.start.wrapping_add(module.bias), span.end.wrapping_add(module.bias));
        let fits = start < end && module.start < end && start < module.end;
        if fits && !self.overlaps_another(index, start, end) {
            Ok(elf)
        } else {
            Err(TruncatedReason::ModuleUnavailable)
        }
    }

    /// Whether an AVMA range touches a module other than the one with this index.
    fn overlaps_another(&self, index: usize, start: u64, end: u64) -> bool {
        let (below, above) = (index.checked_sub(1), index.checked_add(1));
        below.and_then(|below| self.modules.get(below)).is_some_and(|below| start < below.end)
            || above.and_then(|above| self.modules.get(above)).is_some_and(|above| above.start < end)
    }
}

impl Module {
    fn new(module: &ModuleRef<'_>) -> Self {
        let file = match module.file {
            ModuleFile::Path(path) => OwnedFile::Path(path.to_owned()),
            ModuleFile::Bytes(bytes) => OwnedFile::Bytes(bytes.into()),
            ModuleFile::Missing(reason) => OwnedFile::Missing(reason),
        };
        Self { start: module.start, end: module.end, bias: module.bias, file }
    }

    fn file(&self) -> ModuleFile<'_> {
        match &self.file {
            OwnedFile::Path(path) => ModuleFile::Path(path),
            OwnedFile::Bytes(bytes) => ModuleFile::Bytes(bytes),
            OwnedFile::Missing(reason) => ModuleFile::Missing(*reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(start: u64, end: u64) -> ModuleRef<'static> {
        ModuleRef { file: ModuleFile::Missing(TruncatedReason::ModuleUnavailable), start, end, bias: start }
    }

    /// Check that modules are found from their first to their last byte, in whatever order they were listed.
    #[test]
    fn finds_modules_listed_in_any_order() {
        let modules = Modules::new(&[module(0x5000, 0x6000), module(0x1000, 0x2000), module(0x2000, 0x3000)]);
        let start_at = |address| modules.find(address).and_then(|index| modules.get(index)).map(|module| module.start);
        assert_eq!(start_at(0xfff), None);
        assert_eq!(start_at(0x1000), Some(0x1000));
        assert_eq!(start_at(0x1fff), Some(0x1000));
        assert_eq!(start_at(0x2000), Some(0x2000));
        assert_eq!(start_at(0x3000), None);
        assert_eq!(start_at(0x5fff), Some(0x5000));
        assert_eq!(start_at(u64::MAX), None);
    }

    /// Check that of overlapping modules the first is kept, and that empty modules are dropped.
    #[test]
    fn drops_what_overlaps_or_is_empty() {
        let modules =
            Modules::new(&[module(0x2000, 0x4000), module(0x1000, 0x2001), module(0x3fff, 0x5000), module(9, 9)]);
        assert_eq!(modules.len(), 1);
        assert_eq!(Modules::new(&[module(8, 7)]).len(), 0);
        let touching = Modules::new(&[module(0x1000, 0x2000), module(0x2000, 0x3000)]);
        assert!(!touching.overlaps_another(0, 0, 0x2000));
        assert!(touching.overlaps_another(0, 0, 0x2001));
        assert!(touching.overlaps_another(1, 0x1fff, 0x3000));
    }
}

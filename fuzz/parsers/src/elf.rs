//! ELF files: as a profiled program's, for every purpose, and as cores.

use crate::files::{Only, written};
use fpprof_analysis::address_space::{FileIx, Timeline};
use fpprof_analysis::core_dump::{self, Core, unwind_core};
use fpprof_analysis::modules::{LoneModule, ModuleTable};
use fpprof_analysis::symbols::{Detail, Symbolizer};
use fpprof_analysis::{audit, cfi};
use fpprof_collector::parse::{ParseTask, parse};
use fpprof_recording::model::{FileIdentity, Mmap, Sideband};
use fpprof_unwind::{ModuleId, Modules as _};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroUsize;
use std::path::Path;

/// An ELF file of a profiled program, which is its debug file and its supplementary file as well.
pub fn elf(input: &[u8]) {
    let file = Only::of(input);
    let mapping = Mmap {
        time_ns: 1,
        pid: 1,
        tid: 1,
        start: 0x10_0000,
        len: 0x1000,
        file_offset: 0,
        prot: 5,
        flags: 2,
        path: b"/program".to_vec(),
        identity: FileIdentity::default(),
        synthesized: true,
    };
    let timeline = Timeline::new([Sideband::Mmap(mapping)]);
    let table = ModuleTable::new(&timeline, &crate::analysed::meta(), &file);
    if let Ok(module) = table.module(ModuleId(0)) {
        let _ = module.count_entries();
    }
    let svmas: Vec<u64> = (0x1000..0x1400).step_by(0x20).collect();
    let wanted = BTreeMap::from([(FileIx(0), svmas.clone())]);
    let symbols = Symbolizer::new(&table, &wanted, None, Detail::Lines, NonZeroUsize::MIN);
    for svma in svmas {
        let _ = symbols.user(FileIx(0), svma);
    }
    let _ = audit::examine(Cursor::new(input), audit::AuditOptions::default());
    if let Ok(Some(lone)) = LoneModule::open(&file, Path::new("/program")) {
        let _ = cfi::describe_coverage(&lone);
        let _ = cfi::explain(&lone, 0x1040);
    }
    let file = written(input);
    let _ = parse(file, ParseTask::BuildId);
    let _ = parse(file, ParseTask::WithoutData { bytes: input.len() as u64 });
}

/// A core, whose files are the core itself.
pub fn core_dump(input: &[u8]) {
    let file = Only::of(input);
    let Ok(core) = Core::read(file.opened()) else { return };
    let options =
        core_dump::CoreOptions { resolver: &file, executable: None, root: None, unwinding: Default::default() };
    let _ = unwind_core(&core, [file.opened(), file.opened()], &options);
}

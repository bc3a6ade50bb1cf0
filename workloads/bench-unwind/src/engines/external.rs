//! The engines libdw and libunwind.

use super::name::{Engine, MAX_DEPTH, Name, Pass};
use crate::load::Input;
use fpprof_analysis::modules::{Location, ModuleTable};
use fpprof_analysis::replay::PlacedSpace;
use fpprof_external::{ExternalUnwinder, ModuleFile, ModuleRef, Request};
use fpprof_unwind::{Stack, StopReason};
use std::collections::HashMap;

pub(crate) struct Asked<'a> {
    modules: ModuleTable<'a>,
    library: Box<dyn ExternalUnwinder>,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(name: Name, input: &'a Input) -> anyhow::Result<Self> {
        let library: Box<dyn ExternalUnwinder> = match name {
            #[cfg(feature = "libdw")]
            Name::Libdw => Box::new(fpprof_external::Libdw::default()),
            #[cfg(feature = "libunwind")]
            Name::Libunwind => Box::new(fpprof_external::Libunwind::default()),
            _ => anyhow::bail!("{} is not in this build", name.words()),
        };
        Ok(Self { modules: input.modules(), library })
    }
}

impl Engine for Asked<'_> {
    fn pass(&mut self, input: &Input, out: &mut Pass) -> anyhow::Result<()> {
        let mut refs: HashMap<u32, Vec<ModuleRef<'_>>> = HashMap::new();
        let mut stack = Stack::default();
        for one in &input.samples {
            let id = one.space.space.id();
            let modules = refs.entry(id).or_insert_with(|| module_refs(&self.modules, &one.space));
            let request = Request {
                modules,
                modules_id: id.into(),
                regs: &one.regs,
                stack: one.chunk(),
                interrupted: None,
                max_depth: MAX_DEPTH,
            };
            self.library.unwind(&request, &mut stack)?;
            let is_complete = matches!(stack.stop, StopReason::Complete(_));
            out.add(stack.frames.iter().map(|frame| frame.address), is_complete);
        }
        Ok(())
    }
}

fn module_refs<'a>(modules: &'a ModuleTable<'_>, space: &PlacedSpace) -> Vec<ModuleRef<'a>> {
    let module_ref = |placed: &fpprof_analysis::replay::PlacedModule| {
        let file = match modules.location(placed.file) {
            Ok(Location::Path(path)) => ModuleFile::Path(path),
            Ok(Location::Bytes(bytes)) => ModuleFile::Bytes(bytes),
            Err(missing) => ModuleFile::Missing(missing.truncated_reason()),
        };
        let svmas = modules.image(placed.file).ok().and_then(|image| image.svmas());
        let avmas = svmas.map(|svmas| (svmas.start.wrapping_add(placed.bias), svmas.end.wrapping_add(placed.bias)));
        let (start, end) = avmas.unwrap_or((placed.start, placed.end));
        ModuleRef { file, start, end, bias: placed.bias }
    };
    space.modules(modules).iter().map(module_ref).collect()
}

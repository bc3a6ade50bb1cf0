//! External unwinders over the same samples.

use super::Strategy;
use super::item::{Copied, Holes, Item, copied, user_regs};
use crate::modules::{Location, ModuleTable};
use crate::replay::PlacedModule;
use fpprof_external::{ExternalUnwinder, ModuleFile, ModuleRef, Request};
use fpprof_recording::model::{Abi, UserRegs};
use fpprof_unwind::{Stack, StopReason, TruncatedReason};
use std::collections::BTreeMap;

/// The most frames of a stack, as for our own unwinder.
const MAX_DEPTH: u32 = 1024;

/// The libraries in this build, each opened on first use.
#[derive(Debug, Default)]
pub(super) struct ExternalUnwinders {
    #[cfg(feature = "libdw")]
    libdw: fpprof_external::Libdw,
    #[cfg(feature = "libunwind")]
    libunwind: fpprof_external::Libunwind,
    /// How often a library failed, by its error message.
    pub(super) refused: BTreeMap<String, u64>,
}

impl ExternalUnwinders {
    /// Unwinds one sample with a library.
    pub(super) fn ask(
        &mut self,
        strategy: Strategy,
        modules: &ModuleTable<'_>,
        item: &Item<'_>,
        holes: &Holes,
        out: &mut Stack,
    ) {
        let sample = item.sample;
        let regs = match user_regs(item) {
            Err(stop) => return out.stop = stop,
            Ok(UserRegs { abi: Abi::Bits32, .. }) => return out.stop = StopReason::Truncated(TruncatedReason::Abi32),
            Ok(regs) => regs,
        };
        // `Strategy::check` refuses recordings of other architectures.
        let Some(values) = regs.own().first_chunk() else {
            return out.stop = StopReason::Truncated(TruncatedReason::Budget);
        };
        let refs: Vec<ModuleRef<'_>> =
            item.space.modules(modules).iter().map(|module| module_ref(modules, module)).collect();
        let Copied { current, interrupted } = copied(sample, holes, usize::MAX);
        let request = Request {
            modules: &refs,
            modules_id: item.space.space.id().into(),
            regs: values,
            stack: current,
            interrupted: interrupted.as_ref(),
            max_depth: MAX_DEPTH,
        };
        let answer = match strategy {
            #[cfg(feature = "libdw")]
            Strategy::Elfutils => self.libdw.unwind(&request, out),
            #[cfg(feature = "libunwind")]
            Strategy::Libunwind => self.libunwind.unwind(&request, out),
            _ => return out.stop = StopReason::Truncated(TruncatedReason::Budget),
        };
        if let Err(error) = answer {
            let n = self.refused.entry(error.to_string()).or_default();
            *n = n.saturating_add(1);
            out.frames.clear();
            out.stop = StopReason::Truncated(TruncatedReason::Budget);
        }
    }
}

fn module_ref<'a>(modules: &'a ModuleTable<'_>, module: &PlacedModule) -> ModuleRef<'a> {
    let (start, end) = extent(modules, module);
    let file = match modules.location(module.file) {
        Ok(Location::Path(path)) => ModuleFile::Path(path),
        Ok(Location::Bytes(bytes)) => ModuleFile::Bytes(bytes),
        Err(missing) => ModuleFile::Missing(missing.truncated_reason()),
    };
    ModuleRef { file, start, end, bias: module.bias }
}

/// The addresses of all segments of a module, code and data; if its file is missing, only those of its code.
fn extent(modules: &ModuleTable<'_>, module: &PlacedModule) -> (u64, u64) {
    let svmas = modules.image(module.file).ok().and_then(|image| image.svmas());
    let loaded = svmas.map(|svmas| (svmas.start.wrapping_add(module.bias), svmas.end.wrapping_add(module.bias)));
    loaded.unwrap_or((module.start, module.end))
}

//! Options of an unwinder.

use crate::arch::Spec;

/// What to do at an instruction without call frame information.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Fallback {
    /// Stop with the reason.
    #[default]
    None,
    /// Follow the frame pointer in JIT-compiled code, which is executable memory without a module, and flag the frame
    /// ([`crate::FrameFlags::fp_in_jit`]). Also in code of modules between JIT-compiled code and code with information:
    /// V8 contains code that its JIT compiler generated at build time.
    Jit,
    /// Follow the frame pointer if its return address is in an executable mapping, and flag the frame
    /// ([`crate::FrameFlags::fp_fallback`]).
    FramePointer,
}

/// Limits and options. The same options and the same sample give the same stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The most frames of a stack.
    pub max_depth: u32,
    /// What to do without call frame information.
    pub fallback: Fallback,
    /// At a sampled or interrupted instruction without information, take the word at sp (aarch64: lr) as the return
    /// address if it is in an executable mapping, as in thunks and assembly leaves. The frame found is
    /// [`crate::FrameSource::Heuristic`].
    pub is_leaf_guessed: bool,
    /// The most DWARF expression operations per sample; a single expression may have 4,096 at most.
    pub max_expression_steps: u32,
    /// Mask of the address bits of a return address, if known for the machine; the others may hold a signature. `None`
    /// means the architecture's usual mask: 48 bits for aarch64, whose kernels can also be built for 36 to 52.
    pub return_address_mask: Option<u64>,
}

impl Options {
    pub(super) fn mask(&self, spec: &Spec) -> u64 {
        self.return_address_mask.map_or(spec.return_address_mask, |mask| mask & spec.address_mask)
    }
}

impl Default for Options {
    /// 1,024 frames, 65,536 operations, no guesses.
    fn default() -> Self {
        Self {
            max_depth: 1024,
            fallback: Fallback::None,
            is_leaf_guessed: false,
            max_expression_steps: 1 << 16,
            return_address_mask: None,
        }
    }
}

//! The model behind `fpprof unwind`. Field names are the keys of `unwind --json`.

use serde::{Deserialize, Serialize};

/// The stacks of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwoundCore {
    /// `x86-64`, `i386` or `aarch64`.
    pub arch: String,
    /// The command, if known.
    pub command: Option<String>,
    /// In the order of the core.
    pub threads: Vec<ThreadOut>,
    /// What is missing or was left out, as text.
    pub warnings: Vec<String>,
}

/// The stack of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadOut {
    /// Thread ID; 0 if there is none.
    pub tid: u32,
    /// The signal it received; 0 for none.
    pub signal: u16,
    /// `complete`, `truncated` or `broken`.
    pub status: String,
    /// How the root was recognised, or why the stack ends.
    pub reason: String,
    /// Leaf first.
    pub frames: Vec<FrameOut>,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameOut {
    /// The instruction of the leaf or of an interrupted frame, otherwise the return address. AVMA.
    pub address: u64,
    /// Canonical frame address, if known.
    pub cfa: Option<u64>,
    /// The function, if it has a name.
    pub symbol: Option<String>,
    /// Functions inlined into it there, outermost first.
    pub inlined: Vec<String>,
    /// Path of the module.
    pub module: Option<String>,
    /// The address in the module, SVMA.
    pub svma: Option<u64>,
    /// `registers`, `cfi`, `frame_pointer` or `heuristic`.
    pub found: String,
    /// `address` is an instruction, not a return address.
    pub is_instruction: bool,
    /// `address` was taken for a return address, but does not follow a call.
    pub no_call_before: bool,
}

//! From unwound samples to folded stacks: equal stacks are counted while samples are read, and named at the end.
//!
//! A stack is kept as numbers of frames, a frame as (module, SVMA) rather than as an address, so that the same code in
//! many processes is one frame and memory grows with distinct stacks only.

mod calls;
mod folder;
mod frame;
mod interned;
mod label;
mod recent;
mod roots;
mod shown;

pub use calls::WithoutCall;
pub(crate) use calls::not_behind_calls;
pub use folder::{Amount, Folder};
pub(crate) use frame::origin;
pub use frame::{Compiled, FrameKey, Where, locate};
pub(crate) use interned::{Interned, ranks};
pub use label::Labels;
pub(crate) use label::{functions, wanted};
pub(crate) use roots::{is_unnamed, name_roots, root_name};
pub use shown::{fold, shown_comm};

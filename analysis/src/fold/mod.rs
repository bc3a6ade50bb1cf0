//! Folds unwound samples: equal stacks are counted while samples are read, and symbolised at the end.
//!
//! A stack is stored as numbers of frames, and a frame as (module, SVMA) instead of an address, so that the same code
//! in many processes is one frame and memory grows only with distinct stacks.

mod calls;
mod folder;
mod frame;
mod interned;
mod label;
mod recent;
mod roots;
mod shown;

pub use calls::WithoutCall;
pub(crate) use calls::not_after_calls;
pub use folder::{Amount, Folder};
pub use frame::{Compiled, FrameKey, Where, locate};
pub(crate) use frame::{for_lookup, origin};
pub(crate) use interned::{Interned, ranks};
pub use label::Labels;
pub(crate) use label::{functions, wanted};
pub(crate) use roots::{is_unnamed, name_roots, root_name};
pub use shown::{fold, shown_comm};

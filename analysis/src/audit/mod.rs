//! What an ELF file offers to profilers, read from the file alone: where a frame-pointer walk works, where it drops
//! a caller or breaks, where there is no unwind information at all, and how large that information is.
//!
//! You provide the bytes of a file, as anything that can be read and sought ([`examine`]).
//! In turn you get a [`FileAudit`], or the [`Refusal`] with the reason why there is none; [`Survey`] sums them by
//! package and over a whole tree. Not for 32-bit or big-endian code, and not for object files before linking.
//!
//! # How a byte of code is judged
//!
//! `.eh_frame` says for every instruction where the caller's registers are. A walk by frame pointers that starts at
//! that instruction reads only the frame pointer register, so the rows tell what it would find (x86-64):
//!
//! ```text
//! ok             CFA = rbp+16, caller's rbp at CFA-16      the register points at (caller's rbp, return address)
//! drops caller   rbp untouched, or its slot already popped  the register still belongs to the caller: it is skipped
//! breaks chain   rbp saved elsewhere, or recomputed         the register holds anything
//! no CFI         no row                                     unknown
//! ```
//!
//! # How leaf functions are recognised without disassembly
//!
//! A function calls if a byte `E8` in it, read as a call, leads exactly to the start of a function or to a linkage
//! stub, or if `FF 15` refers to a pointer in a data section: with 2^32 displacements that is no coincidence. It is a
//! leaf if it has neither and no byte pair that could be an indirect call. Only the others are decoded, from the first
//! instruction to the first call.
//!
//! # Sources
//! LSB 5.0 Core §10.6 (`.eh_frame`); x86-64 psABI §3.2.2 (frame pointer) and Fig. 3.36 (register numbers);
//! AAPCS64 §6.4.6 (frame record) and AADWARF64 §4.1; Intel SDM vol. 2, CALL.

mod arch;
mod calls;
mod check;
mod entries;
mod file;
mod model;
mod producer;
mod sections;
mod sframe;
mod survey;
mod weight;

pub use file::{AuditOptions, examine};
pub use model::{
    ByteRange, Class, Code, CodeTally, Disassembled, FileAudit, FunctionKind, FunctionRecord, Functions, Machine,
    Producer, Refusal, Remark, SframeVersion, Sizes, Source, class_at,
};
pub use survey::{FileRow, Histogram, PackageRow, Survey, SurveyMetric};
pub use weight::{FileWeight, Weighed, Weights, weigh};

#[cfg(test)]
mod tests;

//! Parsing of what profiled programs control: their ELF files, and the files in which they describe compiled code.
//!
//! The collector opens such files and reads nothing of them itself: each goes to the [`FileParser`] of the request, with what
//! is to be taken from it. A caller with privileges provides a parser that hands the file to a process without any, which
//! calls [`parse`].

mod here;
mod rules;
mod task;

pub use crate::share::Credit;
pub use here::{ParseHere, parse};
pub use rules::RuleRange;
pub use task::{FileParser, Found, JitDumpPosition, MAX_PARSED_BYTES, ParseTask, ParsedFile};

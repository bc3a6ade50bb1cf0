//! Parsing of files that profiled programs control: their ELF files, and the files that describe compiled code.
//!
//! The collector opens such files but never reads them itself: it hands each to the request's [`FileParser`], with the
//! task to perform. A privileged caller provides a parser that passes the file to an unprivileged process, which calls
//! [`parse`].

mod here;
mod rules;
mod task;

pub use crate::share::Credit;
pub use here::{ParseHere, parse};
pub use rules::RuleRange;
pub use task::{FileParser, Found, JitDumpPosition, MAX_PARSED_BYTES, ParseTask, ParsedFile};

//! Names of addresses.
//!
//! A name is looked up once for each distinct (module, SVMA), after all stacks are folded, module by module: symbol
//! tables and DWARF of a module are read, asked, and dropped again. Functions come from `.symtab`, `.dynsym` and the
//! compressed `.gnu_debugdata` of the module and from its debug file, found by build id or by `.gnu_debuglink`, and those
//! of Go programs without them from `.gopclntab`; inline frames and lines from the DWARF of either; stubs that call other modules are named `function@plt`. Code that a program
//! compiled while it ran is named by the dump or the table it kept for perf, which the recorder takes into the recording;
//! kernel names come from the kernel's table.
//!
//! Our own look-ups, on the parsers of gimli and object, over bytes that were read from the verified file, and not a
//! library that maps files by path: what was verified is what is used, a file cut short meanwhile is no SIGBUS, modules
//! that exist only in the recording have no path, and modules are looked up in parallel. And not `addr2line`: it parses
//! and keeps whole units, which a hostile one makes as large as it likes, while the addresses that are asked for are few.

mod demangle;
mod dwarf;
mod jitdump;
mod kernel;
mod module;
mod names;
mod perf_map;
mod plt;
mod symbol_map;
mod symbolizer;

pub use demangle::demangle;
pub(crate) use jitdump::JitUnwinding;
pub use jitdump::{JitCode, JitCodes};
pub use kernel::{KernelMissing, KernelName, KernelSymbols, open_kernel_symbols};
pub use names::{Detail, Name, Names, SourceLine};
pub use perf_map::PerfMap;
pub use symbolizer::{Symbolizer, kernel_symbols};

#[cfg(test)]
mod tests;

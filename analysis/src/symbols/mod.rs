//! Symbolisation.
//!
//! A name is looked up once for each distinct (module, SVMA), after all stacks are folded, module by module: symbol
//! tables and DWARF of a module are read, queried, and dropped again. Functions come from `.symtab`, `.dynsym` and the
//! compressed `.gnu_debugdata` of the module and from its debug file, found by build ID or by `.gnu_debuglink`, and
//! those of Go programs without them from `.gopclntab`; inline frames and lines from the DWARF of either. Stubs that
//! call other modules are named `function@plt`. JIT-compiled code is named by the dump or the table that the program
//! wrote for perf, which the recorder includes in the recording; kernel symbols come from the kernel's table.
//!
//! We do the look-ups ourselves, with the parsers of gimli and object over bytes read from the verified file, instead
//! of using a library that maps files by path: so the verified file is the one that is used, a file truncated meanwhile
//! causes no SIGBUS, modules that exist only in the recording need no path, and modules are handled in parallel.
//! `addr2line` is not used because it parses and keeps whole units, whose size a hostile file controls, while only few
//! addresses are needed.

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

//! Names of addresses.
//!
//! A name is looked up once for each distinct (module, SVMA), after all stacks are folded, module by module: symbol
//! tables and DWARF of a module are read, asked, and dropped again. Inline frames come from DWARF (in the file itself
//! or in its debug file by build id), names from DWARF, `.symtab` or `.dynsym`, kernel names from the kernel's table.
//!
//! `addr2line` and our own small symbol map over bytes that were read from the verified file, and not a library that
//! maps files by path: what was verified is what is used, a file cut short meanwhile is no SIGBUS, modules that exist
//! only in the recording have no path, and modules are looked up in parallel. It costs some time where there is DWARF: 300
//! addresses of libc with its debug file took 59–74 ms against 44–53 ms with blazesym, those of a Rust binary with 900
//! inline frames 40–54 ms against 33–36 ms (two to four runs each on a busy 2-CPU guest); a stripped fio takes 0.5 ms
//! either way.

mod demangle;
mod dwarf;
mod kernel;
mod module;
mod symbol_map;
mod symbolizer;

pub use demangle::demangle;
pub use kernel::{KernelMissing, KernelName, KernelSymbols, open_kernel_symbols};
pub use symbolizer::{Names, Symbolizer, kernel_symbols};

#[cfg(test)]
mod tests;

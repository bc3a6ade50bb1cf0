//! From a symbol to the name a person wrote, within limits: the profiled program chose the symbol.

use rustc_hash::FxHashMap;
use std::fmt::{self, Write};

/// Longest symbol that is demangled, bytes. Longer ones are shown as they are, cut.
const MAX_SYMBOL_BYTES: usize = 16 << 10;
/// Longest name given out, bytes.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The demangled name of a Rust or C++ symbol, any other symbol as it is; at most 4 KiB.
///
/// C++ names come with the types of their parameters, which tell overloaded functions apart, and without return types.
/// A name that was cut ends in `…`.
/// Invalid UTF-8 is replaced; control characters are left to whoever prints it.
#[must_use]
pub fn demangle(symbol: &[u8]) -> String {
    let mut name = Bounded::default();
    let text = String::from_utf8_lossy(symbol.get(..MAX_SYMBOL_BYTES).unwrap_or(symbol));
    if symbol.len() > MAX_SYMBOL_BYTES || !write_demangled(&text, &mut name) {
        name = Bounded::default();
        // Cut is noted by `Bounded` itself.
        let _ = name.write_str(&text);
    }
    name.text
}

/// Whether a symbol is a mangled name of Rust or C++.
pub(super) fn is_mangled(symbol: &[u8]) -> bool {
    symbol.starts_with(b"_Z") || symbol.starts_with(b"_R")
}

/// Names of symbols, each demangled once: many addresses are in the same functions.
#[derive(Debug, Default)]
pub(super) struct Demangled {
    names: FxHashMap<Vec<u8>, String>,
}

impl Demangled {
    /// [`demangle`]; the version of a stub, `memcpy@plt`, is left as it is.
    pub(super) fn name(&mut self, symbol: &[u8]) -> String {
        if !symbol.starts_with(b"_") {
            return demangle(symbol);
        }
        if let Some(name) = self.names.get(symbol) {
            return name.clone();
        }
        let name = match symbol.strip_suffix(b"@plt") {
            Some(function) => demangle(function) + "@plt",
            None => demangle(symbol),
        };
        self.names.insert(symbol.to_vec(), name.clone());
        name
    }
}

/// Whether `symbol` was a mangled one and is now in `name`, cut or not.
fn write_demangled(symbol: &str, name: &mut Bounded) -> bool {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return write!(name, "{rust:#}").is_ok() || name.is_cut;
    }
    if !symbol.starts_with("_Z") {
        return false;
    }
    // Both steps have limits of recursion of their own (96 and 128), which fit a thread's stack.
    let Ok(cpp) = cpp_demangle::Symbol::new(symbol.as_bytes()) else { return false };
    let writing = cpp_demangle::DemangleOptions::new().no_return_type();
    cpp.structured_demangle(name, &writing).is_ok() || name.is_cut
}

/// Text up to [`MAX_NAME_BYTES`]; writing more is an error, which ends the writer's work.
#[derive(Debug, Default)]
struct Bounded {
    text: String,
    is_cut: bool,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.is_cut {
            return Err(fmt::Error);
        }
        let left = MAX_NAME_BYTES.saturating_sub(self.text.len());
        if text.len() <= left {
            self.text.push_str(text);
            return Ok(());
        }
        let most = left.saturating_sub('…'.len_utf8());
        let cut = (0..=most).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        self.text.push_str(text.get(..cut).unwrap_or_default());
        self.text.push('…');
        self.is_cut = true;
        Err(fmt::Error)
    }
}

//! Demangles symbols, within limits: the profiled program chose them.

use rustc_hash::FxHashMap;
use std::fmt::{self, Write};

/// Longest symbol that is demangled, bytes. Longer ones are shown mangled and shortened.
const MAX_SYMBOL_BYTES: usize = 16 << 10;
/// Longest resulting name, bytes.
const MAX_NAME_BYTES: usize = 4 << 10;

/// The demangled name of a Rust or C++ symbol; any other symbol unchanged; at most 4 KiB.
///
/// C++ names include parameter types, which distinguish overloaded functions, but no return types. A shortened name
/// ends in `…`. Invalid UTF-8 is replaced; control characters are left to whoever prints the name.
#[must_use]
pub fn demangle(symbol: &[u8]) -> String {
    let mut name = Bounded::default();
    let text = String::from_utf8_lossy(symbol.get(..MAX_SYMBOL_BYTES).unwrap_or(symbol));
    if symbol.len() > MAX_SYMBOL_BYTES || !write_demangled(&text, &mut name) {
        name = Bounded::default();
        // `Bounded` itself records that it is full.
        let _ = name.write_str(&text);
    }
    name.text
}

/// Whether a symbol is mangled as in Rust or C++.
pub(super) fn is_mangled(symbol: &[u8]) -> bool {
    symbol.starts_with(b"_Z") || symbol.starts_with(b"_R")
}

/// A cache of demangled names: many addresses are in the same functions.
#[derive(Debug, Default)]
pub(super) struct Demangled {
    names: FxHashMap<Vec<u8>, String>,
}

impl Demangled {
    /// Like [`demangle`], but keeps the suffix of a stub, as in `memcpy@plt`.
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

/// Demangles `symbol` into `name`; false if it is not mangled.
fn write_demangled(symbol: &str, name: &mut Bounded) -> bool {
    // Without this, the C functions `RC4_skey` and `__RC4_skey` would be `skey`: on other systems names have an underscore less
    // or more.
    if !is_mangled(symbol.as_bytes()) {
        return false;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return write!(name, "{rust:#}").is_ok() || name.is_cut;
    }
    if !symbol.starts_with("_Z") {
        return false;
    }
    if let Some((kind, target)) = thunk(symbol) {
        return name.write_str(kind).is_ok() && write_demangled(&format!("_Z{target}"), name);
    }
    // Both steps limit recursion (96 and 128), which fits a thread's stack.
    let Ok(cpp) = cpp_demangle::Symbol::new(symbol.as_bytes()) else { return false };
    let writing = cpp_demangle::DemangleOptions::new().no_return_type();
    cpp.structured_demangle(name, &writing).is_ok() || name.is_cut
}

/// What a thunk of a virtual function is called (as by c++filt), and the encoding of that function. The library has words of its
/// own for it.
///
/// # Sources
/// Itanium C++ ABI, "Virtual Tables and RTTI": `_ZT` and `h <offset> _` or `v <offset> _ <offset> _`, or `_ZTc` and two of these,
/// before the function.
fn thunk(symbol: &str) -> Option<(&'static str, &str)> {
    let after_number = |text: &'_ str| -> Option<usize> {
        let digits = text.strip_prefix('n').unwrap_or(text);
        let n_digits = digits.bytes().take_while(u8::is_ascii_digit).count();
        let is_ended = n_digits > 0 && digits.as_bytes().get(n_digits) == Some(&b'_');
        is_ended.then_some(text.len() - digits.len() + n_digits + 1)
    };
    let after_offset = |text: &'_ str| -> Option<(&'static str, usize)> {
        let first = 1 + after_number(text.get(1..)?)?;
        match text.as_bytes().first()? {
            b'h' => Some(("non-virtual thunk to ", first)),
            b'v' => Some(("virtual thunk to ", first + after_number(text.get(first..)?)?)),
            _ => None,
        }
    };
    let (kind, target) = if let Some(rest) = symbol.strip_prefix("_ZTc") {
        let rest = rest.get(after_offset(rest)?.1..)?;
        ("covariant return thunk to ", rest.get(after_offset(rest)?.1..)?)
    } else {
        let rest = symbol.strip_prefix("_ZT")?;
        let (kind, at) = after_offset(rest)?;
        (kind, rest.get(at..)?)
    };
    // Not to another thunk, and so on.
    (!target.starts_with('T')).then_some((kind, target))
}

/// Text of at most [`MAX_NAME_BYTES`]; writing more is an error, which makes the writer stop.
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

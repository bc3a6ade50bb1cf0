//! Escapes names, which the profiled machine chooses: every format passes them through here first.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Longest name shown to a person, in characters. Readable names are shorter; a name of a megabyte would hide the rest.
const MAX_SHOWN_CHARS: usize = 1000;

/// Escapes every character of `text` that a terminal or browser interprets instead of displaying: controls (C0, DEL,
/// C1), line and paragraph separators, bidirectional marks, zero-width and other invisible characters, and
/// noncharacters. The result has no line break.
///
/// # Sources
/// Unicode 16, general categories Cc, Zl, Zp and Cf; bidirectional controls as in UTR 36 and CVE-2021-42574.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    replace(text, is_nonprinting)
}

/// [`visible`], cut after a thousand characters, with the number of omitted ones: for display to a person.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    let Some((cut, _)) = text.char_indices().nth(MAX_SHOWN_CHARS) else { return visible(text) };
    let (head, tail) = text.split_at(cut);
    Cow::Owned(format!("{}… ({} more bytes)", visible(head), tail.len()))
}

/// Writes every character for which `escape` returns true as `
/// `, `\r`, `\t` or `\u{hex}`.
pub(crate) fn replace(text: &str, escape: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&escape) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if escape(c) {
            match c {
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                _ => push_escaped(&mut out, c),
            }
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Appends `c` as `\u{hex}`.
pub(crate) fn push_escaped(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
}

/// Whether a terminal or browser interprets `c` instead of displaying it.
pub(crate) fn is_nonprinting(c: char) -> bool {
    c.is_control()
        || matches!(u32::from(c),
            0xAD | 0x61C | 0x180E | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF
            | 0xFFF9..=0xFFFB | 0xE0000..=0xE0FFF)
        || u32::from(c) & 0xFFFE == 0xFFFE
        || matches!(u32::from(c), 0xFDD0..=0xFDEF)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that plain text, other scripts and the symbols of C++ and Rust names are unchanged and not copied.
    #[test]
    fn plain_names_are_borrowed() {
        for name in ["main", "std::vector<int>::operator[](size_t)", "<[u8; 4] as Ord>::cmp", "функция", "関数", "é 😀"]
        {
            assert!(matches!(visible(name), Cow::Borrowed(same) if same == name));
        }
    }

    /// Check that characters a terminal or browser interprets are escaped.
    #[test]
    fn controls_are_written_out() {
        assert_eq!(visible("a\x1b[31mb"), "a\\u{1b}[31mb");
        assert_eq!(visible("a\r\n\tb\x7f\u{9b}"), "a\\r\\n\\tb\\u{7f}\\u{9b}");
        assert_eq!(visible("\u{202e}evil\u{2066}\u{200b}\u{feff}"), "\\u{202e}evil\\u{2066}\\u{200b}\\u{feff}");
        assert_eq!(visible("\u{2028}\u{ffff}\u{1fffe}\0"), "\\u{2028}\\u{ffff}\\u{1fffe}\\u{0}");
    }

    /// Check that a name of a megabyte is cut and marked as cut.
    #[test]
    fn long_names_are_cut() {
        let got = shown(&"é".repeat(500_000)).into_owned();
        assert!(got.starts_with("éé") && got.ends_with("… (998000 more bytes)"), "{}", &got[got.len() - 40..]);
        assert_eq!(shown(&"x".repeat(1000)).len(), 1000);
    }
}

//! Names are chosen by the profiled machine: every format passes them through here before anything else.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Longest name shown to a person, in characters. Nothing readable is longer; a name of a megabyte would hide the rest.
const MAX_SHOWN_CHARS: usize = 1000;

/// `text` with every character that a terminal or a browser obeys instead of showing written as an escape: controls
/// (C0, DEL, C1), line and paragraph separators, bidirectional marks, zero-width and other invisible characters, and
/// code points that are no characters. No line break is left.
///
/// # Sources
/// Unicode 16, general categories Cc, Zl, Zp and Cf; bidirectional controls as in UTR 36 and CVE-2021-42574.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    replace(text, is_obeyed)
}

/// [`visible`], and cut after a thousand characters with the number left out: for what people look at.
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    let Some((cut, _)) = text.char_indices().nth(MAX_SHOWN_CHARS) else { return visible(text) };
    let (head, tail) = text.split_at(cut);
    Cow::Owned(format!("{}… ({} more bytes)", visible(head), tail.len()))
}

/// `text` with every character for which `escape` says so written as `\n`, `\r`, `\t` or `\u{hex}`.
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

/// Whether `c` steers what shows it rather than being shown.
pub(crate) fn is_obeyed(c: char) -> bool {
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

    /// Check that plain text, other scripts and symbols of C++ and Rust are left alone and not copied.
    #[test]
    fn plain_names_are_borrowed() {
        for name in ["main", "std::vector<int>::operator[](size_t)", "<[u8; 4] as Ord>::cmp", "функция", "関数", "é 😀"]
        {
            assert!(matches!(visible(name), Cow::Borrowed(same) if same == name));
        }
    }

    /// Check that what a terminal or browser obeys is written out.
    #[test]
    fn controls_are_written_out() {
        assert_eq!(visible("a\x1b[31mb"), "a\\u{1b}[31mb");
        assert_eq!(visible("a\r\n\tb\x7f\u{9b}"), "a\\r\\n\\tb\\u{7f}\\u{9b}");
        assert_eq!(visible("\u{202e}evil\u{2066}\u{200b}\u{feff}"), "\\u{202e}evil\\u{2066}\\u{200b}\\u{feff}");
        assert_eq!(visible("\u{2028}\u{ffff}\u{1fffe}\0"), "\\u{2028}\\u{ffff}\\u{1fffe}\\u{0}");
    }

    /// Check that a name of a megabyte is cut and says so.
    #[test]
    fn long_names_are_cut() {
        let got = shown(&"é".repeat(500_000)).into_owned();
        assert!(got.starts_with("éé") && got.ends_with("… (998000 more bytes)"), "{}", &got[got.len() - 40..]);
        assert_eq!(shown(&"x".repeat(1000)).len(), 1000);
    }
}

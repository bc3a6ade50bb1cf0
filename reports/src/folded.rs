//! Folded stacks: one line for each distinct stack, root first, `;` between frames, then a space and the number of
//! samples, or nanoseconds for waits and for samples that stand for different amounts of CPU time.
//!
//! ```text
//! nbdkit;_start;main;run_command_[i];wait4;entry_SYSCALL_64_[k] 17
//! fio;[truncated: chunk_end];fio_nbd_queue;memcpy 3
//! ```
//!
//! - The first frame is the name (comm) of the thread when it was sampled, as in perf; a process may have several.
//! - A stack that is not complete has its end as second frame: `[truncated: REASON]` or `[broken: REASON]`. The frames
//!   between the root and the next frame are unknown.
//! - Suffixes show how a frame was found: `_[k]` kernel, `_[i]` inlined into the frame before it, `_[h]` a heuristic,
//!   `_[?]` a return address without a call before it, `_[fp]` the frame pointer where other frames were found by call
//!   frame information. No suffix: the strategy's usual way.
//! - Names: `;` becomes `:` (as in stackcollapse-perf); control and other invisible characters become `\u{hex}`, and so
//!   does anything a reader would take for the blank before the count, for a suffix or for a marker. An empty name is
//!   `[no name]`.
//!
//! # Sources
//! The format and its `_[k]`, `_[i]`: stackcollapse-perf.pl and flamegraph.pl of Brendan Gregg's `FlameGraph`.

use crate::escape::{is_nonprinting, push_escaped};
use fpprof_analysis::folded::{Folded, FoldedStack, FrameLabel, Origin, marker};
use std::borrow::Cow;
use std::io::{self, Write};

/// Writes folded stacks, sorted; processes with the same name are merged.
///
/// # Errors
/// If the writer fails; `InvalidData` for a stack with a frame that is not in [`Folded::frames`].
pub fn write(folded: &Folded, out: &mut dyn Write) -> io::Result<()> {
    let names = names(folded, whole);
    let mut lines: Vec<(String, u64)> = Vec::with_capacity(folded.stacks.len());
    for stack in &folded.stacks {
        let mut line = String::with_capacity(512);
        line.push_str(&name(&stack.comm));
        if let Some(marker) = marker(stack.stop) {
            line.push(';');
            line.push_str(&marker);
        }
        for frame in frames_of(stack, &names) {
            line.push(';');
            line.push_str(frame?);
        }
        lines.push((line, folded.amount(stack)));
    }
    lines.sort_unstable();
    lines.dedup_by(|again, first| {
        let is_equal = again.0 == first.0;
        if is_equal {
            first.1 = first.1.saturating_add(again.1);
        }
        is_equal
    });
    lines.iter().try_for_each(|(line, samples)| writeln!(out, "{line} {samples}"))
}

/// The text of every frame of `folded` in a line; `shorten` may cut the names first.
pub(crate) fn names(folded: &Folded, shorten: fn(&str) -> Cow<'_, str>) -> Vec<String> {
    let mixed = folded.frames.iter().any(|frame| frame.origin == Origin::Cfi);
    let named = |frame: &FrameLabel| format!("{}{}", name(&shorten(&frame.name)), suffix(frame.origin, mixed));
    folded.frames.iter().map(named).collect()
}

/// The name unchanged, however long.
fn whole(name: &str) -> Cow<'_, str> {
    Cow::Borrowed(name)
}

/// Names of the frames of a stack, root first.
pub(crate) fn frames_of<'a>(
    stack: &'a FoldedStack,
    names: &'a [String],
) -> impl Iterator<Item = io::Result<&'a str>> + 'a {
    stack.frames.iter().map(|&frame| {
        let index = usize::try_from(frame).unwrap_or(usize::MAX);
        names.get(index).map(String::as_str).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("frame {frame} of a stack is not in the table of frames"),
            )
        })
    })
}

fn suffix(origin: Origin, mixed: bool) -> &'static str {
    match origin {
        Origin::Kernel => "_[k]",
        Origin::Inlined => "_[i]",
        Origin::Heuristic => "_[h]",
        Origin::WithoutCall => "_[?]",
        Origin::FramePointer if mixed => "_[fp]",
        Origin::FramePointer | Origin::Leaf | Origin::Cfi => "",
    }
}

/// Escapes a name for a line: it cannot end the frame or the line, or be taken for a count, a comment, a suffix or a
/// marker.
pub(crate) fn name(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return Cow::Borrowed("[no name]");
    }
    if is_plain(text) {
        return Cow::Borrowed(text);
    }
    let last_word = text.rfind(' ').map_or(0, |blank| blank + 1);
    let count_like = text.get(last_word..).is_some_and(|word| word.chars().all(|c| c.is_ascii_digit() || c == '.'));
    let suffix_at = suffix_start(text);
    let mut out = String::with_capacity(text.len() + 16);
    for (at, c) in text.char_indices() {
        let edge = at == 0 || at + c.len_utf8() == text.len();
        match c {
            c if c.is_ascii_alphanumeric() => out.push(c),
            ';' => out.push(':'),
            '[' if at == 0 && is_marker_like(text) => push_escaped(&mut out, c),
            // flamegraph.pl and inferno draw these two as separators.
            '-' if at == 0 && matches!(text, "-" | "--") => push_escaped(&mut out, c),
            ' ' if edge || (count_like && at + 1 == last_word) => push_escaped(&mut out, c),
            '#' if at == 0 => push_escaped(&mut out, c),
            '[' if suffix_at == Some(at) => push_escaped(&mut out, c),
            c if is_nonprinting(c) || (c.is_whitespace() && c != ' ') => push_escaped(&mut out, c),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether a name has only letters, digits and characters of symbols, and so needs no check of its ends.
fn is_plain(text: &str) -> bool {
    text.starts_with(|c: char| c != '-')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.' | '-' | '<' | '>' | ',' | '@' | '&'))
}

/// Whether a name looks like the marker of a stack's end.
fn is_marker_like(text: &str) -> bool {
    ["[truncated:", "[broken:"].iter().any(|marker| text.starts_with(marker))
}

/// The position of the `[` if the name itself ends like a suffix.
fn suffix_start(text: &str) -> Option<usize> {
    ["_[k]", "_[i]", "_[h]", "_[?]", "_[fp]", "_[j]", "_[w]"]
        .iter()
        .find_map(|suffix| Some(text.strip_suffix(suffix)?.len() + 1))
}

//! The stacks of a recording, from its folded export.

use super::{fpprof, ran};
use std::ffi::OsStr;
use std::path::Path;

/// One distinct user stack of a recording: names leaf first, class and name of its stop reason, samples.
pub(crate) struct Stack {
    pub(crate) names: Vec<String>,
    pub(crate) class: String,
    pub(crate) stop: String,
    pub(crate) samples: u64,
}

/// The user stacks of a recording under a strategy, from the folded export.
pub(crate) fn stacks(file: &Path, strategy: &str) -> Vec<Stack> {
    stacks_in(file, strategy, &[])
}

/// [`stacks`] with additional options of the export.
pub(crate) fn stacks_in(file: &Path, strategy: &str, options: &[&OsStr]) -> Vec<Stack> {
    let mut export = fpprof();
    export.arg("export").arg(file).args(["--format", "folded", "--strategy", strategy]).args(options);
    let folded = ran(&mut export);
    assert_eq!(folded.status, 0, "{}", folded.stderr);
    folded.stdout.lines().filter_map(stack).collect()
}

/// Parses `comm;[truncated: reason];main;burn 42`, root first; `None` for a stack with only kernel frames.
fn stack(line: &str) -> Option<Stack> {
    let (frames, samples) = line.rsplit_once(' ')?;
    let mut frames = frames.split(';').skip(1).peekable();
    let marker = frames.next_if(|frame| frame.starts_with("[truncated: ") || frame.starts_with("[broken: "));
    let (class, stop) = match marker.and_then(|marker| marker.trim_matches(['[', ']']).split_once(": ")) {
        Some((class, stop)) => (class.to_owned(), stop.to_owned()),
        None => ("complete".to_owned(), String::new()),
    };
    let user = frames.filter(|frame| !frame.ends_with("_[k]"));
    let plain = |frame: &str| {
        ["_[i]", "_[h]", "_[?]", "_[fp]"]
            .iter()
            .fold(frame, |name, end| name.strip_suffix(end).unwrap_or(name))
            .to_owned()
    };
    let mut names: Vec<String> = user.map(plain).collect();
    names.reverse();
    (!names.is_empty()).then(|| Stack { names, class, stop, samples: samples.parse().unwrap_or(0) })
}

/// The stack with the most samples, in words.
pub(crate) fn commonest(stacks: &[Stack]) -> String {
    let most = stacks.iter().max_by_key(|stack| stack.samples);
    most.map_or("no stacks".to_owned(), |most| format!("{} < … {} {}", most.names.join("<"), most.class, most.stop))
}

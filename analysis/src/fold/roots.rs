//! Names outermost frames without a symbol.

use crate::folded::{Folded, FrameLabel};
use fpprof_unwind::{Root, StopReason};
use rustc_hash::FxHashMap;

/// Names the outermost frame of complete stacks if its module has no symbol for it, as in a stripped C library:
/// `_start` for the entry point and `__start_context` for a context's, by convention, and `[thread start]` for the
/// function below which a new thread starts.
pub(crate) fn name_roots(folded: &mut Folded) {
    let mut named: FxHashMap<(u32, &'static str), u32> = FxHashMap::default();
    for stack in &mut folded.stacks {
        let Some(name) = root_name(stack.stop) else { continue };
        let Some(outermost) = stack.frames.first_mut() else { continue };
        let Some(label) = folded.frames.get(*outermost as usize) else { continue };
        if !is_unnamed(label) {
            continue;
        }
        let next = u32::try_from(folded.frames.len()).unwrap_or(u32::MAX);
        let index = *named.entry((*outermost, name)).or_insert(next);
        if index == next {
            folded.frames.push(FrameLabel { name: name.to_owned(), ..label.clone() });
        }
        *outermost = index;
    }
}

/// The name for an unnamed outermost frame of a stack with this stop reason.
pub(crate) fn root_name(stop: StopReason) -> Option<&'static str> {
    match stop {
        StopReason::Complete(Root::Start) => Some("_start"),
        StopReason::Complete(Root::ThreadStart) => Some("[thread start]"),
        StopReason::Complete(Root::StartContext) => Some("__start_context"),
        _ => None,
    }
}

/// Whether the name is `[module+0xoffset]`, see [`FrameLabel::name`].
pub(crate) fn is_unnamed(label: &FrameLabel) -> bool {
    !label.module.is_empty() && label.name.starts_with('[') && label.name.contains("+0x")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded::{FoldedStack, Origin};

    fn label(name: &str) -> FrameLabel {
        FrameLabel { name: name.to_owned(), module: "libc.so.6".to_owned(), origin: Origin::Cfi }
    }

    fn stack(frames: &[u32], stop: StopReason) -> FoldedStack {
        FoldedStack { comm: "nbdkit".to_owned(), pid: 1, frames: frames.to_vec(), stop, samples: 1, weight: 1 }
    }

    /// Check that only outermost frames without a symbol are named, according to the stop reason.
    #[test]
    fn only_unnamed_roots_are_named() {
        let (thread, entry) = (StopReason::Complete(Root::ThreadStart), StopReason::Complete(Root::Start));
        let truncated = StopReason::Truncated(fpprof_unwind::TruncatedReason::NoCfi);
        let mut folded = Folded {
            frames: vec![label("[libc.so.6+0x1098ec]"), label("clone3")],
            stacks: vec![
                stack(&[0, 0], thread),
                stack(&[0, 1], thread),
                stack(&[0], entry),
                stack(&[1, 0], thread),
                stack(&[0], truncated),
            ],
            ..Folded::default()
        };
        name_roots(&mut folded);
        let outermost = |stack: &FoldedStack| folded.frames[stack.frames[0] as usize].name.clone();
        let names: Vec<_> = folded.stacks.iter().map(outermost).collect();
        assert_eq!(names, ["[thread start]", "[thread start]", "_start", "clone3", "[libc.so.6+0x1098ec]"]);
        assert_eq!(folded.stacks[0].frames[1], 0, "an inner frame keeps its name");
        assert_eq!(folded.frames.len(), 4);
    }
}

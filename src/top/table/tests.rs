//! Tests of the counts by function.

use super::*;
use fpprof_analysis::folded::{FoldedStack, FrameLabel, Origin};
use fpprof_unwind::{Root, StopReason};

fn folded(stacks: &[(u32, &[u32], u64)]) -> Folded {
    let label = |name: &str| FrameLabel { name: name.to_owned(), module: "m".to_owned(), origin: Origin::Cfi };
    let stack = |&(pid, frames, samples): &(u32, &[u32], u64)| FoldedStack {
        comm: format!("p{pid}"),
        pid,
        frames: frames.to_vec(),
        stop: StopReason::Complete(Root::Start),
        samples,
        weight: 0,
    };
    let frames = ["main", "f", "g"].map(label).to_vec();
    Folded { frames, stacks: stacks.iter().map(stack).collect(), ..Folded::default() }
}

fn found(window: &Window, by_process: bool) -> Vec<(String, u32, u64, u64)> {
    let row = |(key, count): (Key, Count)| (key.name.to_string(), key.pid, count.own, count.total);
    let mut rows: Vec<_> = window.rows("dwarf", by_process).into_iter().map(row).collect();
    rows.sort();
    rows
}

/// Check that a recursive function counts once per sample, that processes are separated only on request, and that old
/// seconds are removed.
#[test]
fn counts_over_a_window() {
    let mut window = Window::new(2);
    let second = |stacks| BTreeMap::from([("dwarf".to_owned(), count(&folded(stacks), None))]);
    window.push(second(&[(9, &[0, 2], 1000)]));
    window.push(second(&[(1, &[0, 1, 1], 5), (2, &[0, 1], 2)]));
    window.push(second(&[(1, &[0], 1)]));
    let row = |name: &str, pid, own, total| (name.to_owned(), pid, own, total);
    assert_eq!(found(&window, false), [row("f", 0, 7, 7), row("main", 0, 1, 8)]);
    assert_eq!(
        found(&window, true),
        [row("f", 1, 5, 5), row("f", 2, 2, 2), row("main", 1, 1, 6), row("main", 2, 0, 2)]
    );
    assert!(window.rows("fp", false).is_empty());
}

/// Check that the rows of a second are bounded, and that the samples of the others are still counted.
#[test]
fn rows_are_bounded() {
    let label = |n: usize| FrameLabel { name: format!("f{n}"), module: String::new(), origin: Origin::Leaf };
    let stack = |n: usize| FoldedStack {
        comm: String::new(),
        pid: 1,
        frames: vec![u32::try_from(n).expect("small")],
        stop: StopReason::Complete(Root::Start),
        samples: 1,
        weight: 0,
    };
    let n = MAX_ROWS + 10;
    let (frames, stacks) = ((0..n).map(label).collect(), (0..n).map(stack).collect());
    let folded = Folded { frames, stacks, ..Folded::default() };
    let counts = count(&folded, None);
    assert_eq!(counts.rows.len(), MAX_ROWS + 1);
    assert_eq!(counts.rows.iter().map(|(_, count)| count.own).sum::<u64>(), n as u64);
}

/// Check that the ends of a second add up over the window.
#[test]
fn ends_add_up() {
    let quality = Quality {
        samples: 10,
        complete: 7,
        truncated: BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 1)]),
        broken: BTreeMap::from([("c".to_owned(), 1)]),
        ..Quality::default()
    };
    let mut window = Window::new(5);
    for _ in 0..2 {
        window.push(BTreeMap::from([("fp".to_owned(), count(&Folded::default(), Some(&quality)))]));
    }
    assert_eq!(window.ends("fp"), Ends { samples: 20, complete: 14, truncated: 4, broken: 2 });
}

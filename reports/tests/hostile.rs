//! Names that a hostile program may choose, in every format: displayed, never interpreted, and counted correctly.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what helps a test fails by panicking")]

mod support;

use fpprof_analysis::experiment::{Experiment, Measured};
use fpprof_analysis::folded::{Folded, Origin};
use fpprof_analysis::summary::Summary;
use fpprof_reports::terminal::Style;
use fpprof_reports::{audit, calls, changes, experiment, flags, flamegraph, folded, json, oracle, terminal};
use fpprof_unwind::{BrokenReason, Root, StopReason, TruncatedReason};
use proptest::prelude::*;
use std::collections::BTreeMap;
use support::names::hostile;
use support::{profile, tables, written};

const PIPED: Style = Style { width: None, colors: false };
const LISTING: audit::Listing = audit::Listing { rows: 40, functions: false };

/// A summary in which every string chosen by the machine or the program is `name`.
fn summary_with(name: &str) -> Summary {
    let mut summary = profile::summary();
    let environment = &mut summary.environment;
    for text in [
        &mut environment.kernel,
        &mut environment.cpu_model,
        &mut environment.event,
        &mut environment.rate,
        &mut environment.mode,
        &mut environment.target,
        &mut environment.collector,
    ] {
        name.clone_into(text);
    }
    environment.distribution = format!("d{name}");
    summary.ended = name.to_owned();
    summary.damage = vec![name.to_owned()];
    summary.warnings = vec![name.to_owned()];
    summary.lost = [(name.to_owned(), 44)].into();
    for process in &mut summary.processes {
        name.clone_into(&mut process.comm);
    }
    for function in &mut summary.hottest {
        name.clone_into(&mut function.name);
        name.clone_into(&mut function.module);
    }
    let quality = summary.strategies.remove("dwarf").unwrap();
    summary.strategies.insert(format!("dwarf.{name}"), quality);
    let fp = summary.strategies.get_mut("fp").unwrap();
    fp.truncated = [(name.to_owned(), 122)].into();
    summary
}

/// An experiment in which every string chosen by the machine or the program is `name`, modified so that it keeps its
/// place in every sorting.
fn experiment_with(name: &str) -> Experiment {
    let mut sample = support::experiment::experiment();
    let own = |text: &str| format!("{text}{name}");
    sample.command = vec![own("a"), name.to_owned()];
    sample.rate = own("r");
    sample.event = own("e");
    sample.notes = vec![own("n")];
    let environment = &mut sample.environment;
    for text in [&mut environment.date, &mut environment.machine, &mut environment.distribution] {
        *text = own("x");
    }
    name.clone_into(&mut environment.kernel);
    name.clone_into(&mut environment.cpu_model);
    for version in &mut environment.versions {
        name.clone_into(&mut version.program);
        name.clone_into(&mut version.version);
    }
    name.clone_into(&mut sample.metric.as_mut().unwrap().name);
    sample.metric.as_mut().unwrap().unit = own("u");
    for row in &mut sample.rows {
        row.mode = own(&row.mode);
        for run in &mut row.runs {
            if let Measured::Missing(reason) = &mut run.bpf_ns_per_sample {
                *reason = own(reason);
            }
            if let Measured::Value(lost) = &mut run.lost {
                *lost = std::mem::take(lost).into_iter().map(|(cause, n)| (own(&cause), n)).collect();
            }
            let Measured::Value(strategies) = &mut run.stacks else { continue };
            for stacks in strategies {
                stacks.strategy = own(&stacks.strategy);
                stacks.unwound_by = Some(own("w"));
                stacks.flame_graph = Measured::Value(own("f"));
                stacks.processes =
                    std::mem::take(&mut stacks.processes).into_iter().map(|(comm, ends)| (own(&comm), ends)).collect();
                for ends in stacks.processes.values_mut() {
                    ends.broken = std::mem::take(&mut ends.broken).into_iter().map(|(why, n)| (own(&why), n)).collect();
                }
            }
        }
    }
    sample.complete();
    sample
}

/// Stacks whose comms and frames are `name`, with every origin and class of end.
fn folded_with(name: &str) -> Folded {
    let frame = |origin| profile::frame(name, name, origin);
    let all = [Origin::Cfi, Origin::FramePointer, Origin::Heuristic, Origin::Inlined, Origin::Leaf, Origin::Kernel];
    let frames = all.map(frame);
    profile::folded(&[
        (name, &frames, StopReason::Complete(Root::Start), 5),
        (name, &frames[..2], StopReason::Truncated(TruncatedReason::ChunkEnd), 3),
        (name, &frames[4..5], StopReason::Broken(BrokenReason::Loop), 2),
        (name, &[], StopReason::Complete(Root::KernelThread), 1),
    ])
}

/// Asserts that nothing is left that a terminal interprets, and returns the text.
fn harmless(bytes: Vec<u8>, what: &str) -> String {
    let text = String::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    for c in text.chars() {
        let bidi = matches!(u32::from(c), 0x61C | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF);
        assert!(c == '\n' || !(c.is_control() || bidi), "{what}: {c:?} is left");
    }
    text
}

/// Check that no name passes control characters to a terminal or adds a line.
#[test]
fn terminal_shows_names() {
    let plain = summary_with("name");
    let lines = written(|out| terminal::summary(&plain, &PIPED, out)).iter().filter(|&&b| b == b'\n').count();
    for name in hostile() {
        let summary = summary_with(&name);
        let text = harmless(written(|out| terminal::summary(&summary, &PIPED, out)), "report");
        assert_eq!(text.lines().count(), lines, "{name:?}");
        let narrow = Style { width: Some(40), colors: true };
        let colored = String::from_utf8(written(|out| terminal::summary(&summary, &narrow, out))).unwrap();
        for order in colored.split('\x1b').skip(1) {
            let sgr = order.strip_prefix('[').and_then(|rest| rest.split_once('m')).map(|(codes, _)| codes);
            assert!(
                sgr.is_some_and(|codes| codes.chars().all(|c| c.is_ascii_digit() || c == ';')),
                "{name:?}: {order:?}"
            );
        }
    }
}

/// Check that the experiment's text, too, shows names and keeps its lines.
#[test]
fn experiments_text_shows_names() {
    let lines = |name: &str| {
        let sample = experiment_with(name);
        harmless(written(|out| experiment::terminal(&sample, &PIPED, out)), "compare").lines().count()
    };
    let plain = lines("name");
    for name in hostile() {
        assert_eq!(lines(&name), plain, "{name:?}");
    }
}

/// Check that no name in any other table passes control characters to a terminal or adds a line.
#[test]
fn tables_show_names() {
    type Write = fn(&str, &mut Vec<u8>) -> std::io::Result<()>;
    let each: [(&str, Write); 5] = [
        ("report --function", |name, out| calls::terminal(&tables::calls(name), &PIPED, out)),
        ("diff", |name, out| changes::terminal(&tables::changes(name), &PIPED, out)),
        ("verify", |name, out| oracle::terminal(&tables::verification(name), &PIPED, out)),
        ("flags", |name, out| flags::text(&tables::evaluation(name), out)),
        ("audit", |name, out| audit::text(&tables::survey(name), LISTING, &PIPED, out)),
    ];
    for (what, write) in each {
        // A blank in a name may end a line in the text of `flags`, which is wrapped at its maximum width.
        let breaks = what == "flags";
        let lines = |name: &str| {
            let text = harmless(written(|out| write(name, out)), what);
            if breaks { 0 } else { text.lines().count() }
        };
        let plain = lines("name");
        for name in hostile() {
            assert_eq!(lines(&name), plain, "{what}: {name:?}");
        }
    }
}

/// Check that the JSON of tables preserves every name, without a raw control character or `</`.
#[test]
fn json_of_tables_gives_names_back() {
    fn check<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq>(value: &T, name: &str) {
        let bytes = written(|out| json::value(value, out));
        let read: T = serde_json::from_slice(&bytes).unwrap();
        assert!(read == *value, "{name:?} came back changed");
        assert!(!harmless(bytes, "JSON").contains("</"), "{name:?}");
    }
    for name in hostile() {
        check(&tables::calls(&name), &name);
        check(&tables::changes(&name), &name);
        check(&tables::verification(&name), &name);
        let bytes = written(|out| flags::json(&tables::evaluation(&name), out));
        assert!(!harmless(bytes, "flags").contains("</"), "{name:?}");
        let bytes = written(|out| audit::json(&tables::survey(&name), out));
        let read: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(read["unreadable"][0], *name);
        assert!(!harmless(bytes, "audit").contains("</"), "{name:?}");
    }
}

/// Check that JSON preserves every name, without a raw control character or `</`.
#[test]
fn json_gives_names_back() {
    for name in hostile() {
        let summary = summary_with(&name);
        let bytes = written(|out| json::summary(&summary, out));
        let read: Summary = serde_json::from_slice(&bytes).unwrap();
        assert!(read == summary, "{name:?} came back changed");
        assert!(!harmless(bytes, "JSON").contains("</"), "{name:?}");
    }
}

/// Parses a folded line: frames and samples.
fn unfold(line: &str) -> (Vec<&str>, u64) {
    let (stack, samples) = line.rsplit_once(' ').unwrap();
    (stack.split(';').collect(), samples.parse().unwrap())
}

fn check_folded(name: &str) {
    let stacks = folded_with(name);
    let text = harmless(written(|out| folded::write(&stacks, out)), "folded");
    let lines: Vec<_> = text.lines().map(unfold).collect();
    assert_eq!(lines.len(), 4, "{name:?}: {text}");
    let mut shape: Vec<_> = lines.iter().map(|(frames, samples)| (frames.len(), *samples)).collect();
    shape.sort_unstable();
    assert_eq!(shape, [(1, 1), (3, 2), (4, 3), (7, 5)], "{name:?}");
    for (frames, _) in &lines {
        for frame in frames {
            assert!(!frame.is_empty() && frame.trim() == *frame && !frame.starts_with('#'), "{name:?}: {frame:?}");
            // flamegraph.pl and inferno take a second number at the end of a line for a differential.
            let last = frame.rsplit(' ').next().unwrap();
            assert!(
                !frame.contains(' ') || !last.chars().all(|c| c.is_ascii_digit() || c == '.'),
                "{name:?}: {frame:?}"
            );
        }
    }
    let full = &lines.iter().max_by_key(|(frames, _)| frames.len()).unwrap().0;
    let suffixes: Vec<_> = full.iter().skip(1).map(|frame| frame.strip_prefix(full[0]).unwrap_or("?")).collect();
    assert_eq!(suffixes, ["", "_[fp]", "_[h]", "_[i]", "", "_[k]"], "{name:?}");
}

/// Check that folded stacks keep one line per stack, every frame, and the count, whatever the names.
#[test]
fn folded_keeps_lines_and_frames() {
    for name in hostile() {
        check_folded(&name);
    }
}

fn svg_of(stacks: &Folded, name: &str) -> String {
    let options = flamegraph::Options {
        title: name.to_owned(),
        event: name.to_owned(),
        strategy: name.to_owned(),
        width: Some(1200),
    };
    let mut svg = Vec::new();
    flamegraph::svg(stacks, &options, &mut svg).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    String::from_utf8(svg).unwrap()
}

fn check_svg(name: &str) {
    let svg = svg_of(&folded_with(name), name);
    let parsing = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
    let document =
        roxmltree::Document::parse_with_options(&svg, parsing).unwrap_or_else(|error| panic!("{name:?}: {error}"));
    let mut elements: BTreeMap<&str, usize> = BTreeMap::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        *elements.entry(node.tag_name().name()).or_default() += 1;
        for attribute in node.attributes() {
            assert!(!attribute.name().starts_with("on") || attribute.value() == "init(evt)", "{name:?}: {attribute:?}");
        }
    }
    // "all"; the process and its six frames; then marker, process and two frames; then marker, process and one frame.
    let boxes = 1 + 7 + 4 + 3;
    assert_eq!(elements.get("g"), Some(&boxes), "{name:?}");
    assert_eq!(elements.get("title"), Some(&boxes), "{name:?}");
    // The background and the boxes.
    assert_eq!(elements.get("rect"), Some(&(boxes + 1)), "{name:?}");
    assert_eq!(elements.get("script"), Some(&1), "{name:?}");
    assert_eq!(elements.get("style"), Some(&1), "{name:?}");
    assert!(!elements.contains_key("image") && !elements.contains_key("foreignObject"), "{name:?}");
}

/// Check that the SVG is well-formed, with one box per frame and one script, whatever the names.
#[test]
fn svg_is_well_formed() {
    for name in hostile() {
        check_svg(&name);
    }
}

/// Check that the drawing of a difference is well-formed and has the same elements, whatever the names and labels.
#[test]
fn svg_of_differences_is_well_formed() {
    let elements = |name: &str| {
        let folded = folded_with(name);
        let side = || flamegraph::Side { label: name, folded: &folded };
        let mut svg = Vec::new();
        flamegraph::svg_difference(side(), side(), false, &mut svg).unwrap();
        let svg = harmless(svg, "SVG");
        let parsing = roxmltree::ParsingOptions { allow_dtd: true, ..roxmltree::ParsingOptions::default() };
        let document =
            roxmltree::Document::parse_with_options(&svg, parsing).unwrap_or_else(|error| panic!("{name:?}: {error}"));
        let mut elements: BTreeMap<String, usize> = BTreeMap::new();
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            *elements.entry(node.tag_name().name().to_owned()).or_default() += 1;
            for attribute in node.attributes() {
                let is_own = !attribute.name().starts_with("on") || attribute.value() == "init(evt)";
                assert!(is_own, "{name:?}: {attribute:?}");
            }
        }
        // A long label takes another line above the picture.
        elements.remove("tspan");
        elements
    };
    let plain = elements("name");
    for name in hostile() {
        assert_eq!(elements(&name), plain, "{name:?}");
    }
}

/// Check that two frames with the same name, found in different ways, are two boxes in two colours.
#[test]
fn origins_do_not_share_a_box() {
    let svg = svg_of(&folded_with("same"), "same");
    for (title, color) in [("same_[fp] (", "rgb(1"), ("same_[h] (", "rgb(2")] {
        let at = svg.find(title).unwrap_or_else(|| panic!("no {title}"));
        let fill = svg[at..].split("fill=\"").nth(1).unwrap();
        assert!(fill.starts_with(color), "{title}: {}", &fill[..20]);
    }
}

/// Check that a sibling whose name continues with a character below `;` does not split a box.
#[test]
fn siblings_do_not_tear_boxes() {
    let cfi = |name| profile::frame(name, "m", Origin::Cfi);
    let complete = StopReason::Complete(Root::Start);
    let stacks = profile::folded(&[
        ("p", &[cfi("f")], complete, 1),
        ("p", &[cfi("f::g")], complete, 2),
        ("p", &[cfi("f g")], complete, 3),
        ("p", &[cfi("f"), cfi("x")], complete, 4),
    ]);
    let svg = svg_of(&stacks, "");
    assert_eq!(svg.matches("<title>f (").count(), 1);
    assert!(svg.contains("<title>f (5 samples, 50.00%)</title>"), "{svg}");
}

/// Check that an empty profile and one beyond exact counts are refused, and nothing is written.
#[test]
fn impossible_graphs_are_refused() {
    let refused = |stacks: &Folded| {
        let mut out = Vec::new();
        let error = flamegraph::svg(stacks, &flamegraph::Options::default(), &mut out).unwrap_err();
        assert!(out.is_empty());
        error
    };
    assert!(matches!(refused(&Folded::default()), flamegraph::Error::NoSamples));
    let mut stacks = profile::dwarf();
    stacks.stacks[0].samples = u64::MAX;
    assert!(matches!(refused(&stacks), flamegraph::Error::TooManySamples));
    stacks.stacks[0].samples = 1;
    stacks.stacks[0].frames = vec![9999];
    assert!(
        matches!(refused(&stacks), flamegraph::Error::Write(error) if error.kind() == std::io::ErrorKind::InvalidData)
    );
    assert!(folded::write(&stacks, &mut Vec::new()).is_err());
}

/// Tags of a page in order, without their attributes.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split([' ', '>']).next().unwrap()).collect()
}

/// Check that no name changes the structure of the page: the tags are those of a page with plain names.
#[test]
fn page_keeps_its_tags() {
    let page = |name: &str| {
        let sample = experiment_with(name);
        harmless(written(|out| experiment::html(&sample, out)), "page")
    };
    let plain = page("name");
    assert!(!tags(&plain).contains(&"script"));
    for name in hostile() {
        let got = page(&name);
        assert!(tags(&got) == tags(&plain), "{name:?} changes the tags");
        let attributes = |page: &str| page.matches("=\"").count();
        assert_eq!(attributes(&got), attributes(&plain), "{name:?} changes the attributes");
    }
}

/// Check the same for the pages of `audit` and `flags`, which run no script.
#[test]
fn pages_of_tables_keep_their_tags() {
    let pages: [fn(&str) -> Vec<u8>; 2] = [
        |name| written(|out| audit::html(&tables::survey(name), &tables::audited(name), out)),
        |name| written(|out| flags::html(&tables::evaluation(name), out)),
    ];
    for page in pages {
        let page = |name: &str| harmless(page(name), "page");
        let plain = page("name");
        assert!(!tags(&plain).contains(&"script"));
        for name in hostile() {
            let got = page(&name);
            assert!(tags(&got) == tags(&plain), "{name:?} changes the tags");
            let attributes = |page: &str| page.matches("=\"").count();
            assert_eq!(attributes(&got), attributes(&plain), "{name:?} changes the attributes");
        }
    }
}

/// Check that no name adds a line or a cell to the Markdown, or an element to its rendering.
#[test]
fn markdown_keeps_lines_and_cells() {
    let shape = |name: &str| {
        let sample = experiment_with(name);
        let text = harmless(written(|out| experiment::markdown(&sample, out)), "Markdown");
        let bare = text.replace("\\\\", "").replace("\\|", "").replace("\\<", "");
        bare.lines().map(|line| (line.matches('|').count(), line.matches('<').count())).collect::<Vec<_>>()
    };
    let plain = shape("name");
    for name in hostile() {
        assert_eq!(shape(&name), plain, "{name:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that arbitrary names keep folded lines and the SVG intact.
    #[test]
    fn any_name_is_kept_whole(name in any::<String>()) {
        check_folded(&name);
        check_svg(&name);
    }
}

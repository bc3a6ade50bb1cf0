//! Every output, compared byte by byte with reviewed files.

mod support;

use fpprof_analysis::accuracy::{Agreement, Relation};
use fpprof_analysis::experiment::{ExperimentMethod, Measured, ProcessStacks, Right, StackEnds};
use fpprof_reports::terminal::{Check, CheckStatus, Closing, Style};
use fpprof_reports::{experiment, flamegraph, folded, json, terminal};
use support::{detail, golden, profile, written};

const PLAIN: Style = Style { width: None, colors: false };

fn wide(width: usize) -> Style {
    Style { width: Some(width), colors: false }
}

/// Check that the text of `report` equals the reviewed one: piped, on a usual terminal, and on a narrow one.
#[test]
fn summary_in_words() {
    let summary = profile::summary();
    golden("summary.txt", &written(|out| terminal::summary(&summary, &PLAIN, out)));
    golden("summary-100.txt", &written(|out| terminal::summary(&summary, &wide(100), out)));
    golden("summary-60.txt", &written(|out| terminal::summary(&summary, &wide(60), out)));
    let colors = Style { width: Some(100), colors: true };
    golden("summary-colors.txt", &written(|out| terminal::summary(&summary, &colors, out)));
}

/// Check that the verdict says so if its reference followed frame pointers in more than one stack in a hundred.
#[test]
fn verdicts_say_what_frame_pointers_were_followed() {
    let with = |n: u64, m: u64| {
        let mut analysis = detail::analysis();
        let dwarf = analysis.summary.strategies.get_mut("dwarf").unwrap();
        (dwarf.fp_in_jit, dwarf.fp_fallback) = (dwarf.samples * n / 100, dwarf.samples * m / 100);
        String::from_utf8(written(|out| terminal::verdict(&analysis, &PLAIN, out))).unwrap()
    };
    let says = |words: String, code: &str| words.contains(&format!("the stacks, callers of {code} were found by"));
    assert!(says(with(50, 0), "JIT-compiled code") && says(with(0, 50), "code without call frame information"));
    assert_eq!(with(1, 1), with(0, 0));
}

/// Check the verdict's text: if a chunk is enough; if the reference's own stacks end early, another unwinder
/// contradicts it, or its return addresses do not follow calls, so that there is no verdict; and that a process name
/// with few samples does not count.
#[test]
fn verdicts_in_words() {
    let written = |analysis| String::from_utf8(written(|out| terminal::verdict(&analysis, &PLAIN, out))).unwrap();
    let enough = detail::analysis();
    golden("verdict.txt", written(enough.clone()).as_bytes());
    let ends_by = |reason: &str| {
        let mut analysis = enough.clone();
        let ends = &mut analysis.summary.processes[0].strategies.get_mut("dwarf").unwrap();
        ends.complete -= 1000;
        ends.truncated.insert(reason.to_owned(), 1000);
        for sizes in analysis.chunk_sizes.iter_mut().flat_map(|(_, each)| each.first_mut()) {
            *sizes.sizes.needed_bytes.values_mut().next().unwrap() -= 1000;
        }
        analysis
    };
    let agreement = |other: &str, relation, n| {
        let mut analysis = enough.clone();
        let fp = &analysis.summary.agreements[0];
        let relations = [(relation, n), (Relation::Same, fp.samples - n)].into();
        analysis.summary.agreements.push(Agreement { other: other.to_owned(), relations, ..fp.clone() });
        analysis
    };
    let mut forged = enough.clone();
    forged.summary.no_call_before.insert("dwarf".to_owned(), 2_000);
    let doubtful = [
        ("verdict-no-cfi.txt", ends_by("no_cfi")),
        ("verdict-chunk-end.txt", ends_by("chunk_end")),
        ("verdict-opinion.txt", agreement("libunwind", Relation::WrongFrame, 600)),
        ("verdict-no-call.txt", forged),
    ];
    for (name, analysis) in doubtful {
        let words = written(analysis);
        golden(name, words.as_bytes());
        let is_size = |word: &str| {
            word.trim_end_matches(['.', ',', ':']).strip_suffix('K').is_some_and(|n| n.parse::<u32>().is_ok())
        };
        let has_size = words.contains("--call-graph") || words.split_whitespace().any(is_size);
        assert!(!has_size, "{name}: a size that nobody knows: {words}");
    }
    let without_weight = [
        agreement("libunwind", Relation::Prefix, 6_000),
        agreement("libunwind", Relation::WrongFrame, 100),
        agreement("dwarf@8192", Relation::WrongFrame, 6_000),
    ];
    without_weight.into_iter().for_each(|analysis| assert_eq!(written(analysis), written(enough.clone())));
    let mut few = enough.clone();
    let mut sh = few.summary.processes[0].clone();
    (sh.comm, sh.samples) = ("sh".to_owned(), 99);
    let ends = sh.strategies.get_mut("dwarf").unwrap();
    (ends.samples, ends.complete) = (99, 50);
    few.summary.processes.push(sh);
    let headline = |text: String| text.lines().next().unwrap().to_owned();
    assert_eq!(headline(written(few)), headline(written(enough)));
}

/// Check that a strategy that needs copied stacks, too, is no alternative to them: the verdict is on the chunk.
#[test]
fn only_frame_pointers_are_an_alternative() {
    let verdict = |other: Option<&str>, is_same: bool| {
        let mut analysis = detail::analysis();
        let stacks = &mut analysis.detail.as_mut().unwrap().stacks;
        stacks.other = other.map(str::to_owned);
        if is_same {
            let relations = [(Relation::Same, analysis.summary.agreements[0].samples)].into();
            analysis.summary.agreements[0].relations = relations;
        }
        for process in &mut analysis.summary.processes {
            let whole = process.strategies["dwarf"].clone();
            process.strategies.extend(other.map(|other| (other.to_owned(), whole)));
        }
        let text = String::from_utf8(written(|out| terminal::verdict(&analysis, &PLAIN, out))).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    let chunk = verdict(None, false);
    assert!(chunk.starts_with("verdict   Chunks of "), "{chunk}");
    for other in ["elfutils", "dwarf@4096", "sframe"] {
        assert_eq!([true, false].map(|is_same| verdict(Some(other), is_same)), [&*chunk, &*chunk], "{other}");
    }
    assert_ne!(verdict(Some("fp"), false), chunk);
}

/// Check that the headline's share of complete frame-pointer stacks equals the table's: in a Go program nearly all
/// reach their root, but a third lacks a frame.
#[test]
fn headlines_and_tables_agree() {
    let mut go = detail::analysis();
    for process in &mut go.summary.processes {
        let whole = process.strategies["dwarf"].clone();
        process.strategies.insert("fp".to_owned(), whole);
    }
    let words = String::from_utf8(written(|out| terminal::verdict(&go, &PLAIN, out))).unwrap();
    let expected = "verdict   With frame pointers, 89.4 % of the stacks have missing or wrong frames, and 99.8 % reach their root.";
    assert!(words.starts_with(expected), "{words}");
}

/// Check that a recording that was cut, does not balance, or has unknown cost says so.
#[test]
fn damaged_summary_in_words() {
    let mut summary = profile::summary();
    summary.fired += 7;
    summary.unaccounted = 7;
    summary.sideband_lost = 3;
    summary.cost = None;
    summary.dropped = 2;
    summary.ended = "the recorder was killed: there is no end block".to_owned();
    summary.ended_in_order = false;
    summary.damage = vec!["block 12 at byte 40960 fails its CRC and was skipped (1,024 bytes)".to_owned()];
    summary.strategies.get_mut("fp").unwrap().complete -= 1;
    golden("summary-damaged.txt", &written(|out| terminal::summary(&summary, &wide(100), out)));
}

/// Check that the report of an empty recording has no invented figures.
#[test]
fn empty_summary_in_words() {
    let mut summary = profile::summary();
    summary.fired = 10;
    summary.recorded = 0;
    summary.lost.clear();
    summary.file_bytes = 412;
    summary.strategies = [("dwarf".to_owned(), fpprof_analysis::summary::Quality::default())].into();
    summary.processes.clear();
    summary.hottest.clear();
    summary.warnings.clear();
    golden("summary-empty.txt", &written(|out| terminal::summary(&summary, &wide(100), out)));
}

/// Check that the closing lines of `record` have balance, volume and own cost.
#[test]
fn closing_lines() {
    let summary = profile::summary();
    golden("closing.txt", &written(|out| terminal::closing(&Closing::from(&summary), &wide(80), out)));
}

/// Check that doctor's table says what is available, what is missing and what to do.
#[test]
fn doctors_table() {
    let check = |name: &str, status, found: &str, remedy: Option<&str>| Check {
        name: name.to_owned(),
        status,
        found: found.to_owned(),
        remedy: remedy.map(str::to_owned),
    };
    let checks = [
        check("CAP_BPF", CheckStatus::Ok, "effective", None),
        check(
            "hardware cycles",
            CheckStatus::Limited,
            "no PMU in this guest",
            Some("cpu-clock is used instead; it cannot see code that runs with interrupts off"),
        ),
        check(
            "perf_event_paranoid",
            CheckStatus::Missing,
            "4",
            Some("run as root, or: sysctl kernel.perf_event_paranoid=1"),
        ),
    ];
    golden("doctor.txt", &written(|out| terminal::checks(&checks, &wide(72), out)));
}

/// Check that `report --json` keeps its keys and their order, and that it can be read back.
#[test]
fn summary_as_json() {
    let summary = profile::summary();
    let bytes = written(|out| json::summary(&summary, out));
    golden("summary.json", &bytes);
    assert_eq!(serde_json::from_slice::<fpprof_analysis::summary::Summary>(&bytes).unwrap(), summary);
}

/// Check that folded stacks equal the reviewed ones.
#[test]
fn folded_stacks() {
    golden("dwarf.folded", &written(|out| folded::write(&profile::dwarf(), out)));
    golden("fp.folded", &written(|out| folded::write(&profile::frame_pointers(), out)));
}

fn options(strategy: &str) -> flamegraph::Options {
    flamegraph::Options {
        title: "nbdkit + fio".to_owned(),
        event: "cpu-clock".to_owned(),
        strategy: strategy.to_owned(),
        width: None,
    }
}

/// Check that flame graphs equal the reviewed ones.
#[test]
fn flame_graphs() {
    for (name, stacks) in [("dwarf", profile::dwarf()), ("fp", profile::frame_pointers())] {
        let mut svg = Vec::new();
        flamegraph::svg(&stacks, &options(name), &mut svg).unwrap();
        golden(&format!("{name}.svg"), &svg);
    }
}

/// Check that a mode with copied stacks is judged by these, not by its frame pointers, even if more of theirs are
/// complete.
#[test]
fn modes_are_judged_by_their_copied_stacks() {
    let mut sample = support::experiment::experiment();
    let both = sample.rows.iter_mut().find(|row| row.method == ExperimentMethod::Both).unwrap();
    let label = both.mode.clone();
    let Measured::Value(stacks) = &mut both.aggregate.stacks else { panic!("{both:?}") };
    for stacks in stacks.iter_mut() {
        let dwarf = stacks.strategy != "fp";
        for ends in stacks.processes.iter_mut().map(|process| &mut process.ends).chain([&mut stacks.all]) {
            let n_truncated = if dwarf { ends.samples / 500 } else { 0 };
            ends.complete = ends.samples - n_truncated;
        }
    }
    sample.rows.retain(|row| matches!(row.method, ExperimentMethod::None | ExperimentMethod::Both));
    let text = String::from_utf8(written(|out| experiment::terminal(&sample, &PLAIN, out))).unwrap();
    assert!(text.contains(&format!("{label} is the cheapest usable mode")), "{text}");
}

/// Check that the experiment's table equals the reviewed one, in every format.
#[test]
fn experiments_table() {
    let sample = support::experiment::experiment();
    golden("experiment.txt", &written(|out| experiment::terminal(&sample, &PLAIN, out)));
    golden("experiment-100.txt", &written(|out| experiment::terminal(&sample, &wide(100), out)));
    golden("experiment.md", &written(|out| experiment::markdown(&sample, out)));
    golden("experiment.html", &written(|out| experiment::html(&sample, out)));
}

/// Check that a process name with few samples does not affect whether a mode is usable, that one with a hundred does,
/// and that all together do.
#[test]
fn small_processes_have_no_say_in_an_experiment() {
    let verdict = |all: [u64; 2], named: [u64; 2]| {
        let mut sample = support::experiment::experiment();
        sample.rows.retain(|row| row.mode == "dwarf,65536");
        let Measured::Value(strategies) = &mut sample.rows[0].aggregate.stacks else { panic!("it has stacks") };
        let ends = |[complete, samples]: [u64; 2]| StackEnds { samples, complete, ..StackEnds::default() };
        strategies[0].all = ends(all);
        strategies[0].processes = vec![ProcessStacks { name: "named".to_owned(), ends: ends(named) }];
        String::from_utf8(written(|out| experiment::terminal(&sample, &PLAIN, out))).unwrap()
    };
    assert!(verdict([9910, 10_000], [9, 99]).contains("dwarf,65536 is the cheapest usable mode"));
    assert!(verdict([9910, 10_000], [10, 100]).contains("but: named 10.0 % complete."));
    assert!(verdict([9890, 10_000], [100, 100]).contains("but: overall 98.9 % complete."));
}

/// Check that frame pointers are usable only if they are right, not merely complete, and that this is not guessed.
#[test]
fn complete_frame_pointers_are_not_enough() {
    let verdict = |right: Option<u64>, dwarf: u64| {
        let mut sample = support::experiment::experiment();
        sample.rows.retain(|row| row.mode == "fp" || right.is_some() && row.method == ExperimentMethod::Both);
        for row in &mut sample.rows {
            let Measured::Value(strategies) = &mut row.aggregate.stacks else { panic!("it has stacks") };
            for stacks in strategies {
                let complete = if stacks.strategy == "dwarf" { dwarf } else { 1000 };
                stacks.all = StackEnds { samples: 1000, complete, ..StackEnds::default() };
                stacks.processes.clear();
            }
            let frame_pointers = right.map(|right| Right { compared: 1000, right });
            row.aggregate.frame_pointers = Measured::or_missing(frame_pointers, "no mode both");
        }
        String::from_utf8(written(|out| experiment::terminal(&sample, &PLAIN, out))).unwrap()
    };
    let usable = "fp is the cheapest usable mode";
    assert!(verdict(Some(995), 1000).contains(usable));
    let wrong = verdict(Some(720), 1000);
    assert!(!wrong.contains(usable) && wrong.contains("28.0 % have missing or wrong frames"), "{wrong}");
    for unknown in [verdict(None, 1000), verdict(Some(1000), 980)] {
        assert!(!unknown.contains(usable) && unknown.contains("not compared with complete DWARF"), "{unknown}");
    }
}

/// Check that the page embeds the two pictures it requests, and no others.
#[test]
fn page_with_pictures() {
    let sample = support::experiment::experiment();
    let mut pictures = experiment::Pictures::new();
    for (file, stacks) in [("fp-fp.svg", profile::frame_pointers()), ("dwarf-65536-dwarf.svg", profile::dwarf())] {
        let mut svg = Vec::new();
        flamegraph::svg(&stacks, &options(file), &mut svg).unwrap();
        pictures.insert(file.to_owned(), svg);
    }
    pictures.insert("other.svg".to_owned(), b"<svg/>".to_vec());
    let page = written(|out| experiment::html_with(&sample, &pictures, None, out));
    let page = String::from_utf8(page).unwrap();
    assert_eq!(page.matches("<img src=\"data:image/svg+xml;base64,").count(), 2);
    golden("experiment-pictures.html", page.as_bytes());
}

/// Check that the page of a recording is embedded in a frame that it cannot end, and that only the bundled script may
/// run.
#[test]
fn page_with_a_recording() {
    let sample = support::experiment::experiment();
    let inner = "<script>\"'</iframe>&";
    let page = written(|out| experiment::html_with(&sample, &experiment::Pictures::new(), Some(inner), out));
    let page = String::from_utf8(page).unwrap();
    assert_eq!((page.matches("<iframe").count(), page.matches("</iframe>").count()), (1, 1));
    assert!(page.contains("; script-src 'sha256-") && !page.contains("script-src 'unsafe"), "{page}");
    assert!(!page.contains("<script>"), "{page}");
}

/// Check that results.json keeps its keys, and that it can be read back, with as few modes and rounds as have all keys.
#[test]
fn experiment_as_json() {
    let mut sample = support::experiment::experiment();
    let modes = ["none", "fp", "both,65536"];
    sample.rows.retain(|row| modes.contains(&row.mode.as_str()));
    for row in &mut sample.rows {
        row.runs.truncate(2);
    }
    (sample.repeats, sample.order) = (2, [modes, modes].concat().into_iter().map(str::to_owned).collect());
    sample.complete();
    let bytes = written(|out| json::value(&sample, out));
    golden("results.json", &bytes);
    let read: fpprof_analysis::experiment::Experiment = serde_json::from_slice(&bytes).unwrap();
    assert!(read == sample, "what is read back differs");
}

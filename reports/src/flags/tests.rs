//! A small evaluation in every format.

use super::{html, json, text};
use fpprof_analysis::flags::{
    Arm, ArmResult, FileSizes, FlagSet, FlagsEnvironment, FlagsMethod, FlagsQuality, Raw, RawProgram, StrategyQuality,
    Times, evaluate,
};
use std::collections::BTreeMap;

fn arm(text: u64, complete: u64) -> ArmResult {
    let of = |complete| StrategyQuality {
        samples: 1000,
        complete,
        reach_main: complete,
        reasons: BTreeMap::from([("broken: ra_not_exec".to_owned(), 1000 - complete)]),
        breaking_files: BTreeMap::from([("libc.so.6".to_owned(), 5)]),
        ..StrategyQuality::default()
    };
    let strategies = [("fp", complete), ("dwarf@4096", 700), ("dwarf", 999)];
    let strategies = strategies.into_iter().map(|(name, complete)| (name.to_owned(), of(complete))).collect();
    ArmResult {
        sizes: FileSizes { text, unwind: 100, sframe: 0, stripped: text + 500 },
        tally: None,
        instructions: Some(text * 10),
        quality: Some(FlagsQuality { strategies, ..FlagsQuality::default() }),
    }
}

/// Two programs, one of them with a hostile name; the flag set is 3 % slower in both.
fn raw() -> Raw {
    let program = |name: &str| RawProgram {
        name: name.to_owned(),
        arms: vec![
            Arm { flags: "base".to_owned(), again: false },
            Arm { flags: "base".to_owned(), again: true },
            Arm { flags: "fp".to_owned(), again: false },
        ],
        results: vec![arm(1000, 0), arm(1000, 0), arm(1034, 990)],
        layouts: vec![vec![0, 1, 2]; 3],
        times: (0..10)
            .map(|round| Times {
                round,
                cpu_s: vec![vec![1.0, 1.001, 0.999], vec![1.0, 1.002, 0.998], vec![1.03, 1.031, 1.029]],
            })
            .collect(),
    };
    let flags = |name: &str| FlagSet {
        name: name.to_owned(),
        compiler: "gcc".to_owned(),
        version: "gcc 12".to_owned(),
        cflags: "-O2".to_owned(),
        against: "base".to_owned(),
    };
    Raw {
        environment: FlagsEnvironment::default(),
        method: FlagsMethod {
            seed: 7,
            rounds: 10,
            layouts: 3,
            copies: 1,
            repeat: "fpprof flags run x".to_owned(),
            ..FlagsMethod::default()
        },
        flag_sets: vec![flags("base"), flags("fp")],
        programs: vec![program("lua"), program("<script>\u{1b}[2J")],
        missing: vec!["compiler icc: no icc".to_owned()],
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Check that the text has verdict, rule, sign, A/A, seed, missing data and how to repeat it, and passes no control
/// characters of names to the terminal.
#[test]
fn text_holds_what_a_list_asks_for() {
    let got = written(|out| text(&evaluate(&raw()), out));
    for part in [
        "fp against base: REJECT",
        "+3.00 [",
        "A/A base",
        "Above zero is slower",
        "compiler icc: no icc",
        "fpprof flags run x",
        "dwarf@4096",
        "broken: ra_not_exec",
        "libc.so.6 in 0.5 % of the samples (10)",
        "95 % interval",
    ] {
        assert!(got.contains(part), "no `{part}` in\n{got}");
    }
    assert!(!got.contains('\u{1b}'), "{got}");
    assert!(got.lines().any(|line| line.trim_start().starts_with("seed") && line.ends_with('7')), "{got}");
}

/// Check that the drawings match the figures: +34 bytes of .text in a file of 1500, time and instructions +3 %.
#[test]
fn drawings_hold_the_figures() {
    let page = written(|out| html(&evaluate(&raw()), out));
    for part in
        ["+2.27 % of the file", "lua: instructions +3.40, time +3.00", "aria-label=\"success against chunk size\""]
    {
        assert!(page.contains(part), "no `{part}` in\n{page}");
    }
}

/// Check that no table makes the page wider than a phone's screen.
#[test]
fn page_fits_a_phone() {
    let page = written(|out| html(&evaluate(&raw()), out));
    assert_eq!(crate::browser::overflow(&page, 390), 0);
}

/// Check that no name adds a tag to the page, and that the JSON can be read back.
#[test]
fn page_and_json_are_well_formed() {
    let page = written(|out| html(&evaluate(&raw()), out));
    assert!(
        !page.contains("<script") && page.contains("&lt;script&gt;") && page.contains("class=\"curves\""),
        "{page}"
    );
    let value: serde_json::Value = serde_json::from_str(&written(|out| json(&evaluate(&raw()), out))).unwrap();
    assert_eq!(value["results"][1]["arm"]["flags"], "fp");
    assert_eq!(value["results"][1]["verdict"]["verdict"], "reject");
}

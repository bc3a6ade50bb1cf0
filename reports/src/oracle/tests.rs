use crate::json;
use crate::oracle::terminal;
use crate::terminal::Style;
use fpprof_analysis::oracle::{
    Group, JudgedStack, LeafSkips, Mismatch, ShownFrame, StrategyVerdicts, Verdicts, Verification, VerifiedRun,
};
use std::collections::BTreeMap;

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|&(name, n)| (name.to_owned(), n)).collect()
}

fn frame(address: u64, cfa: Option<u64>, name: &str) -> ShownFrame {
    ShownFrame { address, cfa, name: name.to_owned() }
}

fn group(name: &str, file: &str, exact: u64, wrong: u64) -> Group {
    let verdicts = Verdicts { exact, wrong, ..Verdicts::default() };
    let broke = Verdicts { wrong, ..Verdicts::default() };
    Group {
        name: name.to_owned(),
        file: file.to_owned(),
        checked: exact + wrong,
        leaf: vec![verdicts],
        broke: vec![broke],
    }
}

fn verification() -> Verification {
    Verification {
        run: VerifiedRun {
            command: vec!["prog".to_owned(), "a\x1b[31mb".to_owned()],
            ended: "exited with status 0".to_owned(),
            instructions: 2500,
            every: 2,
            skipped: 500,
            window: Some(300),
            leap: Some(2000),
            seed: Some(4_294_967_295),
            events: counts(&[("calls", 12), ("signals", 0), ("stack_switches", 3)]),
        },
        checked: 1000,
        partly_judged: 12,
        excluded: counts(&[("between_stacks", 4)]),
        strategies: vec![StrategyVerdicts {
            name: "dwarf".to_owned(),
            exact: 997,
            roots_missed: 3,
            truncated: counts(&[("no_cfi", 1)]),
            flagged: counts(&[("heuristic", 1)]),
            wrong: counts(&[("wrong_frame", 1)]),
            leaf_skips: LeafSkips { real: 1, flagged: 2, both: 1 },
        }],
        kernel_walks: None,
        functions: vec![group("main", "prog", 900, 0), group("</script>", "libevil.so", 97, 1)],
        files: vec![group("/bin/prog", "", 900, 0)],
        compilers: vec![group("GNU C17 12.2.0", "", 997, 1)],
        disagreements: vec![Mismatch {
            instruction: 1234,
            strategy: "dwarf".to_owned(),
            place: "leaf prog+0x10".to_owned(),
            culprit: "middle prog+0x20".to_owned(),
            culprit_svma: 0x20,
            culprit_file: "/bin/prog".to_owned(),
            row: "CFA=rsp+8, ra=[cfa-8] for 0x18..0x28".to_owned(),
            truth: vec![frame(0x1010, Some(0x7000), "leaf prog+0x10"), frame(0x1020, None, "middle prog+0x20")],
            stacks: vec![JudgedStack {
                strategy: "dwarf".to_owned(),
                class: "wrong".to_owned(),
                reason: "wrong_frame".to_owned(),
                frames: vec![frame(0x1010, Some(0x7000), "leaf prog+0x10"), frame(0x4141, None, "x")],
            }],
        }],
        warnings: vec!["/bin/prog: not found".to_owned()],
    }
}

/// Check that the text has everything of a run: figures, reasons, exclusions, places and the disagreement.
#[test]
fn the_text_says_everything() {
    let mut out = Vec::new();
    terminal(&verification(), &Style::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for words in [
        "2,500 instructions · exited with status 0",
        "one in 2 · without the first 500 · in windows of 300, about 2,000 calls, returns and jumps apart · seed 4294967295 · 12 of them only up to where Go's run-time library ends the stack · 4 excluded: between_stacks",
        "12 calls · 3 stack switches",
        "99.700 %",
        "wrong_frame 0.100 % (1)",
        "caller of the leaf missing in 0.100 %; flagged in 0.200 %, rightly in 0.100 %",
        "root not recognised in 0.300 % (3)",
        "GNU C17 12.2.0",
        "Instruction 1,234: dwarf",
        "CFA=rsp+8, ra=[cfa-8] for 0x18..0x28",
        "0x4141",
        "/bin/prog: not found",
    ] {
        assert!(text.contains(words), "{words:?} is missing in\n{text}");
    }
    assert!(!text.contains("0 signals"), "{text}");
}

/// Check that the program's names cannot control the terminal or end a script, in text and in JSON.
#[test]
fn names_are_harmless() {
    let mut text = Vec::new();
    terminal(&verification(), &Style::default(), &mut text).unwrap();
    let mut machine = Vec::new();
    json::value(&verification(), &mut machine).unwrap();
    assert!(!text.contains(&0x1b) && !machine.contains(&0x1b));
    assert!(!String::from_utf8(machine.clone()).unwrap().contains("</"));
    let back: Verification = serde_json::from_slice(&machine).unwrap();
    assert_eq!(back, verification());
}

/// Check that a run that checked nothing claims nothing.
#[test]
fn nothing_checked_claims_nothing() {
    let nothing = Verification {
        checked: 0,
        strategies: vec![StrategyVerdicts {
            exact: 0,
            roots_missed: 0,
            truncated: BTreeMap::new(),
            flagged: BTreeMap::new(),
            wrong: BTreeMap::new(),
            leaf_skips: LeafSkips::default(),
            name: "dwarf".to_owned(),
        }],
        functions: Vec::new(),
        files: Vec::new(),
        compilers: Vec::new(),
        disagreements: Vec::new(),
        ..verification()
    };
    let mut out = Vec::new();
    terminal(&nothing, &Style::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().any(|line| line.split_whitespace().eq(["dwarf", "–", "–", "–", "–"])), "{text}");
}

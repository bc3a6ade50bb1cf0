//! A small survey in every format.

use super::{Audited, Listing, html, json, text};
use crate::terminal::Style;
use fpprof_analysis::audit::{
    Code, CodeTally, FileAudit, FileWeight, Functions, Machine, Remark, Source, Survey, Weighed, Weights,
};

fn file(non_leaf_framed: u64, non_leaf: u64) -> FileAudit {
    let functions = Functions {
        total: non_leaf + 10,
        framed: non_leaf_framed,
        non_leaf,
        non_leaf_framed,
        leaf: 10,
        ..Functions::default()
    };
    let code = Code { executable: 1000, ok: 600, drops_caller: 200, breaks_chain: 100, padding: 50, go: 0, no_cfi: 50 };
    FileAudit {
        machine: Machine::X86_64,
        build_id: String::new(),
        tally: CodeTally { functions, code, ..CodeTally::default() },
        source: Source::EhFrame,
        sframe: None,
        go: false,
        compilers: Vec::new(),
        producers: Vec::new(),
        disassembled: None,
        records: Vec::new(),
        ranges: Vec::new(),
        remarks: Vec::new(),
    }
}

fn survey() -> Survey {
    let mut survey = Survey { looked_at: 7, ..Survey::default() };
    let odd = FileAudit { remarks: vec![Remark::CodeCut], ..file(0, 50) };
    survey.add("/usr/lib/<b>\u{1b}[31m.so".to_owned(), Some("evil<script>".to_owned()), odd);
    survey.add("/usr/bin/framed".to_owned(), Some("framed".to_owned()), file(99, 100));
    survey.add("/usr/bin/mixed".to_owned(), None, file(15, 30));
    survey.finish();
    survey
}

fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Check that the text has the shares, names every file and package, and passes no control characters to the terminal.
#[test]
fn text_says_the_shares() {
    let listing = Listing { rows: 40, functions: false };
    let got = written(|out| text(&survey(), listing, &Style::default(), out));
    assert!(got.starts_with("audited   3 ELF files in 7 files · 210 functions · 3.00 kB of code\n"), "{got}");
    // 114 of 180 calling functions; 1,800 of 2,700 bytes covered by rows.
    assert!(got.contains("63.3 %  keep a frame pointer"), "{got}");
    let walks = "walks     a frame-pointer walk is known to find the caller in 60.0 % of all code: in 66.7 % of the 90.0 % with";
    assert!(got.contains(walks), "{got}");
    assert!(got.contains(r"/usr/lib/<b>\u{1b}[31m.so") && !got.contains('\u{1b}'), "{got}");
    assert!(got.contains("the file is truncated: leaf functions unknown"), "{got}");
    for line in ["none (below 5 %)", "framed (95 % or more)"] {
        let row = got.lines().find(|row| row.trim_start().starts_with(line)).expect(line);
        assert!(row.ends_with(" 1"), "{row}");
    }
}

/// Check that a long list says how much it leaves out, and names outliers instead of all files.
#[test]
fn long_lists_say_what_they_leave_out() {
    let got = written(|out| text(&survey(), Listing { rows: 1, functions: false }, &Style::default(), out));
    assert!(got.contains("and 1 more packages"), "{got}");
    assert!(got.contains("Mixed flags within one file: 1") && got.contains("Corrupt or unusual: 1"), "{got}");
}

/// Check that JSON can be read back, with shares as numbers and `null` where there is nothing to divide by.
#[test]
fn json_can_be_read_back() {
    let got: serde_json::Value = serde_json::from_str(&written(|out| json(&survey(), out))).unwrap();
    assert_eq!(got["total"]["functions"]["non_leaf"], 180);
    assert_eq!(got["files"][2]["path"], "/usr/lib/<b>\u{1b}[31m.so");
    assert_eq!(got["packages_by_habit"]["framed"], 1);
    assert_eq!(got["histogram_of_files"]["bins"][19], 1);
    let empty: serde_json::Value = serde_json::from_str(&written(|out| json(&Survey::default(), out))).unwrap();
    assert!(empty["metrics"]["nonleaf"].is_null());
}

/// Check that no name can add a tag, a script or an address to the page.
#[test]
fn page_has_no_tags_of_names() {
    let audited = Audited {
        what: "a<b>\u{202e}".to_owned(),
        date: "2026-03-01 12:00 UTC".to_owned(),
        distribution: "Debian <12>".to_owned(),
    };
    let got = written(|out| html(&survey(), &audited, out));
    assert!(!got.contains("<b>\u{1b}") && !got.contains("<script") && !got.contains("http:"), "{got}");
    assert!(got.contains("evil&lt;script&gt;") && got.contains(r"a&lt;b&gt;\u{202e}"), "{got}");
    assert!(got.contains("class=\"histogram\"") && got.contains("63.3 %"));
    let made = format!("2026-03-01 12:00 UTC · Debian &lt;12&gt; · fpprof {}", env!("CARGO_PKG_VERSION"));
    assert!(got.contains(&made), "{got}");
}

/// Check that no table makes the page wider than a phone's screen.
#[test]
fn page_fits_a_phone() {
    let audited = Audited { what: "/usr/lib".to_owned(), ..Audited::default() };
    let page = written(|out| html(&survey(), &audited, out));
    assert_eq!(crate::browser::overflow(&page, 390), 0);
}

/// Check that samples are shown by class and by file, with the reason for unaudited files, and that the rows add up.
#[test]
fn samples_are_shown_by_class() {
    let weights = Weights { samples: 10, ok: 6, drops_caller: 3, unaudited: 1, ..Weights::default() };
    let files = vec![
        FileWeight {
            path: "/usr/bin/x".to_owned(),
            weights: Weights { unaudited: 0, samples: 9, ..weights },
            reason: None,
        },
        FileWeight {
            path: "/gone\u{1b}".to_owned(),
            weights: Weights { samples: 1, unaudited: 1, ..Weights::default() },
            reason: Some("it was modified".to_owned()),
        },
    ];
    let survey = Survey { weighed: Some(Weighed { total: weights, files }), ..Survey::default() };
    let got = written(|out| text(&survey, Listing { rows: 40, functions: false }, &Style::default(), out));
    assert!(got.contains("60.0 %") && got.contains("30.0 %") && got.contains("not audited: it was modified"), "{got}");
    assert!(!got.contains('\u{1b}') && !got.starts_with("audited"), "{got}");
}

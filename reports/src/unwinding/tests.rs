use super::{row, stacks};
use crate::json;
use crate::terminal::Style;
use fpprof_analysis::cfi::{ExplainedRow, RegisterRow};
use fpprof_analysis::core_dump::{FrameOut, ThreadOut, UnwoundCore};

fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Check the text of a row with a hostile function name.
#[test]
fn row_as_text() {
    let explained = ExplainedRow {
        svma: 0x1139,
        place: Some("ma\x1bin+0x10".to_owned()),
        arch: "x86-64".to_owned(),
        section: ".eh_frame".to_owned(),
        entry_start: 0x1129,
        entry_end: 0x1150,
        row_start: 0x112d,
        row_end: 0x114f,
        is_signal_frame: false,
        cfa: "rbp+16".to_owned(),
        return_address: "saved at CFA-8".to_owned(),
        registers: vec![RegisterRow { name: "rbp".to_owned(), rule: "saved at CFA-16".to_owned() }],
        args_size: 16,
        readelf: "CFA=rbp+16, rbp=c-16, ra=c-8".to_owned(),
    };
    let expected = "\
address         0x1139 ma\\u{1b}in+0x10
entry           0x1129..0x1150 in .eh_frame x86-64
row             0x112d..0x114f
CFA             rbp+16
return address  saved at CFA-8
rbp             saved at CFA-16
arguments       16 bytes on the stack
as readelf      CFA=rbp+16, rbp=c-16, ra=c-8
";
    assert_eq!(text(|out| row(&explained, &Style::default(), out)), expected);
    let root = ExplainedRow { return_address: "undefined".to_owned(), is_signal_frame: true, ..explained };
    let output = text(|out| row(&root, &Style::default(), out));
    assert!(output.contains("undefined (no caller)") && output.contains("signal frame"), "{output}");
}

/// Check the text of threads, and that JSON parses back to the same model.
#[test]
fn threads_as_text_and_json() {
    let frame = |address, symbol: Option<&str>, found: &str| FrameOut {
        address,
        cfa: Some(0x7ffd_0000),
        symbol: symbol.map(str::to_owned),
        inlined: Vec::new(),
        module: symbol.map(|_| "/usr/bin/prog".to_owned()),
        svma: symbol.map(|_| address & 0xffff),
        found: found.to_owned(),
        is_instruction: found == "registers",
        no_call_before: found == "frame_pointer",
    };
    let leaf = FrameOut {
        inlined: vec!["outer".to_owned(), "inner".to_owned()],
        ..frame(0x55_1139, Some("leaf"), "registers")
    };
    let thread = ThreadOut {
        tid: 42,
        signal: 11,
        status: "truncated".to_owned(),
        reason: "no_cfi".to_owned(),
        frames: vec![leaf, frame(0x7f00_0000_1234, None, "frame_pointer")],
    };
    let unwound = UnwoundCore {
        arch: "x86-64".to_owned(),
        command: Some("prog -x".to_owned()),
        threads: vec![thread],
        warnings: vec!["/usr/bin/prog: gone".to_owned()],
    };
    let expected = "\
x86-64 prog -x

thread 42 · SIGSEGV · truncated no_cfi
                         inner (inlined)
                         outer (inlined)
  #0   0x0000000000551139 leaf prog+0x1139 · registers
  #1   0x00007f0000001234 ?? no module · frame pointer · no call before it

Warnings
  ! /usr/bin/prog: gone
";
    assert_eq!(text(|out| stacks(&unwound, &Style::default(), out)), expected);
    let json = text(|out| json::value(&unwound, out));
    assert_eq!(serde_json::from_str::<UnwoundCore>(&json).unwrap(), unwound);
}

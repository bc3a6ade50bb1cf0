use super::terminal;
use crate::json;
use crate::terminal::Style;
use fpprof_analysis::accuracy::{Agreement, Difference, DisputedFunction, Relation};
use fpprof_analysis::agreement::{Disagreement, Evidence, EvidenceVerdict, Example, Reason, ShownFrame, ShownStack};
use std::collections::BTreeMap;

fn stack(end: &str, frames: &[(u64, Option<u64>, &str)], n_more: usize) -> ShownStack {
    let frame = |&(address, cfa, name): &(u64, Option<u64>, &str)| ShownFrame { address, cfa, name: name.to_owned() };
    ShownStack { end: end.to_owned(), n_before: 0, frames: frames.iter().map(frame).collect(), n_more }
}

fn report() -> Disagreement {
    let verdicts = BTreeMap::from([(EvidenceVerdict::Reference, 2), (EvidenceVerdict::Open, 1)]);
    let example = Example {
        time_ns: 1_234_567,
        pid: 7,
        tid: 8,
        frame: 0,
        place: "leaf\x1b[31m prog+0x10".to_owned(),
        svma: 0x10,
        row: "CFA=rsp+8, ra=c-8".to_owned(),
        other_row: Some("CFA=rbp+16, rbp=c-16, ra=c-8".to_owned()),
        verdict: EvidenceVerdict::Reference,
        reference_evidence: Evidence::CallOfCallee,
        other_evidence: Evidence::NoCall,
        reference: stack("complete _start", &[(0x1010, Some(0x7008), "leaf prog+0x10"), (0x1055, None, "main")], 3),
        other: stack("broken ra_not_exec", &[(0x1010, Some(0x7018), "leaf prog+0x10"), (0x99, None, "0x99")], 0),
    };
    let reason = |relation, other_end: &str, samples, examples| Reason {
        relation,
        reference_end: "complete _start".to_owned(),
        other_end: other_end.to_owned(),
        samples,
        verdicts: if relation == Relation::Same { BTreeMap::new() } else { verdicts.clone() },
        examples,
    };
    let relations = BTreeMap::from([(Relation::WrongFrame, 3)]);
    let function = |name: &str| DisputedFunction {
        name: name.to_owned(),
        module: "prog".to_owned(),
        samples: 3,
        relations: relations.clone(),
    };
    let agreement = Agreement {
        reference: "dwarf".to_owned(),
        other: "fp".to_owned(),
        samples: 1000,
        same: 997,
        both_complete: 998,
        both_complete_same: 997,
        relations: BTreeMap::from([(Relation::WrongFrame, 3), (Relation::Same, 997)]),
        frames: Difference { n_same: 4000, n_missing: 6, n_wrong: 3, ..Difference::default() },
        functions: vec![function("leaf\u{202e}x")],
        modules: vec![function("")],
    };
    Disagreement {
        agreement,
        verdicts: verdicts.clone(),
        reasons: vec![
            reason(Relation::Same, "complete _start", 997, Vec::new()),
            reason(Relation::WrongFrame, "broken ra_not_exec", 3, vec![example]),
        ],
        warnings: vec!["/bin/prog: gone".to_owned()],
    }
}

const EXPECTED: &str = "\
compared  fp with dwarf · 1,000 samples with a user stack
same      99.7 % · 997 of 1,000 · where both are complete 99.9 % (997 of 998)
frames    4,000 same · 6 missing · 3 wrong
right     dwarf in 2, undecided in 1 (by the instructions before the return addresses)

By relation and by how the stacks end
               dwarf            fp                  samples   share  right
  same         complete _start  complete _start         997  99.7 %
  wrong frame  complete _start  broken ra_not_exec        3   0.3 %  dwarf in 2, undecided in 1

Functions whose caller they disagree on
  function       file  samples  share  wrong
  leaf\\u{202e}x  prog        3  0.3 %      3

wrong frame: thread 8 at 0.001234567 s
  at    leaf\\u{1b}[31m prog+0x10 frame 0
  row   CFA=rsp+8, ra=c-8
  rule  CFA=rbp+16, rbp=c-16, ra=c-8 (fp)
  right dwarf · dwarf: return address follows a call of the function · fp: return address does not follow a call
  dwarf complete _start
            0x1010  cfa         0x7008  leaf prog+0x10
            0x1055  cfa              –  main
    … 3 more
  fp broken ra_not_exec
            0x1010  cfa         0x7018  leaf prog+0x10
              0x99  cfa              –  0x99

Warnings
  ! /bin/prog: gone
";

/// Check the whole text, with hostile names escaped.
#[test]
fn text_says_what_differs() {
    let mut out = Vec::new();
    terminal(&report(), &Style::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text, EXPECTED);
}

/// Check that the JSON parses back to the same model, and holds no raw control characters.
#[test]
fn json_holds_everything() {
    let mut out = Vec::new();
    json::value(&report(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains('\x1b') && !text.contains('\u{202e}'));
    assert_eq!(serde_json::from_str::<Disagreement>(&text).unwrap(), report());
}

/// Check that shares are not computed if nothing was compared.
#[test]
fn a_missing_comparison_is_reported() {
    let mut out = Vec::new();
    terminal(&Disagreement::default(), &Style::default(), &mut out).unwrap();
    assert!(String::from_utf8(out).unwrap().contains("where both are complete – (0 of 0)"));
}

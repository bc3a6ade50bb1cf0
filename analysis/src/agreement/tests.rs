use super::{AgreementOptions, Disagreement, Evidence, EvidenceVerdict, disagreement};
use crate::Error;
use crate::accuracy::Relation;
use crate::filter::Filter;
use crate::modules::FileModules;
use crate::strategy::Strategy;
use crate::test_support::{THREE_FRAMES, TestDir, dwarf_sample, end, executable, identity, meta, symbols};
use fpprof_recording::model::{CaptureMode, CpuCounters, FpEnd, FpFrame, Sample, Sideband, StackEnd, StackEndSource};
use fpprof_recording::{Recording, RecordingWriter};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::num::NonZeroUsize;

const SP: u64 = 0x7ffd_0000_1000;
const PID: u32 = 7;

/// A recording of the program above: each sample is in `leaf`, called by `middle`, called by `_start`, with one of
/// these chains of (label, frame address above sp).
fn record(chains: &[&[(&str, u64)]]) -> (TestDir, Vec<u8>) {
    record_words(chains, 6)
}

/// The same, with this many words of the stack copied.
fn record_words(chains: &[&[(&str, u64)]], n_words: usize) -> (TestDir, Vec<u8>) {
    let dir = TestDir::new();
    let path = dir.compile("program", "a.s", THREE_FRAMES, &["-nostdlib", "-static", "-Wl,--build-id=sha1"]);
    let svma: BTreeMap<String, u64> = symbols(&path).into_iter().map(|(name, (svma, _))| (name, svma)).collect();
    let page = svma["_start"] & !0xfff;
    let elf = crate::modules::ElfFile::new(crate::modules::Resolver::open(&FileModules::new(), &path).unwrap());
    let offset = elf.unwrap().image().file_offset(svma["_start"]).unwrap() & !0xfff;
    let mapping = executable(PID, page, 0x1000, offset, &path, identity(&path, true));
    let mode = CaptureMode::Both { stack_bytes: 64, every: 1 };
    let mut writer = RecordingWriter::new(Vec::new(), &meta(mode)).unwrap();
    writer.sideband(&Sideband::Mmap(mapping)).unwrap();
    for (n, chain) in (0..).zip(chains) {
        let words = [svma["after_leaf"], 1, 2, 3, svma["after_middle"], 0];
        let frame = |&(label, above): &(&str, u64)| FpFrame {
            address: svma[label],
            frame_address: if above == 0 { 0 } else { SP + above },
        };
        let sample = Sample {
            stack_end: Some(StackEnd { address: SP + 48, source: StackEndSource::Mapping }),
            user_fp: chain.iter().map(frame).collect(),
            fp_end: FpEnd::Zero,
            ..dwarf_sample(PID, n, svma["leaf"], SP, &words[..n_words])
        };
        writer.sample(&sample, None).unwrap();
        if n % 3 == 0 {
            writer.flush().unwrap();
        }
    }
    let n = chains.len() as u64;
    writer.finish(&end(vec![CpuCounters { cpu: 0, fired: n, recorded: n, ..CpuCounters::default() }])).unwrap();
    (dir, writer.into_inner())
}

fn compare_on(file: &[u8], n_threads: usize, max_examples: usize) -> Disagreement {
    let mut recording = Recording::open(Cursor::new(file.to_vec())).unwrap();
    let files = FileModules::new();
    let n_threads = NonZeroUsize::new(n_threads).unwrap();
    let options = AgreementOptions {
        reference: Strategy::Dwarf,
        other: Strategy::Fp,
        max_examples,
        event: None,
        filter: Filter::default(),
        resolver: &files,
        unwinding: fpprof_unwind::Options::default(),
        n_threads,
    };
    disagreement(&mut recording, &options).unwrap()
}

/// The frame-pointer chain in a leaf without a frame.
const WITHOUT_MIDDLE: &[(&str, u64)] = &[("leaf", 0), ("after_middle", 24)];
const WRONG: &[(&str, u64)] = &[("leaf", 0), ("after_nops", 8), ("after_middle", 24)];

/// Check that samples are counted by their difference, attributed to the right function, with our row, the other's
/// rule, and the verdict of the code.
#[test]
fn disagreements_are_counted_and_explained() {
    let (_dir, file) = record(&[WITHOUT_MIDDLE, WRONG, WITHOUT_MIDDLE, WITHOUT_MIDDLE, WRONG]);
    let report = compare_on(&file, 2, 3);
    let agreement = &report.agreement;
    assert_eq!((agreement.reference.as_str(), agreement.other.as_str()), ("dwarf", "fp"));
    assert_eq!((agreement.samples, agreement.same), (5, 0));
    assert_eq!((agreement.both_complete, agreement.both_complete_same), (5, 0));
    let relations = BTreeMap::from([(Relation::LeafCallerMissing, 3), (Relation::WrongFrame, 2)]);
    assert_eq!(report.agreement.relations, relations);
    assert_eq!(
        (report.agreement.frames.n_same, report.agreement.frames.n_missing, report.agreement.frames.n_wrong),
        (5, 5, 2)
    );
    // `leaf` is called by `middle`, as the reference says, not by `_start` and not from the nops.
    assert_eq!(report.verdicts, BTreeMap::from([(EvidenceVerdict::Reference, 5)]));
    let function = &report.agreement.functions[0];
    assert_eq!((function.name.as_str(), function.module.as_str(), function.samples), ("leaf", "program", 5));
    assert_eq!(function.relations, relations);
    assert_eq!(
        (report.agreement.functions.len(), report.agreement.modules.len(), report.agreement.modules[0].samples),
        (1, 1, 5)
    );

    let [missing, wrong] = &report.reasons[..] else { panic!("{:?}", report.reasons) };
    assert_eq!((missing.relation, missing.samples), (Relation::LeafCallerMissing, 3));
    assert_eq!((missing.reference_end.as_str(), missing.other_end.as_str()), ("complete _start", "complete _start"));
    assert_eq!((wrong.relation, wrong.samples), (Relation::WrongFrame, 2));
    let [example] = &wrong.examples[..] else { panic!("{:?}", wrong.examples) };
    assert_eq!((example.time_ns, example.pid, example.frame), (2_001, PID, 0));
    assert!(example.place.starts_with("leaf program+0x"), "{}", example.place);
    assert_eq!(example.row, "CFA=rsp+8, ra=c-8");
    assert_eq!(example.other_row.as_deref(), Some("CFA=rbp+16, rbp=c-16, ra=c-8"));
    assert_eq!((example.reference_evidence, example.other_evidence), (Evidence::CallOfCallee, Evidence::NoCall));
    let names = |stack: &super::ShownStack| -> Vec<String> {
        stack.frames.iter().map(|frame| frame.name.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&example.reference), ["leaf", "middle", "_start"]);
    assert_eq!(names(&example.other), ["leaf", "data", "_start"]);
    assert_eq!(example.reference.frames[0].cfa, Some(SP + 8));
    assert_eq!(report.warnings, Vec::<String>::new());
}

/// Check that no function is blamed if frame pointers continue where the copied stack ended.
#[test]
fn going_on_is_no_break() {
    const ON: &[(&str, u64)] = &[("leaf", 0), ("after_leaf", 0), ("after_middle", 24)];
    let (_dir, file) = record_words(&[ON, ON, WITHOUT_MIDDLE], 3);
    let agreement = compare_on(&file, 1, 3).agreement;
    assert_eq!(agreement.relations, BTreeMap::from([(Relation::Longer, 2), (Relation::WrongFrame, 1)]));
    let behind = |of: &[crate::accuracy::DisputedFunction]| of.iter().map(|function| function.samples).sum::<u64>();
    assert_eq!((behind(&agreement.functions), behind(&agreement.modules)), (1, 1));
}

/// Check that the report does not depend on the number of threads, and that the number of examples is limited as asked.
#[test]
fn order_does_not_matter() {
    let chains: Vec<&[(&str, u64)]> = (0..40).map(|n| [WITHOUT_MIDDLE, WRONG, &WRONG[..2]][n % 3]).collect();
    let (_dir, file) = record(&chains);
    let one = compare_on(&file, 1, 2);
    assert_eq!(one, compare_on(&file, 4, 2));
    assert_eq!(one.agreement.samples, 40);
    let counted: u64 = one.reasons.iter().map(|reason| reason.samples).sum();
    assert_eq!(counted, 40);
    assert!(one.reasons.iter().all(|reason| reason.examples.len() == 1), "one place each");
    assert!(compare_on(&file, 1, 0).reasons.iter().all(|reason| reason.examples.is_empty()));
}

/// Check that strategies that differ only in name agree on every sample.
#[test]
fn equal_strategies_agree() {
    let (_dir, file) = record(&[WRONG, WITHOUT_MIDDLE]);
    let mut recording = Recording::open(Cursor::new(file)).unwrap();
    let files = FileModules::new();
    let options = AgreementOptions {
        reference: Strategy::Dwarf,
        other: Strategy::DwarfAt(64),
        max_examples: 3,
        event: None,
        filter: Filter::default(),
        resolver: &files,
        unwinding: fpprof_unwind::Options::default(),
        n_threads: NonZeroUsize::MIN,
    };
    let report = disagreement(&mut recording, &options).unwrap();
    assert_eq!((report.agreement.samples, report.agreement.same, report.agreement.both_complete_same), (2, 2, 2));
    assert_eq!((report.agreement.functions, report.verdicts), (Vec::new(), BTreeMap::new()));
    assert!(report.reasons.iter().all(|reason| reason.examples.is_empty()));
    let twice = disagreement(&mut recording, &AgreementOptions { other: Strategy::Dwarf, ..options });
    assert!(matches!(twice, Err(Error::StrategyTwice(_))));
}

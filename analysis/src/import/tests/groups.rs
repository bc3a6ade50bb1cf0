//! Samples with counter values and with branch stacks.

use super::{ImportError, contents, data, import, new_record, record, recorded, records, set_word, with_records, word};
use crate::test_support::TestDir;
use std::process::Command;

const SAMPLE: u32 = 9;

/// Number of samples of the named event, and of their frames, according to `perf script`.
fn by_perf_script(file: &[u8], event: &str) -> (usize, usize) {
    let dir = TestDir::new();
    let path = dir.path("perf.data");
    std::fs::write(&path, file).unwrap();
    let output = Command::new("perf").args(["script", "--no-inline", "-F", "event,ip", "-i"]).arg(&path).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let of_event = |sample: &&str| sample.trim_start().starts_with(event);
    let samples: Vec<&str> = text.split("\n\n").filter(of_event).collect();
    (samples.len(), samples.iter().map(|sample| sample.lines().count() - 1).sum())
}

/// Check that the samples of a group with counter values are those that `perf script` shows for its leader, with all
/// their frames, and that the other members' values are counted, with frame pointers and with copied stacks.
#[test]
fn groups_are_taken_with_their_stacks() {
    for stacks in ["fp", "dwarf,8192"] {
        let file = record(&["-e", "{cpu-clock,task-clock}:S", "--call-graph", stacks]);
        let (imported, written) = import(&file).unwrap();
        let (samples, _) = contents(&written);
        let others = imported.left_out.get("values of other events of a group");
        assert_eq!(others, Some(&imported.samples), "{stacks}: {imported:?}");
        assert!(!imported.left_out.contains_key("corrupt SAMPLE"), "{stacks}: {imported:?}");
        let (n_samples, n_frames) = by_perf_script(&file, "cpu-clock");
        assert!(n_samples > 20 && samples.len() == n_samples, "{stacks}: {} of {n_samples}", samples.len());
        if stacks == "fp" {
            let frames = samples.iter().map(|sample| sample.kernel.len() + sample.user_fp.len()).sum::<usize>();
            assert_eq!(frames, n_frames);
        } else {
            assert!(samples.iter().filter(|sample| sample.stack.len() > 256).count() * 2 > n_samples);
        }
    }
}

/// Check that samples whose counter values exceed the sample are counted as damaged, and that a file of only such
/// samples reports their number.
#[test]
fn damaged_groups_are_counted() {
    let mut file = record(&["-e", "{cpu-clock,task-clock}:S", "--call-graph", "fp"]);
    let (whole, _) = import(&file).unwrap();
    let attr_at = usize::try_from(word(&file, 24)).unwrap();
    // IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD and IDENTIFIER precede the values.
    let fixed = (word(&file, attr_at + 24) & 0x1_03cf).count_ones() as usize * 8;
    let samples: Vec<usize> =
        records(&file).into_iter().filter(|(kind, _)| *kind == SAMPLE).map(|(_, place)| place.start).collect();
    set_word(&mut file, samples[0] + 8 + fixed, 1 << 60);
    let (imported, _) = import(&file).unwrap();
    assert_eq!(imported.samples + 1, whole.samples);
    assert_eq!(imported.left_out.get("corrupt SAMPLE"), Some(&1), "{imported:?}");
    samples.iter().for_each(|at| set_word(&mut file, at + 8 + fixed, 1 << 60));
    let error = import(&file).unwrap_err();
    assert!(matches!(error, ImportError::NoGoodSamples(n) if n == samples.len() as u64), "{error:?}");
}

/// Check that samples with branch stacks keep their callchains, and that the omission is reported.
#[test]
fn branch_stacks_are_left_out_and_reported() {
    const BRANCH_STACK: u64 = 1 << 11;
    let file = &recorded().fp;
    let mut with_branches = Vec::new();
    for (kind, place) in records(file) {
        if kind == SAMPLE {
            // The callchain is last in these samples. Branches follow it: add one, of three words.
            let branches: Vec<u8> = [1, 2, 3, 4].into_iter().flat_map(u64::to_le_bytes).collect();
            let mut sample = new_record(kind, &[&file[place.start + 8..place.end], &branches].concat());
            sample[4..6].copy_from_slice(&file[place.start + 4..place.start + 6]);
            with_branches.extend(sample);
        } else {
            with_branches.extend_from_slice(&file[place]);
        }
    }
    let mut changed = with_records(file, &with_branches);
    let attr_at = usize::try_from(word(file, 24)).unwrap();
    set_word(&mut changed, attr_at + 24, word(file, attr_at + 24) | BRANCH_STACK);
    assert!(data(&changed).len() > data(file).len());
    let (imported, written) = import(&changed).unwrap();
    let (plain, expected) = import(file).unwrap();
    assert_eq!(contents(&written).0, contents(&expected).0);
    assert_eq!(plain.warnings, [""; 0]);
    assert!(imported.warnings.len() == 1 && imported.warnings[0].contains("LBR"), "{imported:?}");
}

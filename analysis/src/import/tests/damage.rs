//! Truncated or changed files give an error or are counted, and do no other harm.

use super::{Random, data, import, new_record, recorded, records, with_records, word};
use crate::import::records::user;
use crate::import::{ImportError, perf_data};
use crate::test_support::TestDir;
use std::io::Cursor;
use std::time::{Duration, Instant};

/// Upper limit for an import of less than a MiB on a busy machine.
const LONGEST: Duration = Duration::from_secs(20);

fn try_import(bytes: &[u8], what: &str) -> Option<u64> {
    let start = Instant::now();
    let result = import(bytes);
    assert!(start.elapsed() < LONGEST, "{what}: {:?}", start.elapsed());
    match result {
        Ok((imported, written)) => {
            let mut recording = fpprof_recording::Recording::open(Cursor::new(written)).unwrap();
            recording.samples(|_| {}).unwrap();
            assert_eq!(recording.n_samples(), imported.samples, "{what}");
            assert!(imported.samples > 0, "{what}");
            Some(imported.samples)
        }
        Err(error) => {
            let words = error.to_string();
            assert!(!words.is_empty() && !words.contains('\n'), "{what}: {words:?}");
            None
        }
    }
}

/// Check that a truncated file gives an error, or what precedes the cut and a warning.
#[test]
fn cut_off_files() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let all = recorded();
    for (kind, file) in [("fp", &all.fp), ("dwarf", &all.dwarf), ("-z", &all.compressed), ("pipe", &all.pipe)] {
        let (whole, _) = import(file).unwrap();
        let mut most = 0;
        let cuts = (0..60).map(|_| random.below(file.len())).chain([0, 1, 15, 16, 103, 104, file.len() - 1]);
        for cut in cuts {
            let Some(samples) = try_import(&file[..cut], &format!("{kind} cut at {cut}")) else { continue };
            assert!(samples <= whole.samples, "{kind} cut at {cut}");
            most = most.max(samples);
            let (imported, _) = import(&file[..cut]).unwrap();
            // After the records, much of the file is not read.
            let may_be_whole = kind == "pipe" || cut >= data(file).end && samples == whole.samples;
            assert!(may_be_whole || !imported.damage.is_empty(), "{kind} cut at {cut} says nothing");
        }
        assert!(most * 2 > whole.samples, "{kind}: {most} of {} samples at best", whole.samples);
    }
}

/// Check that the file of a killed perf gives its samples.
#[test]
fn killed_perfs_leave_their_samples() {
    let dir = TestDir::new();
    let endless = super::BURN.replace("while (clock() < end)", "for (;;)");
    let program = dir.compile("burn", "burn.c", &endless, &["-O2"]);
    let file = dir.path("perf.data");
    let mut perf = std::process::Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", "997", "--call-graph", "dwarf,16384", "-o"]).arg(&file);
    let mut perf = perf.arg("--").arg(&program).spawn().unwrap();
    let start = Instant::now();
    while std::fs::metadata(&file).map_or(0, |file| file.len()) < 1 << 20 {
        assert!(start.elapsed() < LONGEST * 3, "perf writes nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = perf.id().to_string();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    perf.kill().unwrap();
    perf.wait().unwrap();
    for child in children.split_whitespace() {
        dir.run("kill", &["-9", child]);
    }
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(word(&bytes, 48), 0, "a perf that was killed has not written the size of its data");
    let (imported, _) = import(&bytes).unwrap();
    assert!(imported.samples * 16384 > bytes.len() as u64 / 2, "{imported:?} of {} bytes", bytes.len());
    assert!(imported.damage[0].contains("incomplete"), "{imported:?}");
}

/// Check that changed bytes anywhere, in the header, or in the headers of records give an error, or samples and counts,
/// but neither a panic nor an unreadable recording.
#[test]
fn changed_bytes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let all = recorded();
    let (mut n_taken, mut n_refused) = (0, 0);
    for (kind, file) in [("fp", &all.fp), ("dwarf", &all.dwarf), ("-z", &all.compressed), ("pipe", &all.pipe)] {
        let heads: Vec<usize> =
            if kind == "pipe" { vec![16] } else { records(file).iter().map(|(_, place)| place.start).collect() };
        for round in 0..150 {
            let mut changed = file.clone();
            for _ in 0..=random.below(6) {
                let at = match round % 4 {
                    0 => random.below(file.len()),
                    1 => random.below(300.min(file.len())),
                    2 => heads[random.below(heads.len())] + random.below(32),
                    // Features, or the last records of a pipe.
                    _ => file.len() - 1 - random.below(4096.min(file.len())),
                };
                let byte = &mut changed[at];
                *byte = match random.below(4) {
                    0 => 0xff,
                    1 => 0,
                    2 => *byte ^ 1 << random.below(8),
                    _ => u8::try_from(random.below(256)).unwrap(),
                };
            }
            match try_import(&changed, &format!("{kind} round {round}")) {
                Some(_) => n_taken += 1,
                None => n_refused += 1,
            }
        }
    }
    assert!(n_taken > 100 && n_refused > 20, "{n_taken} taken, {n_refused} refused: the changes change nothing");
}

/// Check that a damaged record is counted and left out, and the others are imported.
#[test]
fn damaged_records_are_counted() {
    let file = &recorded().fp;
    let (whole, _) = import(file).unwrap();
    let mut records_with_damage = file[data(file)].to_vec();
    records_with_damage.extend(new_record(9, &[1, 2, 3, 4]));
    records_with_damage.extend(new_record(10, &[0; 8]));
    records_with_damage.extend(new_record(user::FIRST + 60, &[0; 8]));
    let (imported, _) = import(&with_records(file, &records_with_damage)).unwrap();
    assert_eq!(imported.samples, whole.samples);
    assert_eq!(imported.left_out.get("corrupt SAMPLE"), Some(&1), "{imported:?}");
    assert_eq!(imported.left_out.get("corrupt MMAP2"), Some(&1), "{imported:?}");
    assert_eq!(imported.left_out.get("type 124"), Some(&1), "{imported:?}");
}

/// Check that files other than perf.data of a little-endian x86-64 machine are refused with the right reason.
#[test]
fn foreign_files_are_refused() {
    let words = |bytes: &[u8]| import(bytes).unwrap_err().to_string();
    assert!(words(b"").contains("not a perf.data"));
    assert!(words(&[0x7f; 200]).contains("not a perf.data"));
    let mut swapped = recorded().fp.clone();
    swapped[..8].copy_from_slice(b"2ELIFREP");
    assert!(words(&swapped).contains("big-endian"));
    let mut arm = recorded().fp.clone();
    let at = arm.windows(7).rposition(|bytes| bytes == b"x86_64\0").expect("perf notes the architecture");
    arm[at..at + 7].copy_from_slice(b"arm64_\0");
    assert!(words(&arm).contains("arm64"), "{}", words(&arm));
    let empty = with_records(&recorded().fp, &[]);
    assert!(matches!(import(&empty), Err(ImportError::NoSamples | ImportError::Damaged(_))));
    let no_samples: Vec<u8> = records(&recorded().fp)
        .into_iter()
        .filter(|(kind, _)| *kind != 9)
        .flat_map(|(_, place)| recorded().fp[place].to_vec())
        .collect();
    assert!(matches!(import(&with_records(&recorded().fp, &no_samples)), Err(ImportError::NoSamples)));
}

/// A reader that fails.
struct Failing;

impl std::io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("no such luck"))
    }
}

impl std::io::Seek for Failing {
    fn seek(&mut self, _: std::io::SeekFrom) -> std::io::Result<u64> {
        Ok(1 << 20)
    }
}

/// Check that an I/O error is reported as one.
#[test]
fn read_errors_are_reported() {
    assert!(matches!(perf_data(Failing, Vec::new()), Err(ImportError::Read(_))));
}

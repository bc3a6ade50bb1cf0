//! Files written by perf are imported completely.

use super::{ImportError, contents, data, import, new_record, record, recorded, records, set_word, with_records, word};
use crate::address_space::{Builder, Timeline};
use crate::import::records::user;
use crate::import::{PerfSamples, perf_events};
use crate::modules::FileModules;
use crate::replay::Block as _;
use crate::symbols::{KernelMissing, kernel_symbols};
use fpprof_recording::Recording;
use fpprof_recording::model::{CaptureMode, LossCause, Meta, NO_PROCESS, Sideband, Target};
use std::io::Cursor;

/// Check that a file of frame-pointer chains, one with stacks, a compressed one and a pipe's stream each give their
/// samples with what was recorded, that only perf's bookkeeping is left out, and that kernel symbols are those of the
/// running kernel, unless it was at another address.
#[test]
fn every_kind_of_file_is_taken() {
    let all = recorded();
    let kinds =
        [("fp", &all.fp, false), ("dwarf", &all.dwarf, true), ("-z", &all.compressed, true), ("pipe", &all.pipe, true)];
    for (kind, bytes, has_stacks) in kinds {
        let (imported, written) = import(bytes).unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert_eq!(imported.damage, [""; 0], "{kind}");
        for name in imported.left_out.keys() {
            let known = ["ID_INDEX", "THREAD_MAP", "CPU_MAP", "EVENT_UPDATE", "TIME_CONV", "HEADER_BUILD_ID"];
            // The mapping of the kernel itself has no process.
            let of_kernel = ["MMAP", "KSYMBOL", "BPF_EVENT", "CGROUP", "NAMESPACES", "TEXT_POKE"];
            assert!(known.contains(&&**name) || of_kernel.contains(&&**name), "{kind} leaves out {name}");
        }
        let mut recording = Recording::open(Cursor::new(written.clone())).unwrap();
        let mut meta = recording.meta().clone();
        assert!(imported.samples > 20 && recording.n_samples() == imported.samples, "{kind}: {imported:?}");
        assert_eq!(meta.mode, if has_stacks { CaptureMode::Dwarf { stack_bytes: 8192 } } else { CaptureMode::Fp });
        assert_eq!(meta.events.len(), 1, "{kind}");
        recording.samples(|_| {}).unwrap();
        let timeline = Builder::default().finish();
        let table = kernel_symbols(&timeline, &meta, &FileModules::new(), true, &[]);
        assert!(table.is_ok(), "{kind}: {:?} {:?}", table.err(), meta.host);
        if kind != "pipe" {
            assert_eq!((&*meta.host.arch, &*meta.events[0].name), ("x86_64", "cpu-clock"), "{kind}");
            let Target::Command { argv, .. } = &meta.target else { panic!("{kind}: {meta:?}") };
            assert!(argv.iter().any(|arg| arg.ends_with("/burn")), "{kind}: {argv:?}");
            meta.host.kernel_symbol.as_mut().unwrap().address += 1;
            assert_eq!(
                kernel_symbols(&timeline, &meta, &FileModules::new(), true, &[]).err(),
                Some(KernelMissing::OtherBoot),
                "{kind}"
            );
        }
        let (samples, events) = contents(&written);
        let burn = events.iter().find_map(|event| match event {
            Sideband::Mmap(mmap) if mmap.path.ends_with(b"/burn") && mmap.prot & 4 != 0 => Some(mmap.clone()),
            _ => None,
        });
        let burn = burn.unwrap_or_else(|| panic!("{kind}: the program's code is not mapped"));
        let in_burn = |ip: u64| (burn.start..burn.start + burn.len).contains(&ip);
        let hits = match has_stacks {
            true => {
                samples.iter().filter_map(|sample| sample.user_regs.as_ref()).filter(|r| in_burn(r.values[16])).count()
            }
            false => samples.iter().filter(|sample| sample.user_fp.iter().any(|frame| in_burn(frame.address))).count(),
        };
        assert!(hits * 10 > samples.len() * 8, "{kind}: {hits} of {} in the program", samples.len());
        let with_stack = samples.iter().filter(|sample| sample.stack.len() > 256).count();
        assert_eq!(has_stacks, with_stack * 2 > samples.len(), "{kind}: {with_stack} with a stack");
    }
}

/// Check that samples of threads that no longer had a number are imported, and that a file without any stacks is
/// refused with advice.
#[test]
fn exiting_threads_are_taken_and_files_without_stacks_refused() {
    const SAMPLE: u32 = 9;
    let mut file = recorded().fp.clone();
    // Header, instruction, process and thread.
    let samples: Vec<_> = records(&file).into_iter().filter(|(kind, _)| *kind == SAMPLE).collect();
    samples.iter().for_each(|(_, place)| set_word(&mut file, place.start + 16, u64::MAX));
    let (imported, written) = import(&file).unwrap();
    assert_eq!(imported.left_out.get("corrupt SAMPLE"), None);
    let (taken, _) = contents(&written);
    assert_eq!(taken.len(), samples.len());
    assert!(taken.iter().all(|sample| (sample.pid, sample.tid) == (NO_PROCESS, NO_PROCESS)));
    let refused = import(&record(&[])).unwrap_err().to_string();
    assert!(refused.contains("without stacks") && refused.contains("perf record -g"), "{refused}");
}

/// The records of a file with COMPRESSED ones turned into COMPRESSED2: with a length in front and padded to eight
/// bytes.
fn as_compressed2(file: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, place) in records(file) {
        if kind != user::COMPRESSED {
            out.extend_from_slice(&file[place]);
            continue;
        }
        let packed = &file[place.start + 8..place.end];
        // A record may become too long with its new header; two of half its length are the same stream.
        for part in packed.chunks(packed.len().div_ceil(2)) {
            let mut body = (part.len() as u64).to_le_bytes().to_vec();
            body.extend_from_slice(part);
            body.resize(body.len().next_multiple_of(8), 0);
            out.extend(new_record(user::COMPRESSED2, &body));
        }
    }
    out
}

/// Check that COMPRESSED2 records, which newer perfs write, give the same as COMPRESSED ones.
#[test]
fn both_kinds_of_compressed_records_are_the_same() {
    let file = &recorded().compressed;
    assert!(records(file).iter().any(|(kind, _)| *kind == user::COMPRESSED), "-z compresses nothing");
    let newer = with_records(file, &as_compressed2(file));
    assert!(records(&newer).iter().any(|(kind, _)| *kind == user::COMPRESSED2));
    assert_eq!(import(&newer).unwrap(), import(file).unwrap());
}

/// Check that the order of samples within a round does not matter.
#[test]
fn order_within_a_round_does_not_matter() {
    const SAMPLE: u32 = 9;
    let file = &recorded().fp;
    let all = records(file);
    let mut shuffled = Vec::new();
    let mut n_moved = 0;
    for round in all.split_inclusive(|(kind, _)| *kind == user::FINISHED_ROUND) {
        let samples: Vec<_> = round.iter().filter(|(kind, _)| *kind == SAMPLE).collect();
        n_moved += samples.len() / 2 * 2;
        let mut backwards = samples.iter().rev();
        for record in round {
            let place = if record.0 == SAMPLE { &backwards.next().unwrap().1 } else { &record.1 };
            shuffled.extend_from_slice(&file[place.clone()]);
        }
    }
    assert!(n_moved > 20, "only {n_moved} samples are not in a round of their own");
    let shuffled = with_records(file, &shuffled);
    assert_ne!(shuffled[data(&shuffled)], file[data(file)]);
    assert_eq!(import(&shuffled).unwrap(), import(file).unwrap());
}

/// Check that samples lost for lack of space are in the balance: perf counts them by the kernel's counters.
#[test]
fn lost_samples_are_counted() {
    // Two samples of 8 KiB fit the smallest buffer, and a thousand arrive in a second.
    let file = record(&["--call-graph", "dwarf,8192", "-m", "4", "-F", "20000"]);
    let (imported, written) = import(&file).unwrap();
    assert!(imported.lost_samples > 0, "{imported:?}");
    let mut recording = Recording::open(Cursor::new(written)).unwrap();
    recording.samples(|_| {}).unwrap();
    let end = recording.end().unwrap();
    let lost: u64 = end.cpus.iter().map(|cpu| cpu.lost.get(&LossCause::RingFull).copied().unwrap_or(0)).sum();
    let fired: u64 = end.cpus.iter().map(|cpu| cpu.fired).sum();
    let recorded: u64 = end.cpus.iter().map(|cpu| cpu.recorded).sum();
    assert_eq!((lost, fired), (imported.lost_samples, recorded + lost));
    assert_eq!(recorded, imported.samples);
}

/// Check that the counters of `PERF_FORMAT_LOST`, which count samples, take precedence over LOST records, which count
/// records of any kind, and that either suffices.
#[test]
fn either_way_of_counting_losses_is_taken() {
    const LOST: u32 = 2;
    const LOST_SAMPLES: u32 = 13;
    let file = &recorded().fp;
    let (_, first) = records(file).into_iter().find(|(kind, _)| *kind == 3).expect("a COMM record");
    // Every kernel record ends with the same sample ID fields.
    let attr_at = usize::try_from(word(file, 24)).unwrap();
    let sample_format = word(file, attr_at + 24);
    let n_words = (sample_format & 0x1_02c6).count_ones() as usize;
    let trailer = &file[first.end - 8 * n_words..first.end];
    let lost = new_record(LOST, &[&[0; 8][..], &7_u64.to_le_bytes(), trailer].concat());
    let lost_samples = new_record(LOST_SAMPLES, &[&5_u64.to_le_bytes()[..], trailer].concat());
    let whole = &file[data(file)];
    for (extra, expected) in
        [(lost.clone(), (1, 7)), (lost_samples.clone(), (0, 5)), ([lost, lost_samples].concat(), (1, 5))]
    {
        let (imported, _) = import(&with_records(file, &[whole, &extra].concat())).unwrap();
        assert_eq!((imported.lost_records, imported.lost_samples), expected, "{imported:?}");
    }
}

/// Check that samples read in place are those of the recording that an import makes, in order, in blocks of bounded
/// size; that all events are read without them; and that a pipe's stream, which cannot be read twice, is refused.
#[test]
fn samples_in_place_are_those_of_the_recording() {
    let all = recorded();
    for (kind, bytes) in [("fp", &all.fp), ("dwarf", &all.dwarf), ("-z", &all.compressed)] {
        let (imported, written) = import(bytes).unwrap();
        let (samples, events) = contents(&written);
        let mut in_place = PerfSamples::new(Cursor::new(bytes)).unwrap();
        let (mut found, left_over) = (Vec::new(), samples.last().unwrap().clone());
        for some in &mut in_place {
            let some = some.unwrap();
            assert!((1..=64).contains(&some.samples().len()), "{kind}");
            // As a worker does: the contents left in a block are those of other samples.
            some.decode(|sample| found.push(std::mem::replace(sample, left_over.clone()))).unwrap();
        }
        assert!(found == samples, "{kind}");
        assert_eq!(in_place.finish().unwrap(), imported, "{kind}");
        let (meta, timeline) = perf_events(&mut Cursor::new(bytes)).unwrap();
        let mut builder = Builder::default();
        events.iter().for_each(|event| builder.add(event));
        assert_eq!(timeline.files(), builder.finish().files(), "{kind}");
        assert_eq!(meta.events.len(), 1, "{kind}");
    }
    assert!(PerfSamples::new(Cursor::new(&all.pipe)).is_err());
}

/// Check that samples without a weight have that of their event: its fixed period.
#[test]
fn samples_of_a_fixed_period_weigh_as_much() {
    let (_, written) = import(&record(&["-g", "-c", "2000000"])).unwrap();
    let (samples, _) = contents(&written);
    assert!(samples.len() > 20 && samples.iter().all(|sample| sample.weight == 2_000_000), "{samples:?}");
    let (_, written) = import(&recorded().fp).unwrap();
    assert!(contents(&written).0.iter().all(|sample| sample.weight != 1));
}

/// Check that samples of idle CPUs, of which perf writes no event, are of a kernel thread with perf's name.
#[test]
fn idle_cpus_are_kernel_threads() {
    for file in [&recorded().fp, &recorded().pipe] {
        let (_, written) = import(file).unwrap();
        let (samples, events) = contents(&written);
        let timeline = Timeline::new(events);
        let place = timeline.place(0, 0, samples[0].time_ns);
        assert!(place.may_be_of_kernel, "{place:?}");
        assert_eq!(place.comm.map(|comm| timeline.comm(comm)), Some(&b"swapper"[..]));
    }
}

/// Check that the kernel's address is found where perf writes it: before the samples or, with `--tail-synthesize`, after
/// them.
#[test]
fn address_of_the_kernel_is_found_anywhere() {
    let symbol = |file: &[u8]| {
        let (_, written) = import(file).unwrap();
        let symbol = Recording::open(Cursor::new(written)).unwrap().meta().host.kernel_symbol.clone();
        // perf has the build ID only if a sample is in the kernel.
        symbol.map(|symbol| (symbol.name, symbol.address))
    };
    let usual = symbol(&recorded().fp);
    assert!(usual.is_some());
    assert_eq!(symbol(&record(&["-g", "--tail-synthesize"])), usual);
}

/// Check that a truncated file gives the samples before the cut and reports it, and that one without samples is
/// refused.
#[test]
fn samples_of_a_torn_file_are_those_before_the_tear() {
    let file = &recorded().dwarf;
    let cut = &file[..data(file).start + data(file).len() / 2];
    let (imported, written) = import(cut).unwrap();
    let mut in_place = PerfSamples::new(Cursor::new(cut)).unwrap();
    let found: Vec<_> = (&mut in_place).flat_map(|some| some.unwrap().samples().to_vec()).collect();
    assert!(found == contents(&written).0 && !found.is_empty());
    assert_eq!(in_place.finish().unwrap(), imported);
    assert!(!imported.damage.is_empty());
    let mut none = PerfSamples::new(Cursor::new(with_records(file, &new_record(user::FINISHED_ROUND, &[])))).unwrap();
    assert!(none.next().is_none());
    assert!(matches!(none.finish(), Err(ImportError::NoSamples)));
    // If the file is cut before the first sample, that is reported instead of missing samples.
    let early = &file[..data(file).start + 16];
    assert!(matches!(import(early), Err(ImportError::Damaged(_))), "{:?}", import(early));
    assert!(matches!(PerfSamples::new(Cursor::new(early)).unwrap().finish(), Err(ImportError::Damaged(_))));
}

/// Check that a file written by simpleperf, without perf's tables and with records of its own, gives all its samples
/// and the usual name of its event.
#[test]
fn files_without_perfs_tables_are_taken() {
    /// `SIMPLE_PERF_RECORD_TYPE_START` and the types after it, in `record.h` of simpleperf.
    const OF_SIMPLEPERF: u32 = 32_768;
    let file = &recorded().fp;
    let own = [0, 3].map(|n| new_record(OF_SIMPLEPERF + n, &[0; 16])).concat();
    let mut other = with_records(file, &[&own, &file[data(file)]].concat());
    other[72..104].fill(0);
    let ((expected, _), (imported, written)) = (import(file).unwrap(), import(&other).unwrap());
    assert!(imported.samples > 0 && imported.samples == expected.samples, "{imported:?}");
    assert_eq!(imported.left_out.get("types from 256 on"), Some(&2), "{imported:?}");
    let recording = Recording::open(Cursor::new(written)).unwrap();
    let Meta { events, host, .. } = recording.meta();
    assert_eq!((events[0].name.as_str(), host.cpus_online), ("cpu-clock", 0));
}

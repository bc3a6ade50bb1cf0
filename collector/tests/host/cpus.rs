//! CPUs that go offline and come online again during a recording.

use crate::changed::Changed;
use fpprof_collector::{CollectorKind, Error, Note, Outcome, Request, StopFlag, Target, Update, record};
use fpprof_recording::Recording;
use fpprof_recording::model::{CaptureMode, Gap, LossCause, Sampling};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::thread::sleep;
use std::time::Duration;

/// A CPU to switch off and on; it is switched on when this is dropped.
struct Switch {
    file: String,
    _switched_on: Changed,
}

impl Switch {
    fn of(cpu: u32) -> Self {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        let _switched_on = Changed::undone_by("echo 1 > \"$1\"", &[&file]);
        Self { file, _switched_on }
    }

    fn set(&self, is_on: bool) {
        let written = std::fs::write(&self.file, if is_on { "1" } else { "0" });
        written.expect("this CPU must be one that can be switched off: run the tests as root, on two CPUs or more");
    }
}

fn file() -> File {
    tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file for the recording")
}

fn n_cpus() -> usize {
    std::thread::available_parallelism().expect("CPUs").get()
}

/// Samples two endless loops for each CPU.
fn request(frequency_hz: u64) -> Request {
    let script = format!("for i in $(seq {}); do (while :; do :; done) & done; wait", 2 * n_cpus());
    let argv = ["timeout", "120", "sh", "-c", &script].map(Into::into).to_vec();
    Request { sampling: Sampling::FrequencyHz(frequency_hz), ..Request::new(Target::Command { argv }) }
}

fn assert_balanced(outcome: &Outcome) {
    for cpu in &outcome.end.cpus {
        let lost: u64 = cpu.lost.values().sum();
        assert_eq!(cpu.fired, cpu.recorded + lost + cpu.skipped + cpu.dropped, "{cpu:?}");
    }
}

/// Check that samples of a CPU come until it goes offline, and again once it is online; that none is unaccounted for;
/// and that the recording reports the change.
#[test]
fn cpu_goes_and_comes() {
    goes_and_comes(&request(999));
    // Events of CPUs, not of threads: the kernel removes only those.
    let Target::Command { argv } = request(999).target else { panic!("a command") };
    goes_and_comes(&Request {
        collector: CollectorKind::PerfEvent,
        mode: CaptureMode::Fp,
        target: Target::SystemWhile { argv },
        ..request(999)
    });
}

fn goes_and_comes(request: &Request) {
    let cpu_switch = Switch::of(1);
    let (stop, file) = (StopFlag::new().expect("a flag"), file());
    let (mut went, mut came) = (None, None);
    // From each CPU, however busy the machine is.
    let enough = 200 * n_cpus() as u64;
    let outcome = record(request, &file, &stop, &mut |update| {
        let Update::Progress(progress) = update else { return };
        let now = progress.elapsed;
        if went.is_none() && progress.samples > enough {
            cpu_switch.set(false);
            went = Some(now);
        } else if came.is_none() && went.is_some_and(|went| now > went + Duration::from_millis(400)) {
            cpu_switch.set(true);
            came = Some(progress.samples);
        } else if came.is_some_and(|came| progress.samples > came + enough) {
            stop.stop(libc::SIGINT);
        }
    });
    let outcome = outcome.expect("recording works here");
    assert_balanced(&outcome);
    assert!(outcome.notes.contains(&Note::CpusJoined(1)), "{:?}", outcome.notes);
    let mut recording = Recording::open(&file).expect("the recording can be read");
    let mut times = Vec::new();
    recording.samples(|sample| times.extend((sample.cpu == 1).then_some(sample.time_ns))).expect("samples");
    let pairs = times.iter().zip(times.iter().skip(1));
    let (last, next) = pairs.max_by_key(|(last, next)| *next - *last).expect("samples of the CPU");
    assert!(next - last > 300_000_000, "there are none while it is offline");
    let before = times.iter().filter(|&time| time <= last).count();
    assert!(before >= 20 && times.len() - before >= 20, "{before} before of {}", times.len());
}

/// Check that a CPU with a higher number than all at the start has its ticks counted as lost, and uses no other CPU's
/// ring.
#[test]
fn a_later_cpu_is_counted() {
    let last = u32::try_from(n_cpus() - 1).expect("a CPU");
    let cpu_switch = Switch::of(last);
    let request = request(999);
    cpu_switch.set(false);
    let (stop, file) = (StopFlag::new().expect("a flag"), file());
    let mut is_on = false;
    let outcome = record(&request, &file, &stop, &mut |update| {
        let Update::Progress(progress) = update else { return };
        if !is_on && progress.samples > 100 {
            cpu_switch.set(true);
            is_on = true;
        } else if progress.lost > 100 {
            stop.stop(libc::SIGINT);
        }
    });
    let outcome = outcome.expect("recording works here");
    assert_balanced(&outcome);
    assert_read_as_counted(&outcome, &file);
    assert!(outcome.notes.contains(&Note::CpusWithoutRing(1)), "{:?}", outcome.notes);
    let later = outcome.end.cpus.iter().find(|cpu| cpu.cpu == last).expect("the later CPU is in the balance");
    let no_ring = later.lost.get(&LossCause::NoRing).copied().unwrap_or(0);
    assert!(later.recorded == 0 && no_ring > 100, "{later:?}");
}

/// How often the balance is checked; `just balance` sets 100.
fn rounds() -> u32 {
    std::env::var("FPPROF_BALANCE_ROUNDS").map_or(2, |rounds| rounds.parse().expect("a number of rounds"))
}

/// Check that the balance of each CPU is exact when one goes offline and comes online again, twice and at any moment,
/// while the reader is stopped and the rings are the smallest possible: samples read match those recorded, losses have
/// their times, and the counters in the samples agree.
#[test]
fn every_tick_is_accounted_for() {
    let cpu_switch = Switch::of(1);
    let mut total = BTreeMap::<&str, u64>::new();
    for round in 0..rounds() {
        let mode = CaptureMode::Both { stack_bytes: 4096 << (round % 5), every: 1 };
        let too_small = Request { mode, ring_bytes: Some(4096), ..request(4999) };
        let (stop, file) = (StopFlag::new().expect("a flag"), file());
        let refused = record(&too_small, &file, &stop, &mut |_| {}).expect_err("a ring of one page is too small");
        let Error::RingTooSmall { needed, .. } = refused else { panic!("{refused}") };
        let request = Request { ring_bytes: Some(usize::try_from(needed).expect("a size")), ..too_small };
        let mut turn = 0;
        let outcome = record(&request, &file, &stop, &mut |_| {
            turn += 1;
            match turn {
                2 | 4 => cpu_switch.set(false),
                3 | 5 => cpu_switch.set(true),
                6.. => stop.stop(libc::SIGINT),
                _ => {}
            }
            // The reader is stopped meanwhile.
            sleep(Duration::from_millis(u64::from(20 + (round * 7 + turn * 11) % 60)));
        });
        let outcome = outcome.expect("recording works here");
        assert_balanced(&outcome);
        assert!(outcome.notes.contains(&Note::CpusJoined(1)), "round {round}: {:?}", outcome.notes);
        assert_read_as_counted(&outcome, &file);
        for cpu in &outcome.end.cpus {
            let lost = cpu.lost.values().sum();
            for (key, n) in [("fired", cpu.fired), ("recorded", cpu.recorded), ("skipped", cpu.skipped), ("lost", lost)]
            {
                *total.entry(key).or_default() += n;
            }
        }
        // Shown with --nocapture.
        writeln!(std::io::stderr(), "{} of {} recordings balance: {total:?}", round + 1, rounds()).expect("a line");
    }
    assert!(total.get("lost").is_some_and(|&lost| lost > 0), "{total:?}");
}

fn assert_read_as_counted(outcome: &Outcome, file: &File) {
    let mut recording = Recording::open(file).expect("the recording can be read");
    let mut gaps: Vec<Gap> = Vec::new();
    recording.gaps(|gap| gaps.push(*gap)).expect("gaps");
    let mut samples = Vec::new();
    recording.samples(|sample| samples.push((sample.cpu, sample.cpu_fired, sample.cpu_lost))).expect("samples");
    for cpu in &outcome.end.cpus {
        let of_cpu: Vec<_> = samples.iter().filter(|sample| sample.0 == cpu.cpu).collect();
        assert_eq!((of_cpu.len() as u64, cpu.dropped), (cpu.recorded, 0));
        assert!(of_cpu.is_sorted_by(|a, b| a.1 < b.1 && a.2 <= b.2), "counters of a CPU only grow, off or on");
        let lost: u64 = cpu.lost.values().sum();
        assert!(of_cpu.iter().all(|&&(_, fired, lost_before)| fired <= cpu.fired && lost_before <= lost), "{cpu:?}");
        for (&cause, &lost) in &cpu.lost {
            let told = gaps.iter().filter(|gap| (gap.cpu, gap.cause) == (cpu.cpu, cause));
            assert_eq!(told.map(|gap| gap.lost).sum::<u64>(), lost, "{cause:?} of CPU {}", cpu.cpu);
        }
    }
}

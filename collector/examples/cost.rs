//! What a sample costs by the sizes of its chunk and of the ring, beside a plain copy of the same bytes.
//!
//! ```sh
//! cargo run --release -p fpprof-collector --example cost -- [ROUNDS]
//! ```
//!
//! Rounds are interleaved; the smallest and the median of each size are printed. The time is what the kernel's BPF
//! statistics say, less what skipped ticks cost (the least so far, of a target that sleeps), for each recorded sample. The
//! copy goes from a hot stack to a buffer as large as the ring, each time behind the last, as samples do.
//!
//! Found on two virtual CPUs of a server that others used too (Linux 6.18): a chunk of 64 KiB takes 3.5 µs into a ring of
//! 512 KiB, 5 µs into one of 4 MiB and 7.7 µs into one of 16 MiB, where a plain copy takes 1.1, 2.1 and 2.2 µs. Most of it
//! is memory that no cache holds when the ring comes round, so a smaller ring (`-m`) is the cheaper one where it suffices.

#![expect(clippy::print_stdout, reason = "its output")]

use fpprof_collector::{Request, StopFlag, Target, record};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::ffi::OsString;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// KiB of chunk and of ring.
const CASES: [(u32, usize); 7] =
    [(4, 8 << 10), (16, 8 << 10), (64, 512), (64, 1 << 10), (64, 4 << 10), (64, 16 << 10), (256, 64 << 10)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, bytes] = arguments.as_slice() {
        assert_eq!(what, "burn", "cost [ROUNDS]");
        let bytes: usize = bytes.parse().expect("a number of bytes");
        return burn_above(bytes / 4096 + 1);
    }
    let rounds = arguments.first().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let own = OsString::from(std::env::current_exe().expect("its own path"));
    let mut found = vec![(Vec::new(), Vec::new()); CASES.len()];
    let mut skips = Vec::new();
    for _ in 0..rounds {
        let sleeping = measure(vec!["sleep".into(), "0.5".into()], (4, 8 << 10));
        skips.push(sleeping.run_ns / sleeping.runs);
        let (skip_ns, _) = of_rounds(&mut skips);
        for (&case, (samples, copies)) in CASES.iter().zip(&mut found) {
            let cost = measure(vec![own.clone(), "burn".into(), (u64::from(case.0) << 10).to_string().into()], case);
            samples.push((cost.run_ns - (cost.runs - cost.recorded) * skip_ns) / cost.recorded);
            copies.push(copy_ns(case));
        }
    }
    println!("| chunk KiB | ring KiB | ns a sample: min | median | ns a copy: min | median |");
    println!("|---|---|---|---|---|---|");
    for ((chunk, ring), (samples, copies)) in CASES.iter().zip(&mut found) {
        let ((least, median), (copy, median_copy)) = (of_rounds(samples), of_rounds(copies));
        println!("| {chunk} | {ring} | {least:.0} | {median:.0} | {copy:.0} | {median_copy:.0} |");
    }
}

struct Cost {
    run_ns: f64,
    runs: f64,
    recorded: f64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn measure(argv: Vec<OsString>, (chunk, ring): (u32, usize)) -> Cost {
    let request = Request {
        sampling: Sampling::FrequencyHz(2999),
        mode: CaptureMode::Dwarf { stack_bytes: chunk << 10 },
        kernel_stacks: false,
        ring_bytes: Some(ring << 10),
        ..Request::new(Target::Command { argv })
    };
    let stop = StopFlag::new().expect("a flag");
    let outcome = record(&request, std::io::sink(), &stop, &mut |_| {}).expect("recording works here");
    let own = outcome.end.own_cost;
    let (run_ns, runs) = own.bpf_run_ns.zip(own.bpf_runs).expect("statistics need CAP_SYS_ADMIN");
    Cost { run_ns: run_ns as f64, runs: runs as f64, recorded: outcome.samples.max(1) as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn copy_ns((chunk, ring): (u32, usize)) -> f64 {
    const TURNS: usize = 2000;
    let source = vec![1u8; (chunk as usize) << 10];
    // Not zeros, which would be pages that are not there yet.
    let mut target = vec![2u8; ring << 10];
    let mut at = 0;
    let mut turns = Vec::with_capacity(TURNS);
    for _ in 0..TURNS {
        if at + source.len() > target.len() {
            at = 0;
        }
        let began = Instant::now();
        if let Some(part) = target.get_mut(at..at + source.len()) {
            part.copy_from_slice(black_box(&source));
        }
        turns.push(began.elapsed().as_nanos() as f64);
        at += source.len();
    }
    black_box(&target);
    // The machine does other things too: what most copies take is what one takes.
    of_rounds(&mut turns).1
}

fn of_rounds(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values.first().copied().unwrap_or(0.0), values.get(values.len() / 2).copied().unwrap_or(0.0))
}

/// Runs for a while below so many pages of stack.
#[inline(never)]
fn burn_above(n_pages: usize) {
    let page = black_box([1u8; 4096]);
    if n_pages > 0 {
        burn_above(n_pages - 1);
    } else {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(800) {
            black_box((0..100_000u64).fold(0, |sum, i| black_box(sum ^ i)));
        }
    }
    black_box(&page);
}

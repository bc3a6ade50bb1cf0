//! Measures the cost of sampling waits per context switch, by threshold.
//!
//! ```sh
//! cargo run --release -p fpprof-collector --example off_cpu_cost -- [ROUNDS]
//! ```
//!
//! Two threads hand a byte back and forth through pipes, each with 8 KiB of stack in use, so that they do nothing but
//! wait. The time is that of the kernel's BPF statistics for the programs at both ends of waits, per context switch
//! they saw. Rounds are interleaved; the smallest and the median are printed.
//!
//! Measured on two virtual CPUs with seven programs running besides (Linux 6.18): 136 ns at best and 162 ns in the
//! median if no wait is long enough, 151 and 252 ns with 50 µs, and 467 and 993 ns if each wait is a sample with both
//! kinds of stack. Hence the default of 50 µs: shorter waits are the rhythm of working threads, and copying all their
//! stacks is what costs.
#![expect(clippy::print_stdout, reason = "its output")]

use fpprof_collector::{Request, StopFlag, Target, record};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::ffi::OsString;
use std::hint::black_box;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::time::{Duration, Instant};

/// Thresholds: shorter waits are not sampled.
const THRESHOLDS: [Duration; 3] = [Duration::ZERO, Duration::from_micros(50), Duration::from_secs(1)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|what| what == "play") {
        return play();
    }
    let rounds = arguments.first().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let mut found: Vec<(Duration, Vec<f64>, u64, u64)> =
        THRESHOLDS.iter().map(|&threshold| (threshold, Vec::new(), 0, 0)).collect();
    for _ in 0..rounds {
        for (threshold, ns, samples, switches) in &mut found {
            let (one_ns, n_samples, n_switches) = measure(*threshold);
            ns.push(one_ns);
            (*samples, *switches) = (*samples + n_samples, *switches + n_switches);
        }
    }
    println!("| waits from | ns a switch: min | median | switches | waits sampled |\n|---|---|---|---|---|");
    for (threshold, ns, samples, switches) in &mut found {
        ns.sort_by(f64::total_cmp);
        let (least, median) = (ns.first().copied().unwrap_or(0.0), ns.get(ns.len() / 2).copied().unwrap_or(0.0));
        println!("| {threshold:?} | {least:.0} | {median:.0} | {switches} | {samples} |");
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn measure(threshold: Duration) -> (f64, u64, u64) {
    let own = OsString::from(std::env::current_exe().expect("its own path"));
    let request = Request {
        sampling: Sampling::FrequencyHz(9),
        off_cpu: Some(threshold),
        mode: CaptureMode::Both { stack_bytes: 65_536, every: 1 },
        statistics: true,
        ..Request::new(Target::Command { argv: vec![own, "play".into()] })
    };
    let stop = StopFlag::new().expect("a flag");
    let outcome = record(&request, std::io::sink(), &stop, &mut |_| {}).expect("recording works here");
    let own = outcome.end.own_cost;
    let (run_ns, switches) = own.wait_run_ns.zip(own.switches).expect("statistics need CAP_SYS_ADMIN");
    (run_ns as f64 / switches.max(1) as f64, outcome.samples, switches)
}

/// Hands a byte back and forth for a while.
fn play() {
    let (mut near, far_end) = std::io::pipe().expect("a pipe");
    let (far, mut near_end) = std::io::pipe().expect("a pipe");
    let other = std::thread::spawn(move || below_some_stack(&mut || answer(&far, &far_end)));
    below_some_stack(&mut || {
        let began = Instant::now();
        let mut byte = [1];
        while began.elapsed() < Duration::from_millis(500) {
            near_end.write_all(&byte).expect("a byte goes");
            near.read_exact(&mut byte).expect("a byte comes");
        }
        near_end.write_all(&[0]).expect("the last goes");
    });
    other.join().expect("the other ends");
}

fn answer(mut from: &PipeReader, mut to: &PipeWriter) {
    let mut byte = [1];
    while from.read_exact(&mut byte).is_ok() && byte != [0] {
        to.write_all(&byte).expect("a byte goes");
    }
}

#[inline(never)]
fn below_some_stack(work: &mut dyn FnMut()) {
    let room = black_box([1u8; 8192]);
    work();
    black_box(&room);
}

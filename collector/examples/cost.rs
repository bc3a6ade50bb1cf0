//! Measures the cost of a sample by the sizes of its chunk and of the ring buffer, compared with a plain copy.
//!
//! ```sh
//! cargo run --release -p fpprof-collector --example cost -- [ROUNDS [COMMAND…]]
//! ```
//!
//! COMMAND runs the sampled program, such as `taskset -c 0 chrt -f 10`. With `taskset -c 0` or `1` and `chrt -f 20`
//! before the whole command line, it is known whether the reader is on the CPU of the sampled program or on another
//! one, and a busy machine disturbs little.
//!
//! Rounds are interleaved. The smallest and the median of each size are printed, and how many stacks were shortened
//! because the ring was filling up. The time is that of the kernel's BPF statistics per recorded sample, less the cost
//! of skipped ticks (the least so far, with a sleeping target). The copy goes from a hot stack to a buffer of 1 MiB and
//! to one of 64 MiB, each copy after the previous one, as samples do.
//!
//! Measured on two virtual CPUs with seven programs running besides (Linux 6.18): a chunk of 64 KiB takes 2.2 µs at
//! best and 3.2 µs in the median, a plain copy 1.2 µs within 1 MiB and 5.8 µs within 64 MiB. When records cycled
//! through the whole ring of 16 MiB, the chunk took 5 to 8 µs, mostly for memory that was in no cache.
//!
//! With such commands, on two virtual CPUs of a Zen 5 at a load of 2 (4 rounds): with the reader on the sampled
//! program's CPU a chunk of 64 KiB takes 1.6 µs at best and 1.7 µs in the median, on the other one 2.1 and 2.5 µs; a
//! plain copy 0.6 to 0.9 µs within 1 MiB and 2.1 to 2.4 µs within 64 MiB.

#![expect(clippy::print_stdout, reason = "its output")]

use fpprof_collector::{Note, Request, StopFlag, Target, record};
use fpprof_recording::model::{CaptureMode, Sampling};
use std::ffi::OsString;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// KiB of the chunk and of the ring buffer; 0 for the default.
const CASES: [(u32, usize); 7] = [(4, 0), (16, 0), (32, 0), (64, 4 << 10), (64, 0), (64, 64 << 10), (256, 0)];
/// Sizes of the buffers for plain copies: one fits in the caches, the other does not.
const COPY_ROOMS: [usize; 2] = [1 << 20, 64 << 20];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [what, bytes] = arguments.as_slice()
        && what == "burn"
    {
        let bytes: usize = bytes.parse().expect("a number of bytes");
        return burn_above(bytes / 4096 + 1);
    }
    let rounds = arguments.first().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let own = OsString::from(std::env::current_exe().expect("its own path"));
    let mut sampled: Vec<OsString> = arguments.iter().skip(1).map(OsString::from).collect();
    sampled.extend([own, "burn".into()]);
    let mut found = vec![Found::default(); CASES.len()];
    let mut skips = Vec::new();
    for _ in 0..rounds {
        let sleeping = measure(vec!["sleep".into(), "0.5".into()], (4, 0));
        skips.push(sleeping.run_ns / sleeping.runs);
        let (skip_ns, _) = of_rounds(&mut skips);
        for (&case, found) in CASES.iter().zip(&mut found) {
            let bytes = OsString::from((u64::from(case.0) << 10).to_string());
            let cost = measure(sampled.iter().cloned().chain([bytes]).collect(), case);
            found.samples.push((cost.run_ns - (cost.runs - cost.recorded) * skip_ns) / cost.recorded);
            found.shed += cost.shed;
            for (copies, room) in found.copies.iter_mut().zip(COPY_ROOMS) {
                copies.push(copy_ns(case.0, room));
            }
        }
    }
    println!(
        "| chunk KiB | ring KiB | ns a sample: min | median | cut | ns a copy within 1 MiB: median | within 64 MiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    for ((chunk, ring), found) in CASES.iter().zip(&mut found) {
        let ring = if *ring == 0 { "default".to_owned() } else { ring.to_string() };
        let (least, median) = of_rounds(&mut found.samples);
        let [near, far] = found.copies.each_mut().map(|copies| of_rounds(copies).1);
        println!("| {chunk} | {ring} | {least:.0} | {median:.0} | {} | {near:.0} | {far:.0} |", found.shed);
    }
}

/// Results of one case, one entry per round.
#[derive(Clone, Default)]
struct Found {
    samples: Vec<f64>,
    shed: u64,
    copies: [Vec<f64>; 2],
}

struct Cost {
    run_ns: f64,
    runs: f64,
    recorded: f64,
    shed: u64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn measure(argv: Vec<OsString>, (chunk, ring): (u32, usize)) -> Cost {
    let request = Request {
        sampling: Sampling::FrequencyHz(2999),
        mode: CaptureMode::Dwarf { stack_bytes: chunk << 10 },
        kernel_stacks: false,
        statistics: true,
        ring_bytes: (ring > 0).then_some(ring << 10),
        ..Request::new(Target::Command { argv })
    };
    let stop = StopFlag::new().expect("a flag");
    let outcome = record(&request, std::io::sink(), &stop, &mut |_| {}).expect("recording works here");
    let own = outcome.end.own_cost;
    let (run_ns, runs) = own.bpf_run_ns.zip(own.bpf_runs).expect("statistics need CAP_SYS_ADMIN");
    let shed = outcome.notes.iter().find_map(|note| if let Note::StacksShed(n) = note { Some(*n) } else { None });
    let recorded = outcome.samples.max(1) as f64;
    Cost { run_ns: run_ns as f64, runs: runs as f64, recorded, shed: shed.unwrap_or(0) }
}

#[expect(clippy::cast_precision_loss, reason = "figures for the eye")]
fn copy_ns(chunk: u32, room: usize) -> f64 {
    const TURNS: usize = 2000;
    let source = vec![1u8; (chunk as usize) << 10];
    // Not zeros, whose pages would not be allocated yet.
    let mut target = vec![2u8; room];
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
    // The machine does other things too, so take the median.
    of_rounds(&mut turns).1
}

fn of_rounds(values: &mut [f64]) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values.first().copied().unwrap_or(0.0), values.get(values.len() / 2).copied().unwrap_or(0.0))
}

/// Runs for a while with this many pages of stack above it.
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

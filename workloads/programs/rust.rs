//! main < outer < CASE < burn, where CASE is the second argument:
//!
//! deep      64 times recurse
//! closure   a closure behind a `dyn Fn`
//! generic   two instances of a generic function, with a helper that is inlined
//! panic     eight times recurse, then a panic that is caught in `outer`
//! threads   in threads of about a millisecond: (thread start) < on_thread < burn
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Burns CPU for about `rounds` times 4 microseconds, or until the time is over.
#[inline(never)]
fn burn(rounds: u64, end: Instant) {
    let mut x = black_box(1_u64);
    for round in 0..rounds {
        for _ in 0..4096 {
            x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        }
        if round % 256 == 255 && Instant::now() >= end {
            break;
        }
    }
}

#[inline(never)]
fn recurse(depth: u32, end: Instant) -> u32 {
    if depth <= 1 {
        burn(u64::MAX, end);
        return black_box(1);
    }
    black_box(recurse(black_box(depth - 1), end)) + 1
}

#[inline(never)]
fn call(function: &dyn Fn(u64)) {
    function(black_box(u64::MAX));
    black_box(());
}

trait Shape {
    const ROUNDS: u64;
}
struct Small([u64; 4]);
struct Large([u64; 64]);
impl Shape for Small {
    const ROUNDS: u64 = 200;
}
impl Shape for Large {
    const ROUNDS: u64 = 300;
}

#[inline(always)]
fn helper<T: Shape>(value: &mut T, end: Instant) {
    burn(T::ROUNDS, end);
    black_box(value);
}

#[inline(never)]
fn generic<T: Shape>(mut value: T, end: Instant) -> T {
    helper(&mut value, end);
    value
}

#[inline(never)]
fn raise(depth: u32) -> u32 {
    if depth <= 1 {
        std::panic::resume_unwind(Box::new(depth));
    }
    black_box(raise(black_box(depth - 1))) + 1
}

#[inline(never)]
fn on_thread(end: Instant) {
    burn(250, end);
    black_box(());
}

#[inline(never)]
fn outer(case: &str, end: Instant) {
    match case {
        "deep" => {
            black_box(recurse(black_box(64), end));
        }
        "closure" => {
            let captured = black_box(7_u64);
            let function: &dyn Fn(u64) = &|rounds| {
                burn(rounds - captured, end);
                black_box(captured);
            };
            call(black_box(function));
        }
        "generic" => {
            while Instant::now() < end {
                black_box(generic(Small([1; 4]), end).0);
                black_box(generic(Large([1; 64]), end).0);
            }
        }
        "panic" => {
            while Instant::now() < end {
                black_box(std::panic::catch_unwind(|| raise(black_box(8))).is_err());
            }
        }
        "threads" => {
            while Instant::now() < end {
                let threads = [0; 4].map(|_| std::thread::spawn(move || on_thread(end)));
                threads.into_iter().for_each(|thread| thread.join().expect("the thread does not panic"));
            }
        }
        _ => std::process::exit(2),
    }
    black_box(());
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seconds = arguments.get(1).and_then(|text| text.parse().ok()).filter(|&s| s > 0.0 && s < 86400.0);
    let (Some(seconds), Some(case)) = (seconds, arguments.get(2)) else { std::process::exit(2) };
    outer(case, Instant::now() + Duration::from_secs_f64(seconds));
}

//! The load of the storm: processes, threads and mappings, each in a thread of its own and at its own rate.

use anyhow::Context as _;
use std::ffi::OsString;
use std::hint::black_box;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Programs started and threads ended per second, if the machine can.
const PROGRAMS: u64 = 2_000;
const THREADS: u64 = 1_000;
/// Number of threads that start programs.
const STARTERS: u64 = 2;
/// Larger than what the allocator caches, so that each is a mapping of its own.
const MAPPING: usize = 64 << 20;

/// The first argument of a part: its duration in seconds.
pub(crate) fn seconds(words: &[OsString]) -> anyhow::Result<Duration> {
    let seconds = words.first().and_then(|word| word.to_str()).context("how many seconds?")?;
    Ok(Duration::from_secs(seconds.parse()?))
}

/// Calls `work` at a rate per second until `end`; missed calls are not made up for. Returns the number of calls.
pub(crate) fn at_rate(rate: u64, end: Instant, mut work: impl FnMut() -> std::io::Result<()>) -> std::io::Result<u64> {
    let (step, mut next, mut n) = (Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX), Instant::now(), 0);
    while Instant::now() < end {
        work()?;
        n += 1;
        next = (next + step).max(Instant::now().checked_sub(step * 20).unwrap_or(next));
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(n)
}

/// Runs the storm for the given number of seconds.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<()> {
    let (begun, lasts) = (Instant::now(), seconds(words)?);
    let end = begun + lasts;
    let start = || Command::new("/bin/true").stdin(Stdio::null()).status().map(drop);
    let one_thread = || thread::Builder::new().spawn(|| {})?.join().map_err(|_| std::io::ErrorKind::Other.into());
    let map = || {
        black_box(Vec::<u8>::with_capacity(MAPPING));
        Ok(())
    };
    let (programs, threads, maps) = thread::scope(|scope| {
        let starters: Vec<_> =
            (0..STARTERS).map(|_| scope.spawn(move || at_rate(PROGRAMS / STARTERS, end, start))).collect();
        let threads = scope.spawn(move || at_rate(THREADS, end, one_thread));
        let mut maps = 0_u64;
        while Instant::now() < end {
            maps += u64::from(std::io::Result::is_ok(&map()));
        }
        (starters.into_iter().map(|starter| starter.join()).collect::<Vec<_>>(), threads.join(), maps)
    });
    let mut started = 0;
    for n in programs {
        started += n.ok().context("a thread failed")??;
    }
    let threads = threads.ok().context("a thread failed")??;
    let took = lasts.as_secs().max(1);
    writeln!(std::io::stderr(), "figures programs={} threads={} maps={}", started / took, threads / took, maps / took)?;
    Ok(())
}

/// Works a little every second.
pub(crate) fn spin(words: &[OsString]) -> anyhow::Result<()> {
    let end = Instant::now() + seconds(words)?;
    while Instant::now() < end {
        let rest = Instant::now() + Duration::from_millis(1);
        while Instant::now() < rest {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_millis(600));
    }
    Ok(())
}

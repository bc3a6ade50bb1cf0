//! Recorders that are stopped at any time.

use crate::found::Found;
use crate::object;
use crate::place::Place;
use crate::process::{send_signal, spawn};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

const TIMES: u32 = 100;
/// The longest time between start and stop signal.
const LONGEST: Duration = Duration::from_secs(2);
const MOST: Duration = Duration::from_secs(2);
/// A recorder that takes longer to end is killed.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let file = dir.path().join("recording");
    let before = object::numbers()?;
    let mut random = fastrand::Rng::with_seed(13);
    let (mut longest, mut ends) = (Duration::ZERO, BTreeMap::<String, u32>::new());
    for _ in 0..TIMES {
        let mut recorder = place.fpprof();
        recorder.args(["record", "-q", "-a", "--duration", "120", "-o"]).arg(&file).stderr(Stdio::null());
        let mut recorder = spawn(&mut recorder)?;
        sleep(LONGEST.mul_f64(random.f64()));
        send_signal(&recorder, Signal::SIGTERM)?;
        let stopped = Instant::now();
        let status = crate::process::end_of(&mut recorder, LIMIT)?;
        longest = longest.max(stopped.elapsed());
        let end = match (status.code(), status.signal()) {
            (Some(code), _) => format!("status {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        *ends.entry(end).or_default() += 1;
    }
    let mut left = object::numbers()?;
    left.retain(|object| !before.contains(object));
    // The kernel frees objects asynchronously, and objects of other programs remain until those end.
    let stopped = Instant::now();
    while !left.is_empty() && stopped.elapsed() < Duration::from_secs(60) {
        sleep(Duration::from_secs(1));
        let now = object::numbers()?;
        left.retain(|object| now.contains(object));
    }
    // 0 and 1: with and without samples; the signal itself: before the recorder installed its handler.
    let is_expected = |end: &str| ["status 0", "status 1", "signal 15"].contains(&end);
    let ended: Vec<String> = ends.iter().map(|(end, n)| format!("{n} with {end}")).collect();
    let figure = format!(
        "{:.2} s at most; {}; {} BPF objects left, {} before",
        longest.as_secs_f64(),
        ended.join(", "),
        left.len(),
        before.len()
    );
    let is_met = longest <= MOST && left.is_empty() && ends.keys().all(|end| is_expected(end));
    Ok(Found::new(is_met, figure))
}

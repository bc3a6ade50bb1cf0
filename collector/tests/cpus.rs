//! CPUs that go offline and come online again while a recording goes on. Alone in its process, since it takes a CPU away
//! from everything else.

use fpprof_collector::{Note, Request, StopFlag, Target, record};
use fpprof_recording::Recording;
use fpprof_recording::model::Sampling;
use std::time::Duration;

const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

fn switch(is_on: bool) {
    let written = std::fs::write(SWITCH, if is_on { "1" } else { "0" });
    written.expect("CPU 1 must be one that can be switched off: run the tests as root, on two CPUs or more");
}

/// Switches the CPU on again, however the test ends.
struct SwitchedOn;

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        switch(true);
    }
}

/// Check that samples of a CPU come until it goes offline, and again once it is online; that none is unaccounted for; and
/// that the recording says so.
#[test]
fn cpu_goes_and_comes() {
    let _switched_on = SwitchedOn;
    let script = "for i in 1 2 3 4; do (while :; do :; done) & done; wait";
    let argv = ["timeout", "30", "sh", "-c", script].map(Into::into).to_vec();
    let request = Request { sampling: Sampling::FrequencyHz(999), ..Request::new(Target::Command { argv }) };
    let stop = StopFlag::new().expect("a flag");
    let file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).expect("a file for the recording");
    let (mut went, mut came) = (None, None);
    let outcome = record(&request, &file, &stop, &mut |progress| {
        let now = progress.elapsed;
        if went.is_none() && now > Duration::from_millis(400) {
            switch(false);
            went = Some(now);
        } else if came.is_none() && went.is_some_and(|went| now > went + Duration::from_millis(400)) {
            switch(true);
            came = Some(now);
        } else if came.is_some_and(|came| now > came + Duration::from_millis(600)) {
            stop.stop(libc::SIGINT);
        }
    });
    let outcome = outcome.expect("recording works here");
    for cpu in &outcome.end.cpus {
        let lost: u64 = cpu.lost.values().sum();
        assert_eq!(cpu.fired, cpu.recorded + lost + cpu.skipped + cpu.dropped, "{cpu:?}");
    }
    assert!(outcome.notes.contains(&Note::CpusJoined(1)), "{:?}", outcome.notes);
    let mut recording = Recording::open(&file).expect("the recording can be read");
    let mut times = Vec::new();
    recording.samples(|sample| times.extend((sample.cpu == 1).then_some(sample.time_ns))).expect("samples");
    let pause = times.windows(2).max_by_key(|pair| pair[1] - pair[0]).expect("samples of the CPU");
    assert!(pause[1] - pause[0] > 300_000_000, "there are none while it is offline");
    let before = times.iter().filter(|&&time| time <= pause[0]).count();
    assert!(before >= 20 && times.len() - before >= 20, "{before} before of {}", times.len());
}

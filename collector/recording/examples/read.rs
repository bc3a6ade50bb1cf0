//! Prints samples and bytes of stack by thread: `cargo run --example read -- run.fpprof`.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use fpprof_recording::Recording;
use std::collections::BTreeMap;
use std::fs::File;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: read RECORDING")?;
    let mut recording = Recording::open(File::open(path)?)?;
    println!("{:?} on Linux {}", recording.meta().mode, recording.meta().host.kernel);
    let mut threads: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
    recording.samples(|sample| {
        let (samples, bytes) = threads.entry((sample.pid, sample.tid)).or_default();
        *samples += 1;
        *bytes += sample.copied_bytes();
    })?;
    for ((pid, tid), (samples, bytes)) in threads {
        println!("process {pid} thread {tid}: {samples} samples, {bytes} bytes of stack");
    }
    Ok(())
}

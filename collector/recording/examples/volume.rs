//! What a recording costs in bytes: `cargo run --release --example volume -- FILE [raw]`.
//!
//! Reads a recording, replays its mappings in the order of time, writes it again (scrubbed, unless `raw` is given) with
//! a flush every second of its own time, and reports bytes and CPU for each sample, in all and by column. The columns
//! are packed one by one for this, so their sum differs a little from the file.

use fpprof_recording::model::{Sample, Sideband};
use fpprof_recording::{Error, MappingRanges, Recording, RecordingWriter};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = args.as_slice() else { return Err("usage: volume FILE [raw]".into()) };
    let scrub = rest.first().map(String::as_str) != Some("raw");
    let mut recording = Recording::open(File::open(file)?)?;
    let mut events = Vec::new();
    recording.sideband(|event| events.push(event.clone()))?;
    events.sort_by_key(time_of);
    let mut samples = Vec::new();
    recording.samples(|sample| samples.push(sample.clone()))?;
    let mut replay = Replay::new(&events, scrub);
    let mut writer = RecordingWriter::new(Vec::new(), recording.meta())?;
    let mut report = Report::default();
    let mut next_flush = samples.first().map_or(0, |sample| sample.time_ns);
    for event in &events {
        writer.sideband(event)?;
    }
    writer.flush()?;
    let sideband_bytes = writer.bytes_written();
    let mut sample = Sample::default();
    for stored in &samples {
        // As it comes from a ring buffer: one place in memory that is warm.
        sample.clone_from(stored);
        let sample = &sample;
        replay.advance(sample.time_ns);
        if sample.time_ns >= next_flush {
            report.columns(writer.open_columns())?;
            report.timed(|| writer.flush())?;
            next_flush = sample.time_ns + 1_000_000_000;
        }
        let ranges = replay.ranges(sample.pid);
        report.timed(|| writer.sample(sample, ranges))?;
        report.observe(sample);
    }
    report.columns(writer.open_columns())?;
    report.timed(|| writer.flush())?;
    let started = Instant::now();
    let mut n_read = 0u64;
    let bytes = writer.bytes_written();
    let mut again = Recording::open(std::io::Cursor::new(writer.into_inner()))?;
    again.samples(|_| n_read += 1)?;
    assert_eq!(n_read, report.n_samples, "every sample is read again");
    report.print(bytes, sideband_bytes, started.elapsed());
    Ok(())
}

fn time_of(event: &Sideband) -> u64 {
    match event {
        Sideband::Mmap(event) => event.time_ns,
        Sideband::Comm(event) => event.time_ns,
        Sideband::Fork(event) => event.time_ns,
        Sideband::Exit(event) => event.time_ns,
        Sideband::Module(_) => 0,
    }
}

/// Mappings by process, as far as time has come.
struct Replay<'a> {
    events: &'a [Sideband],
    spaces: HashMap<u32, MappingRanges>,
    scrub: bool,
    nothing: MappingRanges,
}

impl<'a> Replay<'a> {
    fn new(events: &'a [Sideband], scrub: bool) -> Self {
        Self { events, spaces: HashMap::new(), scrub, nothing: MappingRanges::new() }
    }

    fn advance(&mut self, time_ns: u64) {
        while let Some((event, rest)) = self.events.split_first().filter(|(event, _)| time_of(event) <= time_ns) {
            match event {
                Sideband::Mmap(map) => {
                    self.spaces.entry(map.pid).or_default().insert(map.start, map.start.saturating_add(map.len));
                }
                Sideband::Comm(comm) if comm.exec => {
                    self.spaces.remove(&comm.pid);
                }
                Sideband::Fork(fork) if fork.pid != fork.parent_pid => {
                    let parent = self.spaces.get(&fork.parent_pid).cloned().unwrap_or_default();
                    self.spaces.insert(fork.pid, parent);
                }
                _ => {}
            }
            self.events = rest;
        }
    }

    fn ranges(&self, pid: u32) -> Option<&MappingRanges> {
        self.scrub.then(|| self.spaces.get(&pid).unwrap_or(&self.nothing))
    }
}

#[derive(Default)]
struct Report {
    n_samples: u64,
    stack_bytes: u64,
    encoding: Duration,
    by_column: BTreeMap<usize, (&'static str, usize, usize)>,
}

impl Report {
    fn timed(&mut self, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let started = Instant::now();
        let done = work();
        self.encoding += started.elapsed();
        done
    }

    fn observe(&mut self, sample: &Sample) {
        self.n_samples += 1;
        self.stack_bytes += sample.stack.len() as u64;
    }

    fn columns<'a>(&mut self, columns: impl Iterator<Item = (&'static str, &'a [u8])>) -> Result<(), std::io::Error> {
        for (number, (name, bytes)) in columns.enumerate() {
            let packed = zstd::bulk::compress(bytes, 3)?.len();
            let column = self.by_column.entry(number).or_insert((name, 0, 0));
            column.1 += bytes.len();
            column.2 += packed;
        }
        Ok(())
    }

    #[expect(clippy::print_stdout, reason = "the report is this program's output")]
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    fn print(&self, bytes: u64, sideband_bytes: u64, reading: Duration) {
        let per_sample_divisor = self.n_samples.max(1) as f64;
        let per_sample = |amount: u64| amount as f64 / per_sample_divisor;
        println!("samples                  {:>12}", self.n_samples);
        println!("stack bytes per sample   {:>12.1}", per_sample(self.stack_bytes));
        println!("file bytes per sample    {:>12.1}", per_sample(bytes));
        println!("  of these sideband      {:>12.1}", per_sample(sideband_bytes));
        println!("write ns per sample      {:>12.0}", self.encoding.as_nanos() as f64 / per_sample_divisor);
        println!("read ns per sample       {:>12.0}", reading.as_nanos() as f64 / per_sample_divisor);
        println!("\n{:<16} {:>14} {:>14}", "column", "raw B/sample", "packed B/sample");
        for (name, raw, packed) in self.by_column.values() {
            println!("{name:<16} {:>14.2} {:>14.2}", per_sample(*raw as u64), per_sample(*packed as u64));
        }
    }
}

//! Measures the size of a recording: `cargo run --release --example volume -- FILE [raw|narrow]`.
//!
//! Reads a recording (made with raw stacks, otherwise there is nothing left to scrub), replays its mappings in order of
//! time, and writes it again with a flush every second of its own time. Words are scrubbed, unless `raw` is given; with
//! `narrow`, only mappings of files and executable memory count. Reports bytes and CPU time per sample, in total and by
//! column. The columns are packed one by one for this, so their sum differs slightly from the file.

use fpprof_recording::model::{Mmap, Sample, Sideband};
use fpprof_recording::{MappingRanges, Recording, RecordingWriter};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, rest @ ..] = args.as_slice() else { return Err("usage: volume FILE [raw|narrow]".into()) };
    let scrub = match rest.first().map(String::as_str) {
        None => Scrub::All,
        Some("narrow") => Scrub::Narrow,
        Some("raw") => Scrub::Nothing,
        Some(other) => return Err(format!("unknown: {other}").into()),
    };
    let mut recording = Recording::open(File::open(file)?)?;
    let mut events = Vec::new();
    recording.sideband(|event| events.push(event.clone()))?;
    events.sort_by_key(Sideband::time_ns);
    let mut samples = Vec::new();
    recording.samples(|sample| samples.push(sample.clone()))?;
    let mut report = Report::default();
    // Once without the writer, to measure the cost of the replay itself.
    let idle = replay(&events, &samples, scrub, |_, _| Ok(()))?;
    let mut writer = RecordingWriter::new(Vec::new(), recording.meta())?;
    for event in &events {
        writer.sideband(event)?;
    }
    writer.flush()?;
    let sideband_bytes = writer.bytes_written();
    let mut next_flush = samples.first().map_or(0, |sample| sample.time_ns);
    let mut columns_cpu_ns = 0;
    let busy = replay(&events, &samples, scrub, |sample, ranges| {
        if sample.time_ns >= next_flush {
            let before = cpu_ns()?;
            report.columns(writer.open_columns())?;
            columns_cpu_ns += cpu_ns()?.saturating_sub(before);
            writer.flush()?;
            next_flush = sample.time_ns + 1_000_000_000;
        }
        writer.sample(sample, ranges)?;
        report.observe(sample);
        Ok(())
    })?;
    report.write_ns = busy.saturating_sub(idle).saturating_sub(columns_cpu_ns);
    report.columns(writer.open_columns())?;
    writer.flush()?;
    let bytes = writer.bytes_written();
    let mut again = Recording::open(std::io::Cursor::new(writer.into_inner()))?;
    let mut n_read = 0u64;
    let before = cpu_ns()?;
    again.samples(|_| n_read += 1)?;
    report.read_ns = cpu_ns()?.saturating_sub(before);
    assert_eq!(n_read, report.n_samples, "every sample is read again");
    report.print(bytes, sideband_bytes);
    Ok(())
}

/// CPU time of this thread, nanoseconds, which other programs do not affect.
///
/// # Sources
/// Linux `Documentation/scheduler/sched-stats.rst`: first field of `/proc/<pid>/schedstat`.
fn cpu_ns() -> Result<u64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("schedstat is empty")?.parse()?)
}

/// Replays every sample with the mappings of its time; returns the CPU time.
fn replay(
    events: &[Sideband],
    samples: &[Sample],
    scrub: Scrub,
    mut visit: impl FnMut(&Sample, Option<&MappingRanges>) -> Result<(), Box<dyn std::error::Error>>,
) -> Result<u64, Box<dyn std::error::Error>> {
    let before = cpu_ns()?;
    let mut replay = Replay::new(events, scrub);
    let mut sample = Sample::default();
    for stored in samples {
        // As from a ring buffer: always in the same warm memory.
        sample.clone_from(stored);
        replay.advance(sample.time_ns);
        visit(&sample, replay.ranges(sample.pid))?;
    }
    Ok(cpu_ns()?.saturating_sub(before))
}

/// Which words to keep.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scrub {
    /// All.
    Nothing,
    /// Those that point into any mapping.
    All,
    /// Those that point into a mapped file, executable memory or the sample's own chunk.
    Narrow,
}

fn is_file_or_code(map: &Mmap) -> bool {
    const PROT_EXEC: u32 = 4;
    map.prot & PROT_EXEC != 0 || (map.path.starts_with(b"/") && !map.path.starts_with(b"//anon"))
}

/// Mappings by process at the current time.
struct Replay<'a> {
    events: &'a [Sideband],
    spaces: HashMap<u32, MappingRanges>,
    scrub: Scrub,
    nothing: MappingRanges,
}

impl<'a> Replay<'a> {
    fn new(events: &'a [Sideband], scrub: Scrub) -> Self {
        Self { events, spaces: HashMap::new(), scrub, nothing: MappingRanges::new() }
    }

    fn advance(&mut self, time_ns: u64) {
        while let Some((event, rest)) = self.events.split_first().filter(|(event, _)| event.time_ns() <= Some(time_ns))
        {
            match event {
                Sideband::Mmap(map) if self.scrub == Scrub::All || is_file_or_code(map) => {
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
        (self.scrub != Scrub::Nothing).then(|| self.spaces.get(&pid).unwrap_or(&self.nothing))
    }
}

#[derive(Default)]
struct Report {
    n_samples: u64,
    stack_bytes: u64,
    write_ns: u64,
    read_ns: u64,
    by_column: BTreeMap<usize, (&'static str, usize, usize)>,
}

impl Report {
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
    fn print(&self, bytes: u64, sideband_bytes: u64) {
        let per_sample = |amount: u64| amount as f64 / self.n_samples.max(1) as f64;
        println!("samples                  {:>12}", self.n_samples);
        println!("stack bytes per sample   {:>12.1}", per_sample(self.stack_bytes));
        println!("file bytes per sample    {:>12.1}", per_sample(bytes));
        println!("  of these sideband      {:>12.1}", per_sample(sideband_bytes));
        println!("write CPU ns per sample  {:>12.0}", per_sample(self.write_ns));
        println!("read CPU ns per sample   {:>12.0}", per_sample(self.read_ns));
        println!("\n{:<16} {:>14} {:>14}", "column", "raw B/sample", "packed B/sample");
        for (name, raw, packed) in self.by_column.values() {
            println!("{name:<16} {:>14.2} {:>14.2}", per_sample(*raw as u64), per_sample(*packed as u64));
        }
    }
}

//! Imports files written by the perf of this machine, and modified versions of them.

mod damage;
mod groups;
mod hostile;
mod real;

use super::{ImportError, Imported, perf_data, perf_pipe};
use crate::test_support::TestDir;
use fpprof_recording::Recording;
use fpprof_recording::model::{Sample, Sideband};
use std::io::{Cursor, Write};
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

const BURN: &str = "
#include <time.h>
volatile unsigned long sink;
__attribute__((noinline)) void burn(void) { for (int i = 0; i < 100000; i++) sink += i; }
__attribute__((noinline)) void outer(void) { burn(); sink++; }
int main(void) {
    clock_t end = clock() + CLOCKS_PER_SEC / 4;
    while (clock() < end) outer();
    return 0;
}
";

/// One file of each kind, recorded once.
struct Recorded {
    fp: Vec<u8>,
    dwarf: Vec<u8>,
    compressed: Vec<u8>,
    pipe: Vec<u8>,
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| Recorded {
        fp: record(&["--call-graph", "fp"]),
        dwarf: record(&["--call-graph", "dwarf,8192"]),
        compressed: record(&["--call-graph", "dwarf,8192", "-z"]),
        pipe: record(&["--call-graph", "dwarf,8192", "-o", "-"]),
    })
}

/// The output of `perf record` for a quarter of a second of a program, to a file or with `-o -` to a pipe.
fn record(options: &[&str]) -> Vec<u8> {
    let dir = TestDir::new();
    let program = dir.compile("burn", "burn.c", BURN, &["-O2", "-fno-omit-frame-pointer"]);
    let file = dir.path("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q"]);
    if !options.contains(&"-c") {
        perf.args(["-F", "499"]);
    }
    if !options.contains(&"-e") {
        perf.args(["-e", "cpu-clock"]);
    }
    if !options.contains(&"-o") {
        perf.arg("-o").arg(&file);
    }
    let output = perf.args(options).arg("--").arg(program).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    if file.exists() { std::fs::read(&file).unwrap() } else { output.stdout }
}

/// A writer whose output can be read again.
#[derive(Clone, Default)]
struct Sink(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Imports a file; also returns the recording.
fn import(bytes: &[u8]) -> Result<(Imported, Vec<u8>), ImportError> {
    let sink = Sink::default();
    let is_pipe = bytes.get(8..16) == Some(&16_u64.to_le_bytes());
    let imported = match is_pipe {
        true => perf_pipe(bytes, sink.clone())?,
        false => perf_data(Cursor::new(bytes), sink.clone())?,
    };
    let written = std::mem::take(&mut *sink.0.lock().unwrap());
    Ok((imported, written))
}

/// The samples and events of a recording.
fn contents(recording: &[u8]) -> (Vec<Sample>, Vec<Sideband>) {
    let mut recording = Recording::open(Cursor::new(recording)).unwrap();
    let (mut samples, mut events) = (Vec::new(), Vec::new());
    recording.sideband(|event| events.push(event.clone())).unwrap();
    recording.samples(|sample| samples.push(sample.clone())).unwrap();
    (samples, events)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn set_word(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The range of a file's records: `data.offset` and `data.size` of its header.
fn data(file: &[u8]) -> Range<usize> {
    let [offset, size] = [40, 48].map(|at| usize::try_from(word(file, at)).unwrap());
    offset..offset + size
}

/// (type, range) of every record of a file.
fn records(file: &[u8]) -> Vec<(u32, Range<usize>)> {
    let range = data(file);
    let (mut at, mut found) = (range.start, Vec::new());
    while at < range.end {
        let kind = u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let len = usize::from(u16::from_le_bytes(file[at + 6..at + 8].try_into().unwrap()));
        found.push((kind, at..at + len));
        at += len;
    }
    found
}

/// Encodes a record.
fn new_record(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len() + 8).unwrap();
    [&kind.to_le_bytes()[..], &[0, 0], &len.to_le_bytes(), body].concat()
}

/// The file with other records; what follows them moves, including the table of features.
fn with_records(file: &[u8], records: &[u8]) -> Vec<u8> {
    let old = data(file);
    let mut new = [&file[..old.start], records, &file[old.end..]].concat();
    set_word(&mut new, 48, records.len() as u64);
    let table = old.start + records.len();
    let n_features: u32 = (72..104).step_by(8).map(|at| word(file, at).count_ones()).sum();
    for entry in 0..n_features as usize {
        let at = table + entry * 16;
        let moved = word(&new, at) + records.len() as u64 - old.len() as u64;
        set_word(&mut new, at, moved);
    }
    new
}

/// A deterministic pseudo-random generator (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

//! What the fuzzers run: every parser of bytes that come from others, each with the bytes alone.
//!
//! A fault is a panic, memory beyond `-rss_limit_mb`, or time beyond `-timeout`.

mod analysed;
mod elf;
mod files;
mod unwinding;

pub use analysed::{jitdump, perf_map, recording};
pub use elf::{core_dump, elf};
pub use unwinding::{debug_frame, eh_frame, eh_frame_hdr, expression, sframe, stack};

use fpprof_analysis::{import, symbols};
use std::io::{self, Cursor};

/// Symbols, one a line.
pub fn demangle(input: &[u8]) {
    for symbol in input.split(|&byte| byte == b'\n') {
        assert!(symbols::demangle(symbol).len() <= 5 << 10);
    }
}

/// A perf.data file.
pub fn perf_data(input: &[u8]) {
    let _ = import::perf_data(Cursor::new(input), io::sink());
}

/// What `perf record -o -` writes.
pub fn perf_pipe(input: &[u8]) {
    let _ = import::perf_pipe(input, io::sink());
}

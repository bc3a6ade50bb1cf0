//! The samples of a recording in the formats of other tools.
//!
//! You provide a [`Profile`]. In turn you get the bytes of a file. In all formats a stack that is not complete has its
//! end as outermost frame, `[truncated: REASON]` or `[broken: REASON]`, as in folded stacks; formats with labels have
//! it as a label as well. Names are made visible ([`crate::escape::visible`]).

mod dictionary;
pub mod firefox;
pub mod otlp;
mod part;
pub mod perf_script;
pub mod pprof;
pub mod pyroscope;
pub mod request;
pub mod speedscope;

use fpprof_analysis::profile::{Profile, ProfileEvent, ProfileSample, Weight};
use libdeflater::{CompressionLvl, Compressor};
use std::io;

/// The name and unit of an event's weights, in pprof's and OpenTelemetry's form.
fn value_type(event: &ProfileEvent) -> (&str, &'static str) {
    match event.weight {
        Weight::CpuNs => ("cpu", NANOSECONDS),
        Weight::BlockedNs => ("off_cpu", NANOSECONDS),
        Weight::Occurrences => (event.name.as_str(), COUNT),
    }
}

const NANOSECONDS: &str = "nanoseconds";
const COUNT: &str = "count";
const NS_PER_S: u64 = 1_000_000_000;

/// The row of a profile's table by its index.
pub(crate) fn row<T>(table: &[T], number: u32) -> Option<&T> {
    table.get(usize::try_from(number).ok()?)
}

/// The event of a sample.
fn event_of<'p>(profile: &'p Profile, sample: &ProfileSample) -> Option<&'p ProfileEvent> {
    row(&profile.events, sample.event)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressor = Compressor::new(CompressionLvl::default());
    let mut compressed = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let n = compressor.gzip_compress(bytes, &mut compressed).map_err(io::Error::other)?;
    compressed.truncate(n);
    Ok(compressed)
}

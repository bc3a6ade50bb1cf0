//! Counters of an interval: the balance of its ticks, and the recorder's resource usage.
//!
//! | column | type | is |
//! |---|---|---|
//! | `time` | timestamp, µs, UTC | when the interval began |
//! | `duration_us` | int64 | how long it is |
//! | `host` | string | name of the machine, `uname -n` |
//! | `event` | string | the event whose ticks are counted, such as `cpu-clock`; empty for counters of no event |
//! | `counter` | string | name of the counter, see [`Counter::name`] |
//! | `cause` | string | cause of lost or discarded samples; else empty |
//! | `value` | int64 | value of the counter |

use super::{UTC, file, int, number, text, time};
use crate::escape::visible;
use arrow_array::builder::{Int64Builder, StringBuilder, TimestampMicrosecondBuilder};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// The counters of an interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Start of the interval, microseconds since 1970.
    pub start_unix_us: u64,
    /// Length of the interval.
    pub duration: Duration,
    /// Name of the machine.
    pub host: String,
    /// The counters; one row each.
    pub counters: Vec<Counter>,
}

/// A counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    /// The name. Of the balance: `fired`, `recorded`, `lost`, `skipped`, `dropped` and `unread` (taken but not yet
    /// read; negative if samples of an earlier interval were read in this one); `fired` is always the sum of the
    /// others. Of the recorded samples: `stored` and `discarded`. Of the recorder: `cpu_ns`, `rss_bytes` and `rate_hz`.
    /// And `fewer_files`, if the ELF files of only some owners were read, because analysis with all failed or took too long; the
    /// cause names the owners.
    pub name: &'static str,
    /// The event whose ticks are counted; empty if the counter belongs to none.
    pub event: String,
    /// The cause of what is lost or discarded, or the owner of the files that were read; else empty.
    pub cause: String,
    /// The value, in the unit of the name.
    pub value: i64,
}

/// Writes the counters of an interval as a Parquet file.
///
/// # Errors
/// If the writer fails.
pub fn write(counters: &Counters, out: &mut impl Write) -> io::Result<()> {
    let columns = vec![
        time("time"),
        number("duration_us"),
        text("host"),
        text("event"),
        text("counter"),
        text("cause"),
        number("value"),
    ];
    let mut times = TimestampMicrosecondBuilder::new().with_timezone(UTC);
    let [mut durations, mut values] = [Int64Builder::new(), Int64Builder::new()];
    let [mut hosts, mut events, mut names, mut causes] = std::array::from_fn(|_| StringBuilder::new());
    for counter in &counters.counters {
        times.append_value(int(counters.start_unix_us));
        durations.append_value(int(counters.duration.as_micros()));
        hosts.append_value(visible(&counters.host));
        events.append_value(visible(&counter.event));
        names.append_value(counter.name);
        causes.append_value(&counter.cause);
        values.append_value(counter.value);
    }
    let batch: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(times.finish()),
        Arc::new(durations.finish()),
        Arc::new(hosts.finish()),
        Arc::new(events.finish()),
        Arc::new(names.finish()),
        Arc::new(causes.finish()),
        Arc::new(values.finish()),
    ];
    out.write_all(&file(columns, std::iter::once(batch))?)
}

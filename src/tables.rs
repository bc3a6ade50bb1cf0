//! Paths of the tables in a store's directory.
//!
//! ```text
//! STORE/stacks/day=2026-11-26/140500.000012Z-HOST.parquet      samples of the interval that began then, by stack
//! STORE/counters/day=2026-11-26/140500.000012Z-HOST.parquet    its balance, and the agent's own cost
//! STORE/stacks/day=2026-11-26/130000.000012Z_135900.000007Z-HOST.parquet     the same of all intervals that began from then to then
//! ```
//!
//! Days are UTC.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Error, Timestamp};
use std::path::Path;

/// Microseconds of an hour.
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// A kind of table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    Stacks,
    Counters,
}

impl Table {
    /// Name of the table's directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stacks => "stacks",
            Self::Counters => "counters",
        }
    }
}

/// Name of the directory for an interval that began at this time.
///
/// # Errors
/// If the time is out of range.
pub(crate) fn day_of(start_unix_us: u64) -> Result<String, Error> {
    Ok(time(start_unix_us)?.strftime("day=%Y-%m-%d").to_string())
}

/// Name of the file for an interval that began at this time.
///
/// # Errors
/// If the time is out of range.
pub(crate) fn file_of(start_unix_us: u64, host: &str) -> Result<String, Error> {
    Ok(format!("{}-{host}.parquet", time(start_unix_us)?.strftime(TIME)))
}

/// Name of the file for intervals of which the first and the last began at these times of one day, microseconds since 1970.
///
/// # Errors
/// If a time is out of range.
pub(crate) fn file_of_range([first, last]: [i64; 2], host: &str) -> Result<String, Error> {
    let [first, last] = [first, last].map(Timestamp::from_microsecond);
    Ok(format!("{}_{}-{host}.parquet", first?.strftime(TIME), last?.strftime(TIME)))
}

const TIME: &str = "%H%M%S%.6fZ";

fn time(unix_us: u64) -> Result<Timestamp, Error> {
    Timestamp::from_microsecond(i64::try_from(unix_us).unwrap_or(i64::MAX))
}

/// The starts of the first and the last interval of a file, microseconds since 1970; `None` if its name has no such times.
pub(crate) fn range_of(path: &Path) -> Option<[i64; 2]> {
    let day = path.parent()?.file_name()?.to_str()?.strip_prefix("day=")?;
    let (times, _) = path.file_name()?.to_str()?.split_once("Z-")?;
    let began = |time: &str| {
        let began = DateTime::strptime("%Y-%m-%d %H%M%S%.f", format!("{day} {time}")).ok()?;
        Some(began.to_zoned(TimeZone::UTC).ok()?.timestamp().as_microsecond())
    };
    let (first, last) = times.split_once("Z_").unwrap_or((times, times));
    Some([began(first)?, began(last)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that file names give the start of the interval to the microsecond, and that other names give none.
    #[test]
    fn names_say_when() {
        for began in [1_795_694_402_000_000, 1_795_694_459_000_012, 1_795_737_599_999_999] {
            let path = Path::new("store").join(day_of(began).unwrap()).join(file_of(began, "a-host.Z-1").unwrap());
            let time = i64::try_from(began).expect("a time");
            assert_eq!(range_of(&path), Some([time; 2]), "{}", path.display());
            let range = [time - 1_000_001, time];
            let path = path.with_file_name(file_of_range(range, "a-host.Z-1").unwrap());
            assert_eq!(range_of(&path), Some(range), "{}", path.display());
        }
        for name in ["day=2026-11-26/x.parquet", "2026-11-26/120000.000000Z-a.parquet", "day=2026-13-26/120000.0Z-a"] {
            assert_eq!(range_of(Path::new(name)), None, "{name}");
        }
    }
}

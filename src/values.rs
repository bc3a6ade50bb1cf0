//! Parsers of option values: modes, sizes, times.

use fpprof_recording::model::CaptureMode;

/// Default for the bytes of stack.
pub(crate) const DEFAULT_STACK_BYTES: u32 = 65_536;
/// Default for verifying walks in the kernel: one in this many is compared with a copied stack.
const DEFAULT_VERIFY: u32 = 100;
/// Fewest useful bytes of stack: one frame.
const MIN_STACK_BYTES: u64 = 64;
/// Smallest size at which a recording can switch to another file: the initial data of each must fit.
const MIN_FILE_BYTES: u64 = 1 << 20;

/// Parses `fp`, `dwarf[,BYTES]`, as in perf, `both[,BYTES][,1/N]` or `cfi[,BYTES][,verify=N][,fp]`.
///
/// # Errors
/// If the text is no mode; the error names the valid ones.
pub(crate) fn call_graph(text: &str) -> Result<CaptureMode, String> {
    let (name, bytes) = match text.split_once([',', ':']) {
        Some((name, bytes)) => (name, Some(bytes)),
        None => (text, None),
    };
    let stack_bytes = || bytes.map_or(Ok(DEFAULT_STACK_BYTES), stack_bytes);
    match name {
        "fp" if bytes.is_some() => Err("`fp` copies no stack and takes no size".to_owned()),
        "fp" => Ok(CaptureMode::Fp),
        "dwarf" => Ok(CaptureMode::Dwarf { stack_bytes: stack_bytes()? }),
        "both" => both(bytes),
        "cfi" => cfi(bytes),
        "lbr" => Err("`lbr` is not supported; try `both`".to_owned()),
        _ => Err("expected fp, dwarf[,BYTES], both[,BYTES][,1/N] or cfi[,BYTES][,verify=N][,fp]".to_owned()),
    }
}

/// Parses the options after `both`.
fn both(options: Option<&str>) -> Result<CaptureMode, String> {
    let (mut bytes, mut every) = (DEFAULT_STACK_BYTES, 1);
    for option in options.into_iter().flat_map(|options| options.split([',', ':'])) {
        match option.strip_prefix("1/") {
            Some(n) => {
                let n = n.parse().ok().filter(|&n| n > 0);
                every =
                    n.ok_or_else(|| format!("`{option}`: expected 1/N, with N the number of samples, 1 or more"))?;
            }
            None => bytes = stack_bytes(option)?,
        }
    }
    Ok(CaptureMode::Both { stack_bytes: bytes, every })
}

/// Parses the options after `cfi`.
fn cfi(options: Option<&str>) -> Result<CaptureMode, String> {
    let (mut bytes, mut verify_each, mut frame_pointers) = (DEFAULT_STACK_BYTES, DEFAULT_VERIFY, false);
    for option in options.into_iter().flat_map(|options| options.split([',', ':'])) {
        if option == "fp" {
            frame_pointers = true;
            continue;
        }
        match option.strip_prefix("verify=") {
            Some(n) => {
                verify_each =
                    n.parse().map_err(|_error| format!("`{option}`: expected verify=N, a number of samples"))?
            }
            None => bytes = stack_bytes(option)?,
        }
    }
    Ok(CaptureMode::Cfi { stack_bytes: bytes, verify: verify_each, frame_pointers })
}

/// A mode, whether its size was given, and whether the mode was chosen automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallGraph {
    mode: CaptureMode,
    has_size: bool,
    is_auto: bool,
}

impl CallGraph {
    /// The mode. If its size was not given, it is the default or `largest`, whichever is smaller.
    pub(crate) fn up_to(self, largest: u32) -> CaptureMode {
        match self.mode {
            CaptureMode::Dwarf { stack_bytes } if !self.has_size => {
                CaptureMode::Dwarf { stack_bytes: stack_bytes.min(largest) }
            }
            CaptureMode::Both { stack_bytes, every } if !self.has_size => {
                CaptureMode::Both { stack_bytes: stack_bytes.min(largest), every }
            }
            typed => typed,
        }
    }

    /// Whether the size is at most the default.
    pub(crate) fn has_usual_size(self) -> bool {
        match self.mode {
            CaptureMode::Fp => true,
            CaptureMode::Dwarf { stack_bytes }
            | CaptureMode::Both { stack_bytes, .. }
            | CaptureMode::Cfi { stack_bytes, .. } => stack_bytes <= DEFAULT_STACK_BYTES,
        }
    }

    /// The mode to use if [`Self::up_to`] is not possible, if the choice is automatic.
    pub(crate) fn else_mode(self) -> Option<CaptureMode> {
        match self.mode {
            CaptureMode::Cfi { stack_bytes, .. } if self.is_auto => Some(CaptureMode::Both { stack_bytes, every: 1 }),
            _ => None,
        }
    }
}

/// Like [`call_graph`], but remembers whether a size was given; also parses `auto`, which takes the options of `cfi`.
///
/// # Errors
/// If the text is no mode; the error names the valid ones.
pub(crate) fn sized_call_graph(text: &str) -> Result<CallGraph, String> {
    let auto = text.strip_prefix("auto").filter(|options| options.is_empty() || options.starts_with([',', ':']));
    let mode = match auto {
        Some(options) => call_graph(&format!("cfi{options}")),
        None => call_graph(text).map_err(|error| match error.strip_prefix("expected fp") {
            Some(others) => format!("expected auto[,fp], fp{others}"),
            None => error,
        }),
    };
    let has_size = text.split([',', ':']).skip(1).any(|option| size(option).is_ok());
    Ok(CallGraph { mode: mode?, has_size, is_auto: auto.is_some() })
}

/// Parses the maximum bytes of stack to copy.
fn stack_bytes(text: &str) -> Result<u32, String> {
    let max = fpprof_collector::MAX_STACK_BYTES;
    let bytes = size(text)?;
    match u32::try_from(bytes) {
        Ok(fits) if (MIN_STACK_BYTES..=max).contains(&bytes) => Ok(fits.next_multiple_of(8)),
        _ => Err(format!("cannot copy {text} bytes of stack; choose {MIN_STACK_BYTES} to {max}")),
    }
}

/// Parses a size in bytes: a number, with K, M or G for binary multiples.
///
/// # Errors
/// If the text is no size; the error says why.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size; expected bytes, or a number with K, M or G");
    let upper = text.trim_end_matches(['B', 'b']).to_ascii_uppercase();
    let upper = upper.trim_end_matches('I');
    let (digits, shift) = match upper.chars().last() {
        Some('K') => (upper.trim_end_matches('K'), 10),
        Some('M') => (upper.trim_end_matches('M'), 20),
        Some('G') => (upper.trim_end_matches('G'), 30),
        _ => (upper, 0),
    };
    let number: u64 = digits.parse().map_err(|_error| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Parses a rate in samples per second.
///
/// # Errors
/// If the text is no positive number; the error says why.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    let rate = text.parse().ok().filter(|&rate| rate > 0);
    rate.ok_or_else(|| format!("`{text}` is not a rate; expected samples per second, 1 or more"))
}

/// Parses a period in events per sample.
///
/// # Errors
/// If the text is no positive number; the error says why.
pub(crate) fn period(text: &str) -> Result<u64, String> {
    let period = text.parse().ok().filter(|&period| period > 0);
    let period = period
        .ok_or_else(|| format!("`{text}` is not a count; expected the number of events per sample, 1 or more"))?;
    // `perf_event_open` refuses larger ones.
    if period > i64::MAX.cast_unsigned() { Err(format!("at most {} events per sample", i64::MAX)) } else { Ok(period) }
}

/// Parses how long to record: seconds, or a time with its unit.
///
/// # Errors
/// If the text is no such time, or zero; the error names some.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    let seconds = || std::time::Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let wrong = || format!("`{text}` is not a time; expected seconds, more than 0, or a time such as 10min or 1h");
    time(text).or_else(seconds).filter(|time| !time.is_zero()).ok_or_else(wrong)
}

/// Parses a time of at least a microsecond: a number with `us`, `ms` or `s`, or 0 for any.
///
/// # Errors
/// If the text is no such time; the error says why.
pub(crate) fn wait(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is not a time; expected 50us, 1ms or 0, for instance");
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let unit = units.into_iter().find_map(|(unit, of_s)| Some((text.strip_suffix(unit)?, of_s)));
    let (digits, of_s) = unit.or_else(|| (text == "0").then_some((text, 1.0))).ok_or_else(wrong)?;
    let number: f64 = digits.trim_end().parse().map_err(|_error| wrong())?;
    std::time::Duration::try_from_secs_f64(number * of_s).map_err(|_error| wrong())
}

/// [`wait`] for an option whose value may be left out: then the command may be taken for it.
///
/// # Errors
/// Those of [`wait`].
pub(crate) fn wait_option(text: &str) -> Result<std::time::Duration, String> {
    wait(text).map_err(|error| format!("{error} (and `--` before a command)"))
}

/// When a recording switches to another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    /// After a time.
    After(std::time::Duration),
    /// When a file has this many bytes.
    AtBytes(u64),
}

/// Parses when a recording switches to another file: a time of a second or more, or a size of 1 MiB or more.
///
/// # Errors
/// If the text is neither; the error says why.
pub(crate) fn switch(text: &str) -> Result<Switch, String> {
    let wrong = || format!("`{text}` is neither a time (30s, 10min, 1h, 1d) nor a size (100M)");
    if let Some(time) = time(text) {
        let is_long = time.as_secs() > 0;
        return is_long
            .then_some(Switch::After(time))
            .ok_or_else(|| format!("`{text}` is too short; choose 1s or more"));
    }
    // A number without a unit could be seconds as well as bytes.
    if !text.ends_with(|last: char| last.is_ascii_alphabetic()) {
        return Err(wrong());
    }
    let bytes = size(text).map_err(|_error| wrong())?;
    let is_large = bytes >= MIN_FILE_BYTES;
    is_large.then_some(Switch::AtBytes(bytes)).ok_or_else(|| format!("`{text}` is too small; choose 1M or more"))
}

/// Parses a time over which equal samples are written once: a second to an hour.
///
/// # Errors
/// If the text is no such time; the error names some.
pub(crate) fn aggregated(text: &str) -> Result<std::time::Duration, String> {
    let wrong = || format!("`{text}` is not a time from 1s to 1h, such as 10s or 1min (put `--` before a command)");
    time(text).filter(|time| (1..=3600).contains(&time.as_secs())).ok_or_else(wrong)
}

/// Parses a time with its unit: `30s`, `10min`, `1h` or `7d`.
pub(crate) fn time(text: &str) -> Option<std::time::Duration> {
    let mut units = [("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0)].into_iter();
    let seconds = units.find_map(|(unit, of_s)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * of_s));
    std::time::Duration::try_from_secs_f64(seconds?).ok()
}

/// Formats a mode as [`call_graph`] parses it.
pub(crate) fn mode_name(mode: CaptureMode) -> String {
    match mode {
        CaptureMode::Fp => "fp".to_owned(),
        CaptureMode::Dwarf { stack_bytes } => format!("dwarf,{stack_bytes}"),
        CaptureMode::Both { stack_bytes, every: 0 | 1 } => format!("both,{stack_bytes}"),
        CaptureMode::Both { stack_bytes, every } => format!("both,{stack_bytes},1/{every}"),
        CaptureMode::Cfi { stack_bytes, verify, frame_pointers } => {
            format!("cfi,{stack_bytes},verify={verify}{}", if frame_pointers { ",fp" } else { "" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that perf's spellings have the same meaning as in perf, and that sizes may have a unit.
    #[test]
    fn call_graphs_are_perfs() {
        assert_eq!(call_graph("fp"), Ok(CaptureMode::Fp));
        assert_eq!(call_graph("dwarf"), Ok(CaptureMode::Dwarf { stack_bytes: 65_536 }));
        assert_eq!(call_graph("dwarf,8192"), Ok(CaptureMode::Dwarf { stack_bytes: 8192 }));
        assert_eq!(call_graph("both:1/10"), Ok(CaptureMode::Both { stack_bytes: 65_536, every: 10 }));
        assert_eq!(call_graph("both,16K,1/3"), Ok(CaptureMode::Both { stack_bytes: 16_384, every: 3 }));
        for wrong in ["both:1/0", "both:1/x", "both,1/"] {
            assert!(call_graph(wrong).is_err_and(|error| error.contains("expected 1/N")), "{wrong}");
        }
        assert_eq!(call_graph("both:16K"), Ok(CaptureMode::Both { stack_bytes: 16_384, every: 1 }));
        let cfi = |stack_bytes, verify| Ok(CaptureMode::Cfi { stack_bytes, verify, frame_pointers: false });
        assert_eq!(call_graph("cfi"), cfi(65_536, 100));
        assert_eq!(call_graph("cfi,1M,verify=7"), cfi(1 << 20, 7));
        assert_eq!(call_graph("cfi:verify=0"), cfi(65_536, 0));
        let with_chain = CaptureMode::Cfi { stack_bytes: 8192, verify: 1, frame_pointers: true };
        assert_eq!(call_graph("cfi,fp,8K,verify=1"), Ok(with_chain));
        assert_eq!(mode_name(with_chain), "cfi,8192,verify=1,fp");
        assert!(["cfi,verify=", "cfi,verify=-1", "cfi,x", "cfi,"].iter().all(|text| call_graph(text).is_err()));
        assert_eq!(call_graph("dwarf,4095"), Ok(CaptureMode::Dwarf { stack_bytes: 4096 }));
    }

    /// Check that a given size is kept, and that a default one is limited to what is possible.
    #[test]
    fn only_typed_sizes_stand() {
        let auto = sized_call_graph("auto,8K,fp").expect("options of cfi");
        assert_eq!(auto.mode, CaptureMode::Cfi { stack_bytes: 8192, verify: 100, frame_pointers: true });
        assert_eq!(auto.else_mode(), Some(CaptureMode::Both { stack_bytes: 8192, every: 1 }));
        assert_eq!(sized_call_graph("cfi").map(CallGraph::else_mode), Ok(None));
        assert!(sized_call_graph("autofp").is_err_and(|error| error.starts_with("expected auto[,fp], fp, ")));
        let up_to = |text, largest| sized_call_graph(text).map(|graph| graph.up_to(largest));
        assert_eq!(up_to("both", 65_528), Ok(CaptureMode::Both { stack_bytes: 65_528, every: 1 }));
        assert_eq!(up_to("dwarf", u32::MAX), Ok(CaptureMode::Dwarf { stack_bytes: 65_536 }));
        assert_eq!(up_to("dwarf,65536", 65_528), Ok(CaptureMode::Dwarf { stack_bytes: 65_536 }));
        assert_eq!(up_to("fp", 8), Ok(CaptureMode::Fp));
    }

    /// Check that times of waits need units, and that a command in their place is recognised.
    #[test]
    fn waits_have_units() {
        use std::time::Duration;
        assert_eq!(wait("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(wait("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(wait("2s"), Ok(Duration::from_secs(2)));
        assert_eq!(wait("0"), Ok(Duration::ZERO));
        for text in ["", "1", "ms", "-1ms", "nanus", "1e30s", "./progs", "1 h"] {
            assert!(wait(text).is_err_and(|words| words.contains("50us")), "{text}");
        }
    }

    /// Check that a duration is in seconds unless it has a unit.
    #[test]
    fn durations_are_seconds() {
        use std::time::Duration;
        for (text, ms) in [("10", 10_000), ("0.5", 500), ("2s", 2000), ("1.5min", 90_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "0", "0s", "-1", "nan", "inf", "1e300", "s", "2ss", "5m", "x"] {
            assert!(duration(text).is_err_and(|words| words.contains("10min")), "{text}");
        }
    }

    /// Check that files can switch by time and by size, and that a bare number is neither.
    #[test]
    fn files_end_by_time_or_size() {
        use std::time::Duration;
        let times = [("30s", 30), ("10min", 600), ("1.5h", 5400), ("2d", 172_800)];
        times.into_iter().for_each(|(text, s)| assert_eq!(switch(text), Ok(Switch::After(Duration::from_secs(s)))));
        assert_eq!(switch("100M"), Ok(Switch::AtBytes(100 << 20)));
        assert_eq!(switch("1GiB"), Ok(Switch::AtBytes(1 << 30)));
        for text in ["", "5", "h", "0s", "0.5s", "-1h", "0M", "1000K", "1e300h", "10x", "nanh", "M"] {
            assert!(switch(text).is_err(), "{text}");
        }
    }

    /// Check that equal samples are written once over a second to an hour, and that a command in place of the time is
    /// recognised.
    #[test]
    fn equal_samples_are_apart_for_a_while() {
        use std::time::Duration;
        let times = [("1s", 1), ("10s", 10), ("1min", 60), ("1h", 3600)];
        times.into_iter().for_each(|(text, s)| assert_eq!(aggregated(text), Ok(Duration::from_secs(s))));
        for text in ["", "10", "0s", "0.5s", "-1s", "2h", "nans", "./program"] {
            assert!(aggregated(text).is_err_and(|words| words.contains("10s") && words.contains("--")), "{text}");
        }
    }

    /// Check that invalid values are refused with a message.
    #[test]
    fn nonsense_is_refused() {
        for text in ["", "dwarf,0", "dwarf,10G", "dwarf,x", "fp,8192", "lbr", "both,-1", "both,99999999999999999999G"] {
            assert!(call_graph(text).is_err(), "{text}");
        }
    }
}

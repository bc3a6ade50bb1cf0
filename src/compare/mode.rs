//! The modes of an experiment: no profiler, fpprof, or perf.

use crate::values;
use fpprof_recording::model::CaptureMode;
use std::fmt;

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The command alone: the baseline of all slow-downs.
    None,
    /// The baseline again: shows how much two equal modes differ.
    NoneAgain,
    /// `fpprof record`.
    Fpprof(CaptureMode),
    /// `perf record`.
    Perf(PerfMode),
}

/// perf's call graphs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PerfMode {
    /// `--call-graph fp`.
    Fp,
    /// `--call-graph dwarf,BYTES`.
    Dwarf(u32),
}

/// Largest chunk that perf supports: the size is a `u16` and must be a multiple of 8.
///
/// # Sources
/// `perf_sample_ustack_size` in the kernel's `kernel/events/core.c`.
const PERF_MAX_STACK_BYTES: u32 = 65_528;

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::NoneAgain => f.write_str("none again"),
            Self::Fpprof(mode) => f.write_str(&values::mode_name(*mode)),
            Self::Perf(PerfMode::Fp) => f.write_str("perf fp"),
            Self::Perf(PerfMode::Dwarf(bytes)) => write!(f, "perf dwarf,{bytes}"),
        }
    }
}

impl Mode {
    /// The value of `--call-graph`.
    pub(crate) fn call_graph(self) -> Option<String> {
        match self {
            Self::None | Self::NoneAgain => None,
            Self::Fpprof(mode) => Some(values::mode_name(mode)),
            Self::Perf(PerfMode::Fp) => Some("fp".to_owned()),
            Self::Perf(PerfMode::Dwarf(bytes)) => Some(format!("dwarf,{bytes}")),
        }
    }

    /// The mode's name in file names.
    pub(crate) fn slug(self) -> String {
        self.to_string().replace([' ', ','], "-")
    }
}

/// The strategy by which a perf mode's stacks are judged.
pub(crate) fn perf_strategy(mode: PerfMode) -> &'static str {
    match mode {
        PerfMode::Fp => "fp",
        PerfMode::Dwarf(_) => "dwarf",
    }
}

/// Valid modes, for error messages; a comma separates modes.
const MODES: &str = "none, none-again, fp, dwarf:BYTES, both:BYTES, cfi:BYTES, perf:fp or perf:dwarf:BYTES";

/// Parses one of [`MODES`].
///
/// # Errors
/// If the text is no mode; the error names the valid ones.
pub(crate) fn parse(text: &str) -> Result<Mode, String> {
    match text {
        "none" => return Ok(Mode::None),
        "none-again" => return Ok(Mode::NoneAgain),
        _ => {}
    }
    let Some(perf) = text.strip_prefix("perf:") else {
        return call_graph(text).map(Mode::Fpprof);
    };
    match call_graph(perf)? {
        CaptureMode::Fp => Ok(Mode::Perf(PerfMode::Fp)),
        CaptureMode::Dwarf { stack_bytes: 65_536 } => Ok(Mode::Perf(PerfMode::Dwarf(PERF_MAX_STACK_BYTES))),
        CaptureMode::Dwarf { stack_bytes } if stack_bytes <= PERF_MAX_STACK_BYTES => {
            Ok(Mode::Perf(PerfMode::Dwarf(stack_bytes)))
        }
        CaptureMode::Dwarf { .. } => Err(format!("perf copies at most {PERF_MAX_STACK_BYTES} bytes of stack")),
        CaptureMode::Cfi { .. } => {
            Err("perf does not walk by call frame information; use perf:fp or perf:dwarf".to_owned())
        }
        CaptureMode::Both { .. } => Err("perf cannot take both in one sample; use perf:fp or perf:dwarf".to_owned()),
    }
}

/// Parses the argument as `record` does, but lists modes in the error for an unknown name.
fn call_graph(text: &str) -> Result<CaptureMode, String> {
    let unknown = |error: String| match error.starts_with("expected") {
        true => format!("unknown mode; expected {MODES}"),
        false => error,
    };
    values::call_graph(text).map_err(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the error for an unknown mode lists the valid ones, and that the error for a bad size names the
    /// problem.
    #[test]
    fn unknown_modes_list_all_modes() {
        for text in ["zz", "perf:zz"] {
            assert_eq!(parse(text), Err(format!("unknown mode; expected {MODES}")));
        }
        assert!(parse("dwarf:1").is_err_and(|error| error.contains("cannot copy 1 bytes")));
    }

    /// Check that every spelling gives its mode, and that a mode's name is a valid value of `--call-graph`.
    #[test]
    fn modes_are_parsed() {
        assert_eq!(parse("none"), Ok(Mode::None));
        assert_eq!(parse("none-again").map(|mode| mode.to_string()), Ok("none again".to_owned()));
        assert_eq!(parse("fp"), Ok(Mode::Fpprof(CaptureMode::Fp)));
        assert_eq!(parse("dwarf:8K"), Ok(Mode::Fpprof(CaptureMode::Dwarf { stack_bytes: 8192 })));
        assert_eq!(parse("perf:fp"), Ok(Mode::Perf(PerfMode::Fp)));
        assert_eq!(parse("perf:dwarf:64K"), Ok(Mode::Perf(PerfMode::Dwarf(65_528))));
        assert_eq!(parse("both:64K").map(|mode| mode.to_string()), Ok("both,65536".to_owned()));
    }

    /// Check that modes perf does not support are refused.
    #[test]
    fn perfs_limits_are_known() {
        assert!(parse("perf:both").is_err());
        assert!(parse("perf:dwarf:128K").is_err());
        assert!(parse("perf:").is_err());
        assert!(parse("").is_err());
    }
}

//! Event requests.

use super::counters::{COUNTERS, Class, Counter, cache_config};
use fpprof_recording::model::Sampling;
use std::path::PathBuf;
use std::str::FromStr;

/// The event that fires samples, as requested.
///
/// ```
/// use fpprof_collector::EventSpec;
///
/// assert_eq!("faults".parse::<EventSpec>()?.to_string(), "page-faults");
/// assert!("sched:sched_switch".parse::<EventSpec>()?.counts_occurrences());
/// assert!("uprobe:/bin/bash:readline+4".parse::<EventSpec>().is_ok());
/// # Ok::<(), fpprof_collector::BadEvent>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventSpec(pub(super) Named);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Named {
    /// Cycles if the processor counts them, else a timer.
    #[default]
    Usual,
    Counter(Counter),
    /// A cache event, by its name and config.
    Cache(String, u64),
    /// A raw event of this processor, by its number.
    Raw(u64),
    Tracepoint {
        group: String,
        name: String,
    },
    Probe {
        file: PathBuf,
        symbol: Option<String>,
        offset: u64,
    },
}

/// An invalid event name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadEvent {
    /// A modifier, as in `cycles:u`.
    #[error("event modifiers are not supported: `{0}`; pass the event without its modifier")]
    Modifier(String),
    /// A probe without a file or a place in it.
    #[error("`{0}` is not a probe; expected uprobe:/PATH:SYMBOL, uprobe:/PATH:SYMBOL+OFFSET or uprobe:/PATH:0xADDRESS")]
    Probe(String),
    /// More than one event.
    #[error("cannot record several events at once: `{0}`; record them one after the other")]
    Several(String),
    /// An unknown event.
    #[error(
        "unknown event `{name}`; expected {counters}, a cache event such as L1-dcache-load-misses, a raw hardware \
         event (rHEX), a tracepoint (GROUP:NAME), or a probe (uprobe:/PATH:SYMBOL)"
    )]
    Unknown {
        /// The requested name.
        name: String,
        /// Known names.
        counters: String,
    },
}

impl EventSpec {
    /// The default sampling of this event: 999 times a second for timers and hardware counters, each occurrence for all
    /// others.
    #[must_use]
    pub fn usual_sampling(&self) -> Sampling {
        if self.counts_occurrences() { Sampling::Period(1) } else { Sampling::FrequencyHz(999) }
    }

    /// Whether it is a uprobe.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        matches!(self.0, Named::Probe { .. })
    }

    /// Whether it counts single occurrences, rather than time or hardware events.
    #[must_use]
    pub fn counts_occurrences(&self) -> bool {
        match &self.0 {
            Named::Usual | Named::Cache(..) | Named::Raw(_) => false,
            Named::Counter(counter) => matches!(counter.class, Class::Occurrences | Class::KernelOccurrences),
            Named::Tracepoint { .. } | Named::Probe { .. } => true,
        }
    }
}

impl FromStr for EventSpec {
    type Err = BadEvent;

    fn from_str(text: &str) -> Result<Self, BadEvent> {
        let unknown = || BadEvent::Unknown {
            name: text.to_owned(),
            counters: COUNTERS.iter().map(|counter| counter.name).collect::<Vec<_>>().join(", "),
        };
        if let Some(place) = text.strip_prefix("uprobe:") {
            return probe(place).map(Self).ok_or_else(|| BadEvent::Probe(text.to_owned()));
        }
        if let Some(named) = counter(text) {
            return Ok(Self(named));
        }
        if text.contains(',') {
            return Err(BadEvent::Several(text.to_owned()));
        }
        let Some((group, name)) = text.split_once(':') else { return Err(unknown()) };
        if counter(group).is_some() {
            return Err(BadEvent::Modifier(text.to_owned()));
        }
        // Names become part of a path.
        let is_name = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        };
        if !is_name(group) || !is_name(name) {
            return Err(unknown());
        }
        Ok(Self(Named::Tracepoint { group: group.to_owned(), name: name.to_owned() }))
    }
}

fn counter(name: &str) -> Option<Named> {
    let raw = || name.strip_prefix('r').and_then(|digits| u64::from_str_radix(digits, 16).ok()).map(Named::Raw);
    let cache = || cache_config(name).map(|config| Named::Cache(name.to_owned(), config));
    Counter::named(name).map(|&counter| Named::Counter(counter)).or_else(cache).or_else(raw)
}

/// Parses `/PATH:SYMBOL`, `/PATH:SYMBOL+OFFSET` or `/PATH:ADDRESS`; the path may contain colons.
fn probe(text: &str) -> Option<Named> {
    let (file, place) = text.rsplit_once(':').filter(|(file, place)| file.contains('/') && !place.is_empty())?;
    let file = PathBuf::from(file);
    if let Some(offset) = number(place) {
        return Some(Named::Probe { file, symbol: None, offset });
    }
    let (symbol, offset) = match place.rsplit_once('+') {
        Some((symbol, offset)) => (symbol, number(offset)?),
        None => (place, 0),
    };
    (!symbol.is_empty()).then(|| Named::Probe { file, symbol: Some(symbol.to_owned()), offset })
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        // Rejects a sign, which `parse` would accept.
        None if text.starts_with(|first: char| first.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// The name in perf, or as the user types it.
impl std::fmt::Display for EventSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Named::Usual => f.write_str("cycles or cpu-clock"),
            Named::Counter(counter) => f.write_str(counter.name),
            Named::Cache(name, _) => f.write_str(name),
            Named::Raw(config) => write!(f, "r{config:x}"),
            Named::Tracepoint { group, name } => write!(f, "{group}:{name}"),
            Named::Probe { file, symbol: None, offset } => write!(f, "uprobe:{}:{offset:#x}", file.display()),
            Named::Probe { file, symbol: Some(symbol), offset: 0 } => write!(f, "uprobe:{}:{symbol}", file.display()),
            Named::Probe { file, symbol: Some(symbol), offset } => {
                write!(f, "uprobe:{}:{symbol}+{offset}", file.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Named, BadEvent> {
        text.parse::<EventSpec>().map(|spec| spec.0)
    }

    /// Check that events of every kind are recognised by their spelling, and are written back as perf or bpftrace
    /// would.
    #[test]
    fn events_are_known_by_their_spelling() {
        let probe = |file: &str, symbol: Option<&str>, offset| {
            Ok(Named::Probe { file: file.into(), symbol: symbol.map(str::to_owned), offset })
        };
        assert_eq!(parsed("r1A8"), Ok(Named::Raw(0x1a8)));
        assert_eq!(parsed("ref-cycles").map(|named| EventSpec(named).to_string()), Ok("ref-cycles".to_owned()));
        assert_eq!(
            parsed("syscalls:sys_enter_openat"),
            Ok(Named::Tracepoint { group: "syscalls".to_owned(), name: "sys_enter_openat".to_owned() })
        );
        assert_eq!(parsed("uprobe:/lib/libc.so.6:malloc"), probe("/lib/libc.so.6", Some("malloc"), 0));
        assert_eq!(parsed("uprobe:./a:b:main+0x10"), probe("./a:b", Some("main"), 16));
        assert_eq!(parsed("uprobe:/bin/true:0x1000"), probe("/bin/true", None, 0x1000));
        for text in ["cs", "uprobe:/bin/true:main+4", "sched:sched_switch", "rff", "LLC-loads"] {
            let spec: EventSpec = text.parse().unwrap();
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
        }
    }

    /// Check that invalid events are refused with a list of valid ones, and that no name leads out of the tracepoint
    /// directory.
    #[test]
    fn nonsense_is_refused() {
        assert_eq!(parsed("cycles:u"), Err(BadEvent::Modifier("cycles:u".to_owned())));
        assert_eq!(parsed("cycles,instructions"), Err(BadEvent::Several("cycles,instructions".to_owned())));
        for text in ["uprobe:", "uprobe:main", "uprobe:/bin/true", "uprobe:/bin/true:", "uprobe:/bin/true:+4"] {
            assert_eq!(parsed(text), Err(BadEvent::Probe(text.to_owned())), "{text}");
        }
        for text in ["", ":", "sched:", "..:..", "a/b:c", "nonsense", "r", "rxyz"] {
            assert!(matches!(parsed(text), Err(BadEvent::Unknown { .. })), "{text}");
        }
    }

    /// Check that timers have a default rate, and that every occurrence is sampled by default.
    #[test]
    fn occurrences_are_all_sampled() {
        let usual = |text: &str| text.parse::<EventSpec>().map(|spec| spec.usual_sampling());
        for text in ["cpu-clock", "task-clock", "cycles", "LLC-loads", "r1"] {
            assert_eq!(usual(text), Ok(Sampling::FrequencyHz(999)), "{text}");
        }
        for text in ["faults", "cs", "sched:sched_switch", "uprobe:/bin/true:main"] {
            assert_eq!(usual(text), Ok(Sampling::Period(1)), "{text}");
        }
    }
}

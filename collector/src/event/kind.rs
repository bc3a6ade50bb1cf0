//! An event as the kernel takes it.

use super::counters::{Class, Counter};
use super::spec::{EventSpec, Named};
use super::symbol::file_offset;
use super::tracefs::tracepoint_id;
use crate::error::Error;
use crate::parse::FileParser;
use fpprof_recording::model::{Measure, Sampling};
use perf_event_open_sys::bindings;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The shortest time between ticks of a timer: the kernel takes a shorter one for this (`perf_swevent_start_hrtimer` in
/// `kernel/events/core.c`), and each tick would count as less time than has passed.
const LEAST_PERIOD_NS: u64 = 10_000;
/// The sysfs file with the PMU type of uprobes.
const PROBE_TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";

/// An event that fires samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    name: String,
    /// `type` of a `perf_event_attr`.
    pub(crate) type_: u32,
    /// `config` of a `perf_event_attr`.
    pub(crate) config: u64,
    /// File and offset of a probe.
    pub(crate) probe: Option<(CString, u64)>,
    opened: Opened,
    class: Class,
}

/// How the eBPF collector opens an event, and which program samples it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opened {
    /// One perf event on each CPU.
    OnEachCpu,
    /// One for all CPUs: its program runs wherever the tracepoint is hit.
    Tracepoint,
    /// Likewise, for a uprobe.
    Probe,
}

impl Event {
    /// The processor's cycle counter.
    pub(crate) fn cycles() -> Self {
        Self::counter("cycles")
    }

    /// The CPU clock: a timer on each CPU.
    pub(crate) fn cpu_clock() -> Self {
        Self::counter("cpu-clock")
    }

    fn counter(name: &str) -> Self {
        let (type_, config) = Counter::named(name).map_or((bindings::PERF_TYPE_SOFTWARE, 0), Counter::attributes);
        let class = Counter::named(name).map_or(Class::Timer, |counter| counter.class);
        Self { name: name.to_owned(), type_, config, probe: None, opened: Opened::OnEachCpu, class }
    }

    /// Resolves the request; `None` for the default event, which has to be tried.
    pub(crate) fn find(spec: &EventSpec, parser: &dyn FileParser) -> Result<Option<Self>, Error> {
        let of =
            |type_, config, opened, class| Self { name: spec.to_string(), type_, config, probe: None, opened, class };
        let each = Opened::OnEachCpu;
        Ok(Some(match &spec.0 {
            Named::Usual => return Ok(None),
            Named::Counter(counter) => Self::counter(counter.name),
            Named::Cache(_, config) => of(bindings::PERF_TYPE_HW_CACHE, *config, each, Class::Hardware),
            Named::Raw(config) => of(bindings::PERF_TYPE_RAW, *config, each, Class::Hardware),
            Named::Tracepoint { group, name } => {
                let id = tracepoint_id(group, name)?;
                of(bindings::PERF_TYPE_TRACEPOINT, id, Opened::Tracepoint, Class::KernelOccurrences)
            }
            Named::Probe { file, symbol, offset } => {
                let at = file_offset(parser, file, symbol.as_deref(), *offset)?;
                let unreadable = |source| Error::ProbeFile { file: file.clone(), source };
                // The kernel resolves the path from the caller's root.
                let path = std::fs::canonicalize(file).map_err(unreadable)?;
                let path = CString::new(path.as_os_str().as_bytes()).map_err(|error| unreadable(error.into()))?;
                Self { probe: Some((path, at)), ..of(probe_type()?, 0, Opened::Probe, Class::Occurrences) }
            }
        }))
    }

    /// The name in perf, or as the user types it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How the eBPF collector opens it.
    pub(crate) fn opened(&self) -> Opened {
        self.opened
    }

    /// Whether it fires by time, so that time and rate give the expected number of firings.
    pub(crate) fn is_timer(&self) -> bool {
        self.class == Class::Timer
    }

    /// Whether the kernel itself counts every occurrence, so that its count is the expected number of firings.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self.class, Class::Occurrences | Class::KernelOccurrences) && self.opened == Opened::OnEachCpu
    }

    /// Whether it is a hardware counter of the processor.
    pub(crate) fn is_hardware(&self) -> bool {
        self.class == Class::Hardware
    }

    /// Whether it happens in the kernel only.
    pub(crate) fn is_of_kernel(&self) -> bool {
        self.class == Class::KernelOccurrences
    }

    /// What shares of its samples are measured in. To meet a rate, the kernel varies the weight of samples; for time
    /// and hardware events, samples still count equally.
    pub(crate) fn measure(&self, sampling: Sampling) -> Measure {
        let counts = matches!(self.class, Class::Occurrences | Class::KernelOccurrences);
        match sampling {
            Sampling::FrequencyHz(_) if counts => Measure::Occurrences,
            _ => Measure::Samples,
        }
    }

    /// Fails if the event cannot be sampled in this way.
    pub(crate) fn check_sampling(&self, sampling: Sampling) -> Result<(), Error> {
        match (sampling, self.opened) {
            (Sampling::FrequencyHz(_), Opened::Tracepoint | Opened::Probe) => {
                Err(Error::RateOfOccurrences { event: self.name.clone() })
            }
            (Sampling::Period(ns), _) if self.is_timer() && ns < LEAST_PERIOD_NS => {
                Err(Error::PeriodTooShort { event: self.name.clone(), least_ns: LEAST_PERIOD_NS })
            }
            _ => Ok(()),
        }
    }

    /// Translates the kernel's refusal to open it.
    pub(crate) fn refused(&self, cpu: u32, source: io::Error) -> Error {
        let is_refused = matches!(source.raw_os_error(), Some(libc::EACCES | libc::EPERM));
        let no_such_counter = matches!(source.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV));
        match self.class {
            Class::Hardware if no_such_counter => Error::NoHardwareEvent { event: self.name.clone() },
            _ if is_refused && self.opened == Opened::Probe => Error::ProbeRefused { event: self.name.clone(), source },
            _ => Error::PerfEvent { event: self.name.clone(), cpu, source },
        }
    }
}

fn probe_type() -> Result<u32, Error> {
    let text = std::fs::read_to_string(PROBE_TYPE).ok();
    let number = text.and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| Error::MissingProbes { kernel: crate::host::kernel_release() })
}

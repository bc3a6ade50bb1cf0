//! Which collector records.

use crate::error::Error;
use crate::plan::check_machine;
use crate::request::{CollectorWish, Outcome, Progress, Request};
use crate::sys::StopFlag;
use crate::{perf_event, session};
use fpprof_recording::model::Collector;
use std::io::Write;

/// Which collector will record, and why not the eBPF one where that was not ruled out by the wish.
#[must_use]
pub fn choose(wish: CollectorWish) -> (Collector, Option<Error>) {
    match wish {
        CollectorWish::Ebpf => (Collector::Ebpf, None),
        CollectorWish::PerfEvent => (Collector::PerfEvent, None),
        CollectorWish::Auto => match check_machine() {
            Ok(()) => (Collector::Ebpf, None),
            Err(reason) => (Collector::PerfEvent, Some(reason)),
        },
    }
}

/// Records what `request` asks for into `sink` until the target ends, the time is over, or `stop` is set.
///
/// Give it the file itself: whole blocks are written. `progress` is called some times a second. Nothing of a command runs
/// before everything that can be known to fail has been tried. A caller that leaves the choice of the collector to us
/// should say what [`choose`] says.
///
/// A sink that fails does not end the recording: it is tried again with each block, and what it did not take is counted
/// as dropped.
///
/// # Errors
/// See [`Error`]; in all cases the target has not been touched, but for a command that could not be executed.
pub fn record<W: Write>(
    request: &Request,
    sink: W,
    stop: &StopFlag,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Outcome, Error> {
    match choose(request.collector).0 {
        Collector::PerfEvent => perf_event::record(request, sink, stop, progress),
        Collector::Ebpf | Collector::Imported => session::record_with_bpf(request, sink, stop, progress),
    }
}

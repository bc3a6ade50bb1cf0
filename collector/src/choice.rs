//! Which collector records.

use crate::error::Error;
use crate::perf_event;
use crate::request::{CollectorKind, Fallback, MAX_PERF_EVENT_STACK_BYTES, Outcome, Request, Update};
use crate::session;
use crate::sys::{ObjectStorage, StopFlag};
use fpprof_recording::model::CaptureMode;
use std::io::Write;

/// Records what `request` asks for into `sink` until the target ends, the time is over, or `stop` is set.
///
/// Give it the file itself: whole blocks are written. `update` is called some times a second, and once at the start if the
/// choice of the collector is ours ([`CollectorKind::Auto`]) and eBPF is refused; tell the user then. Nothing of a command
/// runs before everything that can be known to fail has been tried.
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
    update: &mut dyn FnMut(Update<'_>),
) -> Result<Outcome, Error> {
    if request.collector == CollectorKind::PerfEvent {
        return perf_event::record(request, sink, stop, update);
    }
    let mut storage = ObjectStorage::uninit();
    match session::load(request, &mut storage) {
        Ok(loaded) => loaded.record(sink, stop, update),
        Err(reason) if request.collector == CollectorKind::Auto && reason.is_about_ebpf() => {
            let (request, clamped_from) = without_ebpf(request);
            if let Some(action) = perf_event::refused_target(&request) {
                return Err(Error::NeedsEbpf { action, reason: Box::new(reason) });
            }
            update(Update::Fallback(&Fallback { reason, clamped_from }));
            perf_event::record(&request, sink, stop, update)
        }
        Err(error) => Err(error),
    }
}

/// The request as the other collector can do it, and the bytes of stack that were asked for if they were too many.
fn without_ebpf(request: &Request) -> (Request, Option<u32>) {
    let clamp = |stack_bytes: u32| stack_bytes.min(MAX_PERF_EVENT_STACK_BYTES);
    let (mode, asked) = match request.mode {
        // Which has no smaller form.
        CaptureMode::Fp | CaptureMode::Cfi { .. } => (request.mode, 0),
        CaptureMode::Dwarf { stack_bytes } => (CaptureMode::Dwarf { stack_bytes: clamp(stack_bytes) }, stack_bytes),
        CaptureMode::Both { stack_bytes } => (CaptureMode::Both { stack_bytes: clamp(stack_bytes) }, stack_bytes),
    };
    let clamped_from = (asked > MAX_PERF_EVENT_STACK_BYTES).then_some(asked);
    (Request { mode, collector: CollectorKind::PerfEvent, ..request.clone() }, clamped_from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Target;

    /// Check that only more bytes than the kernel copies are clamped, and that it is said from what.
    #[test]
    fn bytes_are_clamped() {
        let clamped = |mode| {
            let (request, from) = without_ebpf(&Request { mode, ..Request::new(Target::System) });
            (request.mode, from)
        };
        let dwarf = |stack_bytes| CaptureMode::Dwarf { stack_bytes };
        assert_eq!(clamped(dwarf(65_536)), (dwarf(65_528), Some(65_536)));
        assert_eq!(clamped(dwarf(65_528)), (dwarf(65_528), None));
        assert_eq!(clamped(CaptureMode::Fp), (CaptureMode::Fp, None));
    }
}

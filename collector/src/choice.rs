//! Choice of the collector.

use crate::error::Error;
use crate::host::kernel_release;
use crate::perf_event;
use crate::plan::missing_for_walk;
use crate::request::{CollectorKind, Fallback, MAX_PERF_EVENT_STACK_BYTES, ModeChoice, Outcome, Request, Update};
use crate::session;
use crate::sys::{ObjectStorage, StopFlag};
use fpprof_recording::model::CaptureMode;
use std::io::Write;

/// Records what `request` asks for into `sink` until the target ends, the time is over, or `stop` is set.
///
/// Pass the file itself as the sink: whole blocks are written. `update` is called several times a second, and also at
/// the start if the collector made a choice: perf events in place of a refused eBPF ([`CollectorKind::Auto`]), or the
/// kind of user stack capture ([`Request::else_mode`]); tell the user then. A command is only started once everything
/// that can be known to fail has been tried.
///
/// A failing sink does not end the recording: it is tried again with each block, and what it did not take is counted as
/// dropped.
///
/// # Errors
/// See [`Error`]; in all cases the target has not been touched, except by a command that could not be executed.
pub fn record(
    request: &Request,
    mut sink: impl Write,
    stop: &StopFlag,
    update: &mut dyn FnMut(Update<'_>),
) -> Result<Outcome, Error> {
    record_to(request, &mut sink, stop, update)
}

/// [`record`], compiled once.
fn record_to(
    request: &Request,
    sink: &mut dyn Write,
    stop: &StopFlag,
    update: &mut dyn FnMut(Update<'_>),
) -> Result<Outcome, Error> {
    let (request, choice) = with_mode(request);
    let mut storage = ObjectStorage::uninit();
    match choose(&request, choice.as_ref(), &mut storage, update)? {
        Chosen::Ebpf(loaded) => loaded.record(sink, stop, update),
        Chosen::PerfEvents(request) => perf_event::record(&request, sink, stop, update),
    }
}

/// Makes the choices of [`record`] and records nothing: loads, attaches and unloads the BPF programs, or opens and closes
/// perf events if the target is [`Target::System`](crate::Target::System). Returns the collector and the mode; `update` is
/// called as by [`record`] at the start.
///
/// # Errors
/// Those of [`record`] before it samples.
pub fn rehearse(request: &Request, update: &mut dyn FnMut(Update<'_>)) -> Result<(CollectorKind, CaptureMode), Error> {
    let (request, choice) = with_mode(request);
    let mut storage = ObjectStorage::uninit();
    Ok(match choose(&request, choice.as_ref(), &mut storage, update)? {
        Chosen::Ebpf(_) => (CollectorKind::Ebpf, request.mode),
        Chosen::PerfEvents(request) => {
            perf_event::rehearse(&request)?;
            (CollectorKind::PerfEvent, request.mode)
        }
    })
}

/// What takes the samples.
enum Chosen<'a> {
    Ebpf(Box<session::Loaded<'a>>),
    PerfEvents(Box<Request>),
}

fn with_mode(request: &Request) -> (Request, Option<ModeChoice>) {
    let choice = choose_mode(request);
    let mode = choice.as_ref().map_or(request.mode, |choice| choice.mode);
    (Request { mode, ..request.clone() }, choice)
}

fn choose<'a>(
    request: &'a Request,
    choice: Option<&ModeChoice>,
    storage: &'a mut ObjectStorage,
    update: &mut dyn FnMut(Update<'_>),
) -> Result<Chosen<'a>, Error> {
    if request.collector == CollectorKind::PerfEvent {
        choice.into_iter().for_each(|choice| update(Update::Mode(choice)));
        return Ok(Chosen::PerfEvents(Box::new(request.clone())));
    }
    match session::load(request, storage) {
        Ok(loaded) => {
            choice.into_iter().for_each(|choice| update(Update::Mode(choice)));
            Ok(Chosen::Ebpf(Box::new(loaded)))
        }
        Err(reason) if request.collector == CollectorKind::Auto && reason.is_about_ebpf() => {
            let (request, clamped_from) = without_ebpf(request);
            if let Some(action) = perf_event::refused_target(&request) {
                return Err(Error::NeedsEbpf { action, reason: Box::new(reason) });
            }
            update(Update::Fallback(&Fallback { reason, clamped_from }));
            choose_mode(&request).iter().for_each(|choice| update(Update::Mode(choice)));
            Ok(Chosen::PerfEvents(Box::new(request)))
        }
        Err(error) => Err(error),
    }
}

/// The user stack capture mode and the reason for it, if the collector may choose.
fn choose_mode(request: &Request) -> Option<ModeChoice> {
    let else_mode = request.else_mode?;
    let why_not = if request.collector == CollectorKind::PerfEvent {
        Some("perf events cannot walk stacks in the kernel".to_owned())
    } else {
        missing_for_walk(request.mode)
            .map(|needed| format!("walking stacks in the kernel needs {needed} (this is {})", kernel_release()))
    };
    Some(match why_not {
        None => {
            ModeChoice { mode: request.mode, why: "this kernel can walk stacks by call frame information".to_owned() }
        }
        Some(why) if request.collector == CollectorKind::PerfEvent => ModeChoice { mode: clamped(else_mode).0, why },
        Some(why) => ModeChoice { mode: else_mode, why },
    })
}

/// The request as the perf event collector can serve it, and the requested stack bytes if they were too many.
fn without_ebpf(request: &Request) -> (Request, Option<u32>) {
    // Perf events cannot walk by call frame information: use the other mode if there is one.
    let is_walk = matches!(request.mode, CaptureMode::Cfi { .. });
    let (mode, clamped_from) = clamped(request.else_mode.filter(|_| is_walk).unwrap_or(request.mode));
    (Request { mode, collector: CollectorKind::PerfEvent, ..request.clone() }, clamped_from)
}

/// Limits the stack bytes of a mode to what perf events can copy; also returns the original number if it was larger.
fn clamped(mode: CaptureMode) -> (CaptureMode, Option<u32>) {
    let clamp = |stack_bytes: u32| stack_bytes.min(MAX_PERF_EVENT_STACK_BYTES);
    let (mode, asked) = match mode {
        CaptureMode::Fp | CaptureMode::Cfi { .. } => (mode, 0),
        CaptureMode::Dwarf { stack_bytes } => (CaptureMode::Dwarf { stack_bytes: clamp(stack_bytes) }, stack_bytes),
        CaptureMode::Both { stack_bytes, every } => {
            (CaptureMode::Both { stack_bytes: clamp(stack_bytes), every }, stack_bytes)
        }
    };
    (mode, (asked > MAX_PERF_EVENT_STACK_BYTES).then_some(asked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Target;

    /// Check that only sizes above the kernel's limit are clamped, and that the original size is returned.
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

    /// Check that the capture mode is chosen only if there is a choice, and that perf events never get a walk.
    #[test]
    fn walks_are_replaced_where_they_are_impossible() {
        let walk = CaptureMode::Cfi { stack_bytes: 65_536, verify: 100, frame_pointers: false };
        let asked = Request { mode: walk, collector: CollectorKind::PerfEvent, ..Request::new(Target::System) };
        assert_eq!(choose_mode(&asked), None);
        assert_eq!(without_ebpf(&asked).0.mode, walk);
        let either = Request { else_mode: Some(CaptureMode::Both { stack_bytes: 65_536, every: 1 }), ..asked };
        let both = CaptureMode::Both { stack_bytes: 65_528, every: 1 };
        assert_eq!(choose_mode(&either).map(|choice| choice.mode), Some(both));
        assert_eq!((without_ebpf(&either).0.mode, without_ebpf(&either).1), (both, Some(65_536)));
    }
}

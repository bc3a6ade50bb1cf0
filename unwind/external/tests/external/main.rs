//! The libraries on programs whose callers are known.
#![cfg(any(feature = "libdw", feature = "libunwind"))]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod capture;
mod hostile;
mod known_chain;
mod no_information;

use fpprof_external::{ExternalUnwinder, Request};
use fpprof_unwind::{Stack, StopReason, TruncatedReason};

/// Every library this build includes.
fn unwinders() -> Vec<Box<dyn ExternalUnwinder>> {
    vec![
        #[cfg(feature = "libdw")]
        Box::new(fpprof_external::Libdw::new()),
        #[cfg(feature = "libunwind")]
        Box::new(fpprof_external::Libunwind::new()),
    ]
}

fn unwind(unwinder: &mut dyn ExternalUnwinder, request: &Request<'_>) -> Stack {
    let mut stack = Stack { frames: Vec::new(), stop: StopReason::Truncated(TruncatedReason::Budget) };
    unwinder.unwind(request, &mut stack).unwrap();
    stack
}

fn addresses(stack: &Stack) -> Vec<u64> {
    stack.frames.iter().map(|frame| frame.address).collect()
}

//! The sampling events of all CPUs.

use crate::error::Error;
use crate::sideband::SidebandSource;
use crate::sys::{EventKind, PerfEvent};
use fpprof_recording::model::Sampling;
use std::os::fd::BorrowedFd;

/// One event for each CPU, each running the same program.
#[derive(Debug)]
pub(super) struct Samplers {
    events: Vec<(u32, PerfEvent)>,
    kind: EventKind,
    sampling: Sampling,
}

impl Samplers {
    /// Opens the events, disabled. A CPU that went offline meanwhile has none.
    pub(super) fn open(
        cpus: &[u32],
        kind: EventKind,
        sampling: Sampling,
        program: BorrowedFd<'_>,
        sideband: &SidebandSource,
    ) -> Result<Self, Error> {
        let mut events = Vec::with_capacity(cpus.len());
        for &cpu in cpus {
            let failed = |source| Error::PerfEvent { event: kind.name(), cpu, source };
            match PerfEvent::sampling(cpu, kind, sampling) {
                Ok(event) => {
                    event.set_bpf(program).map_err(failed)?;
                    sideband.attach_sampler(cpu, &event)?;
                    events.push((cpu, event));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) && events.len() + 1 < cpus.len() => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(Self { events, kind, sampling })
    }

    /// Opens the event of a CPU that has come online, in place of an earlier one, and starts it.
    pub(super) fn reopen(&mut self, cpu: u32, program: BorrowedFd<'_>, sideband: &SidebandSource) -> Result<(), Error> {
        let failed = |source| Error::PerfEvent { event: self.kind.name(), cpu, source };
        let event = PerfEvent::sampling(cpu, self.kind, self.sampling).map_err(failed)?;
        event.set_bpf(program).map_err(failed)?;
        sideband.attach_sampler(cpu, &event)?;
        self.events.retain(|&(other, _)| other != cpu);
        event.enable().map_err(Error::system("starting to sample"))?;
        self.events.push((cpu, event));
        Ok(())
    }

    /// Starts sampling on all CPUs.
    pub(super) fn enable(&self) -> Result<(), Error> {
        self.events.iter().try_for_each(|(_, event)| event.enable()).map_err(Error::system("starting to sample"))
    }

    /// Stops sampling; when this returns, no program runs any more.
    pub(super) fn disable(&self) -> Result<(), Error> {
        self.events.iter().try_for_each(|(_, event)| event.disable()).map_err(Error::system("stopping to sample"))
    }
}

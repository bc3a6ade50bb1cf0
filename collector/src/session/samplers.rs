//! The sampling events: one for each CPU, or one for all of them.

use crate::error::Error;
use crate::event::{Event, Opened};
use crate::sideband::SidebandSource;
use crate::sys::{Count, PerfEvent};
use fpprof_recording::model::Sampling;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

const ATTACHING: &str = "attaching the sampling program to its event";

/// Sampling events that all run the same program.
#[derive(Debug)]
pub(super) struct Samplers {
    events: Vec<(u32, PerfEvent)>,
    event: Event,
    sampling: Sampling,
}

impl Samplers {
    /// Opens the events; samples nothing yet. A CPU that went offline meanwhile has none.
    pub(super) fn open(
        cpus: &[u32],
        event: &Event,
        sampling: Sampling,
        program: BorrowedFd<'_>,
        sideband: &SidebandSource,
    ) -> Result<Self, Error> {
        let mut samplers = Self { events: Vec::with_capacity(cpus.len()), event: event.clone(), sampling };
        let is_one_for_all = event.opened() != Opened::OnEachCpu;
        let cpus = if is_one_for_all { cpus.get(..1).unwrap_or_default() } else { cpus };
        for &cpu in cpus {
            match PerfEvent::sampling(cpu, event, sampling) {
                Ok(opened) => {
                    if !is_one_for_all {
                        opened.set_bpf(program).map_err(Error::bpf_setup(ATTACHING))?;
                        sideband.attach_sampler(cpu, &opened)?;
                    }
                    samplers.events.push((cpu, opened));
                }
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) && samplers.events.len() + 1 < cpus.len() => {}
                Err(error) => return Err(event.refused(cpu, error)),
            }
        }
        Ok(samplers)
    }

    /// Opens and starts the event of a CPU that has come online, in place of an earlier one. An event for all CPUs
    /// continues by itself.
    pub(super) fn reopen(&mut self, cpu: u32, program: BorrowedFd<'_>, sideband: &SidebandSource) -> Result<(), Error> {
        if self.event.opened() != Opened::OnEachCpu {
            return Ok(());
        }
        let failed = |source| self.event.refused(cpu, source);
        let event = PerfEvent::sampling(cpu, &self.event, self.sampling).map_err(failed)?;
        event.set_bpf(program).map_err(failed)?;
        sideband.attach_sampler(cpu, &event)?;
        self.events.retain(|&(other, _)| other != cpu);
        event.enable().map_err(Error::system("starting to sample"))?;
        self.events.push((cpu, event));
        Ok(())
    }

    /// Starts sampling on all CPUs. An event for all CPUs runs its program from the moment it is attached.
    pub(super) fn enable(&self, program: BorrowedFd<'_>) -> Result<(), Error> {
        if self.event.opened() != Opened::OnEachCpu {
            let set = |(cpu, event): &(u32, PerfEvent)| {
                event.set_bpf(program).map_err(|source| self.event.refused(*cpu, source))
            };
            self.events.iter().try_for_each(set)?;
        }
        self.events.iter().try_for_each(|(_, event)| event.enable()).map_err(Error::system("starting to sample"))
    }

    /// Stops sampling; when this returns, no program runs any more. Returns the kernel's count on each CPU, if there is
    /// an event for each.
    pub(super) fn disable(&mut self) -> Result<BTreeMap<u32, Count>, Error> {
        self.events.iter().try_for_each(|(_, event)| event.disable()).map_err(Error::system("stopping to sample"))?;
        if self.event.opened() != Opened::OnEachCpu {
            // Even when disabled, it runs its program; closing it waits for running ones.
            self.events.clear();
        }
        let counted = self.events.iter().filter(|_| !self.event.is_timer());
        Ok(counted.filter_map(|(cpu, event)| Some((*cpu, event.count()?))).collect())
    }
}

//! The programs that sample waits.

use super::Programs;
use super::programs::WaitSpec;
use crate::sys::wait_for_programs;
use libbpf_rs::{Iter, ProgramMut};
use std::io::Read;

impl<'a> Programs<'a> {
    /// The programs that sample waits, if any: the last one runs at each context switch. They are attached in this
    /// order, since the end of every recorded wait must be seen.
    pub(super) fn waiters(&self) -> Vec<&ProgramMut<'a>> {
        let programs = &self.skeleton.progs;
        match self.waits {
            Some(WaitSpec { stacks_at_block: true, .. }) => vec![&programs.switch_waits],
            Some(_) => vec![&programs.take_wait, &programs.note_wait],
            None => Vec::new(),
        }
    }

    /// Starts sampling waits, if requested. Returns the number of threads that are already blocked and for which there
    /// was no room.
    pub(crate) fn start_waits(&self) -> libbpf_rs::Result<u64> {
        if self.waits.is_none() {
            return Ok(0);
        }
        let links = self.waiters().into_iter().map(|program| program.attach_trace());
        *self.wait_links.borrow_mut() = links.collect::<Result<_, _>>()?;
        let refused = all_of(&self.skeleton.progs.begin_waits)?;
        Ok(refused.len() as u64 / 4)
    }

    /// Stops sampling waits; when this returns, none of those programs runs any more.
    pub(crate) fn stop_waits(&self) {
        let links = std::mem::take(&mut *self.wait_links.borrow_mut());
        if !links.is_empty() {
            drop(links);
            wait_for_programs();
        }
    }

    /// The blocked threads, each as a `struct open_wait` with its kernel chain.
    pub(crate) fn open_waits(&self) -> libbpf_rs::Result<Vec<u8>> {
        if self.waits.is_some() { all_of(&self.skeleton.progs.end_waits) } else { Ok(Vec::new()) }
    }
}

/// The output of an iterator program over all threads.
fn all_of(program: &ProgramMut<'_>) -> libbpf_rs::Result<Vec<u8>> {
    let link = program.attach()?;
    let mut said = Vec::new();
    Iter::new(&link)?.read_to_end(&mut said)?;
    Ok(said)
}

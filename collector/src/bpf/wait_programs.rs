//! The programs that sample waits.

use super::Programs;
use super::programs::WaitSpec;
use crate::sys::wait_for_programs;
use libbpf_rs::{Iter, ProgramMut};
use std::io::Read;

impl<'a> Programs<'a> {
    /// Those that sample waits, if any: the last runs for each switch of threads. They are attached in this order, since what
    /// is noted must be seen to end.
    pub(super) fn waiters(&self) -> Vec<&ProgramMut<'a>> {
        let programs = &self.skeleton.progs;
        match self.waits {
            Some(WaitSpec { stacks_at_block: true, .. }) => vec![&programs.switch_waits],
            Some(_) => vec![&programs.take_wait, &programs.note_wait],
            None => Vec::new(),
        }
    }

    /// Starts sampling waits, if they were asked for. Gives the number of threads that are blocked already and for which
    /// there was no room.
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

    /// The threads that are blocked, each as a `struct open_wait` with its kernel chain.
    pub(crate) fn open_waits(&self) -> libbpf_rs::Result<Vec<u8>> {
        if self.waits.is_some() { all_of(&self.skeleton.progs.end_waits) } else { Ok(Vec::new()) }
    }
}

/// What a program says of all threads.
fn all_of(program: &ProgramMut<'_>) -> libbpf_rs::Result<Vec<u8>> {
    let link = program.attach()?;
    let mut said = Vec::new();
    Iter::new(&link)?.read_to_end(&mut said)?;
    Ok(said)
}

//! Threads that encode and pack blocks of samples, if a single thread cannot keep up.
//!
//! ```text
//!               ┌─ thread % n ─▶ worker: scrub, encode, pack ─┐
//!   samples ────┤                                             ├──▶ blocks, in order of completion ──▶ sink
//!               └──────────────▶ worker: ...                 ─┘
//! ```
//!
//! The samples of a thread go to one worker, since they are stored as differences from the previous one. Blocks are
//! independent, so their order does not matter.

use crate::block::BLOCK_BYTES;
use crate::codec::SampleEncoder;
use crate::error::Error;
use crate::mapping_ranges::MappingRanges;
use crate::model::{Machine, Sample};
use crate::pack::Packer;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

/// The most samples queued for a worker: a few MiB of the largest usual ones.
const MAX_WAITING: usize = 64;

/// A packed block.
#[derive(Debug)]
pub(crate) struct PackedBlock {
    pub(crate) items: u32,
    pub(crate) n_parts: usize,
    pub(crate) raw_len: usize,
    pub(crate) stored: Vec<u8>,
    /// For a block of samples: their number by event and CPU.
    pub(crate) by_cpu: Vec<((u16, u32), u64)>,
}

enum Job {
    /// With the earliest time of samples that it may repeat.
    Sample(Box<Sample>, Option<Arc<MappingRanges>>, Option<u64>),
    /// Return what was collected.
    Flush,
}

enum Done {
    Block(PackedBlock),
    /// A sample or a block exceeds a limit of the format.
    Refused(Error),
    Flushed,
}

/// The threads. They end when the value is dropped.
pub(crate) struct Workers {
    machine: Machine,
    jobs: Vec<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
    done: Receiver<Done>,
    report: Sender<Done>,
}

impl Workers {
    pub(crate) fn new(machine: Machine) -> Self {
        let (report, done) = channel();
        Self { machine, jobs: Vec::new(), threads: Vec::new(), done, report }
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Starts another thread.
    pub(crate) fn add(&mut self) -> io::Result<()> {
        let (send, jobs) = sync_channel(MAX_WAITING);
        let (machine, report) = (self.machine, self.report.clone());
        let packer = Packer::new().map_err(io::Error::other)?;
        let builder = std::thread::Builder::new().name("fpprof-encode".to_owned());
        self.threads.push(builder.spawn(move || work(&jobs, &report, machine, packer))?);
        self.jobs.push(send);
        Ok(())
    }

    /// Passes a sample to the worker of its thread; blocks while that worker's queue is full.
    pub(crate) fn encode(&self, sample: Sample, ranges: Option<Arc<MappingRanges>>, since_ns: Option<u64>) {
        let job = Job::Sample(Box::new(sample), ranges, since_ns);
        if let Some(worker) = self.jobs.get(job_of(&job, self.jobs.len())) {
            // A worker ends before its channel only by a panic, which `finished` propagates.
            let _ = worker.send(job);
        }
    }

    /// Blocks that are ready, without waiting; with `flushes`, waits for everything passed to the workers.
    pub(crate) fn finished(&mut self, flushes: bool) -> Vec<Result<PackedBlock, Error>> {
        let mut blocks = Vec::new();
        let mut to_come = 0;
        if flushes {
            to_come = self.jobs.iter().filter(|worker| worker.send(Job::Flush).is_ok()).count();
        }
        loop {
            let next = if to_come > 0 { self.done.recv().ok() } else { self.done.try_recv().ok() };
            match next {
                Some(Done::Block(block)) => blocks.push(Ok(block)),
                Some(Done::Refused(error)) => blocks.push(Err(error)),
                Some(Done::Flushed) => to_come -= 1,
                None => return blocks,
            }
            self.hand_on_panics();
        }
    }

    fn hand_on_panics(&mut self) {
        if let Some(ended) = self.threads.iter().position(JoinHandle::is_finished)
            && let Err(panic) = self.threads.swap_remove(ended).join()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs.clear();
        for thread in self.threads.drain(..) {
            // Their blocks are discarded, and so is a panic.
            let _ = thread.join();
        }
    }
}

fn job_of(job: &Job, n_workers: usize) -> usize {
    match job {
        Job::Sample(sample, ..) => (sample.tid as usize).checked_rem(n_workers).unwrap_or(0),
        Job::Flush => 0,
    }
}

fn work(jobs: &Receiver<Job>, report: &Sender<Done>, machine: Machine, mut packer: Packer) {
    let mut encoder = SampleEncoder::new(machine);
    let mut hand_over = |encoder: &mut SampleEncoder| {
        if encoder.items() > 0 {
            // If the writer is gone, there is no receiver.
            let _ = report.send(pack(encoder, &mut packer).map_or_else(Done::Refused, Done::Block));
            encoder.clear();
        }
    };
    for job in jobs {
        match job {
            Job::Sample(sample, ranges, since_ns) => {
                if encoder.is_full_for(&sample) {
                    hand_over(&mut encoder);
                }
                if let Err(error) = encoder.push(&sample, ranges.as_deref(), since_ns) {
                    let _ = report.send(Done::Refused(error));
                }
                if encoder.len() >= BLOCK_BYTES {
                    hand_over(&mut encoder);
                }
            }
            Job::Flush => {
                hand_over(&mut encoder);
                let _ = report.send(Done::Flushed);
            }
        }
    }
}

fn pack(encoder: &mut SampleEncoder, packer: &mut Packer) -> Result<PackedBlock, Error> {
    let (items, by_cpu) = (encoder.items(), encoder.samples_by_cpu().collect());
    let parts = encoder.parts();
    let parts = parts.as_ref();
    let mut stored = Vec::new();
    packer.pack(parts, &mut stored)?;
    let raw_len = parts.iter().map(|part| part.len()).sum();
    Ok(PackedBlock { items, n_parts: parts.len(), raw_len, stored, by_cpu })
}

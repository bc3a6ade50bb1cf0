//! Writes the checked samples as a recording, with registers and stack.

use crate::output::Whole;
use crate::worker::Older;
use anyhow::Context as _;
use fpprof_analysis::oracle::History;
use fpprof_recording::model::{
    CaptureMode, CpuCounters, End, EndReason, Event, Measure, Meta, OwnCost, Sample, Sampling, SidebandLoss, Target,
    Uncounted,
};
use fpprof_recording::{MappingRanges, RecordingWriter};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Maximum bytes of stack copied.
pub(super) const MAX_STACK_BYTES: u32 = 16 << 20;

/// A recording in progress.
pub(super) struct Samples {
    writer: RecordingWriter<File>,
    whole: Whole,
    path: PathBuf,
    /// Number of process events of the history that are already written.
    n_events: usize,
    n_samples: u64,
    last_ns: u64,
}

impl Samples {
    /// Starts the recording of a command, of which one in `every` instructions is checked.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn new(path: &Path, history: &History, command: &[OsString], every: u64) -> anyhow::Result<Self> {
        let argv = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let event =
            Event { name: "instructions".to_owned(), sampling: Sampling::Period(every), measure: Measure::Samples };
        let target = Target::Command { argv, pid: history.pid() };
        let meta = Meta {
            events: vec![event],
            target,
            host: fpprof_collector::host(),
            mode: CaptureMode::Dwarf { stack_bytes: MAX_STACK_BYTES },
            scrubbed: true,
            ..history.meta()
        };
        let (file, whole) = Whole::create(path, Older::SetAside)?;
        let writer = RecordingWriter::new(file, &meta).with_context(|| path.display().to_string())?;
        Ok(Self { writer, whole, path: path.to_owned(), n_events: 0, n_samples: 0, last_ns: 0 })
    }

    /// Adds a sample of a thread, after the new events of the history. Only words of its stack that point into `kept`
    /// are kept.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn add(
        &mut self,
        sample: &mut Sample,
        tid: Pid,
        time_ns: u64,
        history: &History,
        kept: &MappingRanges,
    ) -> anyhow::Result<()> {
        self.n_samples = self.n_samples.saturating_add(1);
        self.last_ns = time_ns;
        sample.time_ns = time_ns;
        (sample.pid, sample.tid) = (history.pid(), tid.as_raw().unsigned_abs());
        (sample.weight, sample.cpu_fired) = (1, self.n_samples);
        self.write_events(history)?;
        self.writer.sample(sample, Some(kept)).with_context(|| self.path.display().to_string())
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn finish(mut self, history: &History) -> anyhow::Result<()> {
        self.write_events(history)?;
        let counters = CpuCounters { fired: self.n_samples, recorded: self.n_samples, ..CpuCounters::default() };
        let end = End {
            time_ns: self.last_ns,
            reason: EndReason::TargetsGone,
            cpus: vec![counters],
            sideband_lost: SidebandLoss::default(),
            own_cost: OwnCost::default(),
            uncounted: Uncounted::default(),
            notes: Vec::new(),
        };
        self.writer.finish(&end).with_context(|| self.path.display().to_string())?;
        self.whole.commit()
    }

    fn write_events(&mut self, history: &History) -> anyhow::Result<()> {
        let events = history.events();
        for event in events.get(self.n_events..).unwrap_or_default() {
            self.writer.sideband(event).with_context(|| self.path.display().to_string())?;
        }
        self.n_events = events.len();
        Ok(())
    }
}

//! Converts `perf.data`, as a file or from a pipe, to a recording.

use super::bytes::Bytes;
use super::convert::{self, BuildIds};
use super::description::{Attribute, Features};
use super::error::ImportError;
use super::events::Events;
use super::file::{FileHeader, is_pipe};
use super::records::{Head, Records, SAMPLE, user, user_name};
use super::rounds::Rounds;
use crate::replay::Input;
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{
    Arch, CpuCounters, End, EndReason, KernelSymbol, LossCause, Meta, OwnCost, Sample, Sideband, SidebandLoss,
    Uncounted,
};
use linux_perf_event_reader::constants::PERF_RECORD_MISC_MMAP_BUILD_ID as MISC_MMAP_BUILD_ID;
use linux_perf_event_reader::{EventRecord, RawEventRecord, RecordType};
use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

/// The name under which unreadable samples are counted.
const DAMAGED_SAMPLE: &str = "corrupt SAMPLE";

/// What was imported and what was left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// Samples imported.
    pub samples: u64,
    /// `PERF_RECORD_LOST` records: what perf calls lost chunks.
    pub lost_records: u64,
    /// Samples lost according to those records or the counters of `PERF_FORMAT_LOST`.
    pub lost_samples: u64,
    /// Records that have no equivalent in a recording, by perf's name of their type, damaged ones separately; and
    /// counter values of group members other than the sampled one.
    pub left_out: BTreeMap<String, u64>,
    /// Why the file was not read to its end, and other damage, as text.
    pub damage: Vec<String>,
    /// Contents of its samples that were ignored, as text.
    pub warnings: Vec<String>,
}

/// Converts a perf.data file.
///
/// # Errors
/// [`ImportError`]: the file has another format, is damaged, of another machine, or without samples.
pub fn perf_data(mut input: impl Input, mut output: impl Write) -> Result<Imported, ImportError> {
    let input: &mut dyn Input = &mut input;
    let kernel_symbol = kernel_symbol(input)?;
    let (mut import, records) = Import::of_file(input)?;
    import.features.kernel_symbol = kernel_symbol;
    import.write(records, &mut output)
}

/// The symbol with the kernel's address, which the recording needs before the first sample. It is at the beginning of a
/// file, or at its end (`perf record --tail-synthesize`).
fn kernel_symbol(input: &mut dyn Input) -> Result<Option<KernelSymbol>, ImportError> {
    let (mut import, records) = Import::of_file(input)?;
    let mut records = records.without_samples();
    while import.features.kernel_symbol.is_none() && import.step(&mut records, &mut Ignore)? {}
    Ok(import.features.kernel_symbol)
}

/// Converts the output of `perf record -o -`.
///
/// # Errors
/// Those of [`perf_data`].
pub fn perf_pipe(mut input: impl Read, mut output: impl Write) -> Result<Imported, ImportError> {
    let mut input: &mut dyn Read = &mut input;
    let mut first = Vec::new();
    (&mut input).take(16).read_to_end(&mut first).map_err(ImportError::Read)?;
    if !is_pipe(&first)? {
        return Err(ImportError::Damaged("it is not the output of `perf record -o -`, or its header is corrupt"));
    }
    Import::default().write(Records::new(input, true), &mut output)
}

/// Counts per event and CPU, as the samples of a recording have them.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    recorded: u64,
    lost: u64,
}

/// Converts records and passes the results to a [`Sink`].
#[derive(Default)]
pub(super) struct Import {
    events: Events,
    features: Features,
    rounds: Rounds,
    body: Vec<u8>,
    sample: Sample,
    /// By event and CPU.
    cpus: BTreeMap<(u16, u32), Counts>,
    /// Sum of the `LOST_SAMPLES` records, which count samples; `LOST` counts records of any kind.
    lost_by_format: u64,
    last_ns: u64,
    /// The idle thread was passed on.
    has_idle: bool,
    /// There are no more records.
    is_over: bool,
    pub(super) done: Imported,
}

/// Receives samples and events in order of time.
pub(super) trait Sink {
    /// Receives a sample; the sink may take its contents.
    fn sample(&mut self, import: &Import, sample: &mut Sample) -> Result<(), ImportError>;

    /// Receives an event.
    fn sideband(&mut self, event: Sideband) -> Result<(), ImportError>;
}

/// Ignores all.
struct Ignore;

impl Sink for Ignore {
    fn sample(&mut self, _: &Import, _: &mut Sample) -> Result<(), ImportError> {
        Ok(())
    }

    fn sideband(&mut self, _: Sideband) -> Result<(), ImportError> {
        Ok(())
    }
}

/// The recording, which is started by the first sample.
enum Output<W: Write> {
    Waiting(Option<W>, Vec<Sideband>),
    Started(Box<RecordingWriter<W>>),
}

impl<W: Write> Sink for Output<W> {
    fn sample(&mut self, import: &Import, sample: &mut Sample) -> Result<(), ImportError> {
        Ok(self.start(import, sample.time_ns)?.sample(sample, None)?)
    }

    fn sideband(&mut self, event: Sideband) -> Result<(), ImportError> {
        match self {
            Self::Started(writer) => writer.sideband(&event)?,
            Self::Waiting(_, early) => early.push(event),
        }
        Ok(())
    }
}

impl<W: Write> Output<W> {
    /// The writer, created if necessary.
    fn start(&mut self, import: &Import, start_ns: u64) -> Result<&mut RecordingWriter<W>, ImportError> {
        if let Self::Waiting(waiting, early) = self
            && let Some(file) = waiting.take()
        {
            let mut writer = RecordingWriter::new(file, &import.meta(start_ns)?)?;
            early.drain(..).try_for_each(|event| writer.sideband(&event))?;
            *self = Self::Started(Box::new(writer));
        }
        match self {
            Self::Started(writer) => Ok(writer),
            // A writer that could not be created ends the import.
            Self::Waiting(..) => Err(ImportError::NoSamples),
        }
    }
}

impl Import {
    /// Reads the header of a file; returns the import and the file's records.
    pub(super) fn of_file<R: Read + Seek>(mut input: R) -> Result<(Self, Records<R>), ImportError> {
        let header = FileHeader::read(&mut input)?;
        let mut import = Self { features: header.features, ..Self::default() };
        for attribute in header.attributes {
            import.events.add(attribute)?;
        }
        if header.is_unfinished {
            let damage = "it is incomplete: the names of its events and of the machine are missing";
            import.done.damage.push(damage.to_owned());
        }
        // In an unfinished file the last record may be incomplete; it ends there.
        let left = (!header.is_unfinished).then_some(header.data.size);
        let mut records = Records::of_file(input, header.data.offset, left).map_err(ImportError::Read)?;
        records.leave_stacks(import.events.prefix());
        Ok((import, records))
    }

    /// Writes a recording from the records.
    fn write<R: Read>(mut self, mut records: Records<R>, output: &mut dyn Write) -> Result<Imported, ImportError> {
        let mut output = Output::Waiting(Some(output), Vec::new());
        while self.step(&mut records, &mut output)? {}
        match output {
            Output::Started(mut writer) => writer.finish(&self.end())?,
            Output::Waiting(..) => return Err(self.no_samples(&records)),
        }
        Ok(self.done)
    }

    /// Why there was no sample.
    pub(super) fn no_samples<R: Read>(&self, records: &Records<R>) -> ImportError {
        let unfinished = "it is incomplete: it ends before its first sample";
        let damage = records.damage().or((!self.done.damage.is_empty()).then_some(unfinished));
        let bad = self.done.left_out.get(DAMAGED_SAMPLE).map(|&n| ImportError::NoGoodSamples(n));
        damage.map(ImportError::Damaged).or(bad).unwrap_or(ImportError::NoSamples)
    }

    /// Metadata of the recording.
    ///
    /// # Errors
    /// [`ImportError::NoStacks`] if its samples have none, [`ImportError::Arch`] if the machine's architecture is not
    /// supported.
    pub(super) fn meta(&self, start_ns: u64) -> Result<Meta, ImportError> {
        if self.events.n_without_stacks() == self.events.n() {
            return Err(ImportError::NoStacks);
        }
        let arch = &self.features.arch;
        if !arch.is_empty() && Arch::by_name(arch).is_none() {
            return Err(ImportError::Arch(arch.chars().take(32).collect()));
        }
        Ok(self.events.meta(&self.features, start_ns))
    }

    /// Passes on a complete record, or reads another. False at the end, when everything was passed on.
    pub(super) fn step<R: Read>(
        &mut self,
        records: &mut Records<R>,
        sink: &mut impl Sink,
    ) -> Result<bool, ImportError> {
        if !std::mem::replace(&mut self.has_idle, true) {
            sink.sideband(Sideband::Comm(convert::idle()))?;
        }
        if let Some((head, body)) = self.rounds.pop() {
            self.take(head, &body, records, sink)?;
            self.rounds.give_back(body);
            return Ok(true);
        }
        if self.is_over {
            return Ok(false);
        }
        let Some(head) = records.next(&mut self.body)? else {
            self.is_over = true;
            self.rounds.release(u64::MAX);
            if let Some(damage) = records.damage() {
                self.done.damage.push(format!("{damage}; the rest is ignored"));
            }
            return Ok(true);
        };
        if head.kind < user::FIRST {
            if head.kind == SAMPLE && !self.remove_values(head) {
                return Ok(true);
            }
            let Some((_, record)) = self.events.record(head, &self.body) else {
                return Err(ImportError::Damaged("a record precedes the description of its event"));
            };
            let time_ns = record.timestamp().unwrap_or(0);
            if self.rounds.add(time_ns, head, &mut self.body) {
                let up_to_ns = self.rounds.middle_ns();
                self.rounds.release(up_to_ns);
            }
        } else if head.kind == user::FINISHED_ROUND {
            let up_to_ns = self.rounds.finish_round();
            self.rounds.release(up_to_ns);
        } else {
            let body = std::mem::take(&mut self.body);
            self.take_own(head, &body)?;
            records.leave_stacks(self.events.prefix());
            self.body = body;
        }
        Ok(true)
    }

    /// Removes the counter values from the current sample; false if it is damaged, which is counted.
    fn remove_values(&mut self, head: Head) -> bool {
        let n_others = self.events.remove_values(head, &mut self.body);
        match n_others {
            Some(0) => {}
            Some(n) => self.leave_out(n, "values of other events of a group".to_owned()),
            None => self.leave_out(1, DAMAGED_SAMPLE.to_owned()),
        }
        n_others.is_some()
    }

    /// Handles one of perf's own records: in a pipe these include the events and features.
    fn take_own(&mut self, head: Head, body: &[u8]) -> Result<(), ImportError> {
        let mut bytes = Bytes(body);
        match head.kind {
            user::HEADER_ATTR => {
                // The size of the attribute follows its type; ids fill the rest.
                let len = body.get(4..).and_then(|rest| Bytes(rest).u32()).unwrap_or(0);
                let mut attribute = Attribute::parse(bytes.take(len.into()).unwrap_or(&[]))?;
                attribute.ids = bytes.0.chunks_exact(8).filter_map(|id| Bytes(id).u64()).collect();
                self.events.add(attribute)?;
            }
            user::HEADER_FEATURE => {
                if let Some(number) = bytes.u64() {
                    self.features.add(number, bytes.0);
                }
            }
            user::FINISHED_INIT => {}
            _ => self.leave_out(1, user_name(head.kind)),
        }
        Ok(())
    }

    fn take<R: Read>(
        &mut self,
        head: Head,
        body: &[u8],
        records: &mut Records<R>,
        sink: &mut impl Sink,
    ) -> Result<(), ImportError> {
        let mut sample = std::mem::take(&mut self.sample);
        let Some((event, record)) = self.events.record(head, body) else { return Ok(()) };
        match self.convert(&record, event, head.stack.is_some(), &mut sample) {
            Taken::Sample => {
                if let Some(place) = head.stack {
                    records.read_stack(place, &mut sample.stack).map_err(ImportError::Read)?;
                }
                self.count(&mut sample);
                sink.sample(self, &mut sample)?;
            }
            Taken::Sideband(event) => sink.sideband(event)?,
            Taken::Counted => {}
            Taken::LeftOut => self.leave_out(1, format!("{:?}", record.record_type)),
            Taken::Damaged => self.leave_out(1, format!("corrupt {:?}", record.record_type)),
        }
        self.sample = sample;
        Ok(())
    }

    fn convert(&mut self, raw: &RawEventRecord<'_>, event: usize, is_stack_apart: bool, sample: &mut Sample) -> Taken {
        if has_overlong_build_id(raw) {
            return Taken::Damaged;
        }
        let (Ok(common), Ok(record)) = (raw.common_data(), raw.parse()) else { return Taken::Damaged };
        if let Some(symbol) = convert::kernel_symbol(&record, &self.features.build_ids) {
            self.features.kernel_symbol = Some(symbol);
            return Taken::Counted;
        }
        let build_ids: &BuildIds = &self.features.build_ids;
        let arch = Arch::by_name(&self.features.arch).unwrap_or_default();
        let sideband = match record {
            EventRecord::Sample(record) => {
                let event = (event, self.events.fixed_period(event));
                return convert::sample(&record, event, arch, is_stack_apart, sample)
                    .map_or(Taken::Damaged, |()| Taken::Sample);
            }
            EventRecord::Mmap2(record) => convert::mmap2(&record, &common, build_ids).map(Sideband::Mmap),
            EventRecord::Mmap(record) => convert::mmap(&record, &common, build_ids).map(Sideband::Mmap),
            EventRecord::Comm(record) => convert::comm(&record, &common).map(Sideband::Comm),
            EventRecord::Fork(record) => convert::fork(&record).map(Sideband::Fork),
            EventRecord::Exit(record) => convert::exit(&record).map(Sideband::Exit),
            EventRecord::Lost(record) => {
                let event = u16::try_from(event).unwrap_or(0);
                let cpu = self.cpus.entry((event, common.cpu.unwrap_or(0))).or_default();
                cpu.lost = cpu.lost.saturating_add(record.count);
                self.done.lost_records = self.done.lost_records.saturating_add(1);
                return Taken::Counted;
            }
            EventRecord::Raw(record) if record.record_type == RecordType::LOST_SAMPLES => {
                let bytes = record.data.as_slice();
                let Some(lost) = bytes.first_chunk().copied().map(u64::from_le_bytes) else { return Taken::Damaged };
                self.lost_by_format = self.lost_by_format.saturating_add(lost);
                return Taken::Counted;
            }
            _ => None,
        };
        sideband.map_or(Taken::LeftOut, Taken::Sideband)
    }

    fn count(&mut self, sample: &mut Sample) {
        let counts = self.cpus.entry((sample.event, sample.cpu)).or_default();
        counts.recorded = counts.recorded.saturating_add(1);
        sample.cpu_fired = counts.recorded.saturating_add(counts.lost);
        sample.cpu_lost = counts.lost;
        self.last_ns = self.last_ns.max(sample.time_ns);
        self.done.samples = self.done.samples.saturating_add(1);
    }

    fn leave_out(&mut self, n: u64, name: String) {
        let sum = self.done.left_out.entry(name).or_default();
        *sum = sum.saturating_add(n);
    }

    /// Computes the balance. `LOST_SAMPLES` counts the same losses as `LOST`, but only samples, so it takes precedence.
    /// perf writes it once for the whole file, hence it is attributed to the CPU that lost most.
    pub(super) fn end(&mut self) -> End {
        self.done.warnings = self.events.warnings();
        let by_records: u64 = self.cpus.values().fold(0, |sum, cpu| sum.saturating_add(cpu.lost));
        if self.lost_by_format > 0 {
            let most = self.cpus.iter().max_by_key(|(_, counts)| counts.lost).map(|(cpu, _)| *cpu);
            self.cpus.values_mut().for_each(|counts| counts.lost = 0);
            self.cpus.entry(most.unwrap_or_default()).or_default().lost = self.lost_by_format;
        }
        self.done.lost_samples = if self.lost_by_format > 0 { self.lost_by_format } else { by_records };
        let cpus = self.cpus.iter().map(|(&(event, cpu), counts)| CpuCounters {
            cpu,
            event,
            fired: counts.recorded.saturating_add(counts.lost),
            recorded: counts.recorded,
            lost: BTreeMap::from([(LossCause::RingFull, counts.lost)]),
            ..CpuCounters::default()
        });
        End {
            time_ns: self.last_ns,
            reason: EndReason::TargetsGone,
            cpus: cpus.collect(),
            sideband_lost: SidebandLoss::default(),
            own_cost: OwnCost::default(),
            uncounted: Uncounted::default(),
            notes: Vec::new(),
        }
    }
}

enum Taken {
    Sample,
    Sideband(Sideband),
    Counted,
    LeftOut,
    Damaged,
}

/// Whether a mapping's build ID is longer than its field, on which the parser would panic.
///
/// # Sources
/// `include/uapi/linux/perf_event.h`, `PERF_RECORD_MMAP2`: pid, tid, addr, len, pgoff, then the length of the build id.
fn has_overlong_build_id(raw: &RawEventRecord<'_>) -> bool {
    const OFFSET: usize = 32;
    const MAX: u8 = 20;
    let is_build_id = raw.record_type == RecordType::MMAP2 && raw.misc & MISC_MMAP_BUILD_ID != 0;
    is_build_id
        && raw.data.get(OFFSET..OFFSET + 1).and_then(|mut byte| byte.read_u8().ok()).is_some_and(|len| len > MAX)
}

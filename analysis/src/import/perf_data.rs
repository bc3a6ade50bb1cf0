//! `perf.data`, as a file or from a pipe, as a recording.

use super::convert::{self, BuildIds};
use super::error::ImportError;
use fpprof_recording::RecordingWriter;
use fpprof_recording::model::{
    BuildId, CaptureMode, Collector, CpuCounters, End, EndReason, Event, Host, LossCause, Meta, OwnCost, Sample,
    Sampling, Sideband, SidebandLoss, Target,
};
use linux_perf_data::{AttributeDescription, PerfFile, PerfFileReader, PerfFileRecord, PerfRecordIter};
use linux_perf_event_reader::{Endianness, EventRecord, RawEventRecord, RecordType, SamplingPolicy};
use std::collections::BTreeMap;
use std::io::{Read, Seek, Write};

/// What an import took and what it left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Imported {
    /// Samples taken.
    pub samples: u64,
    /// `PERF_RECORD_LOST` records: what perf calls lost chunks.
    pub lost_records: u64,
    /// Samples those records, or the counters of `PERF_FORMAT_LOST`, stand for.
    pub lost_samples: u64,
    /// Records without a place in a recording, by perf's name of their type.
    pub left_out: BTreeMap<String, u64>,
}

/// Converts a perf.data file.
///
/// # Errors
/// [`ImportError`] says whether the file is foreign, damaged, of another machine, or without samples.
pub fn perf_data<R: Read + Seek, W: Write>(input: R, output: W) -> Result<Imported, ImportError> {
    let PerfFileReader { perf_file, record_iter } = PerfFileReader::parse_file(input)?;
    Import::new(&perf_file)?.run(perf_file, record_iter, output)
}

/// Converts what `perf record -o -` writes.
///
/// # Errors
/// As [`perf_data`].
pub fn perf_pipe<R: Read, W: Write>(input: R, output: W) -> Result<Imported, ImportError> {
    let PerfFileReader { perf_file, record_iter } = PerfFileReader::parse_pipe(input)?;
    Import::new(&perf_file)?.run(perf_file, record_iter, output)
}

/// Per-CPU counts, as the samples of a recording carry them.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    recorded: u64,
    lost: u64,
}

struct Import {
    meta: Meta,
    build_ids: BuildIds,
    cpus: BTreeMap<u32, Counts>,
    /// Sum of the `LOST_SAMPLES` records, which count samples; `LOST` counts records of any kind.
    lost_by_format: u64,
    last_ns: u64,
    done: Imported,
}

impl Import {
    fn new(file: &PerfFile) -> Result<Self, ImportError> {
        if file.endian() == Endianness::BigEndian {
            return Err(ImportError::BigEndian);
        }
        if let Some(arch) = file.arch()?.filter(|arch| *arch != "x86_64") {
            return Err(ImportError::Arch(arch.chars().take(32).collect()));
        }
        let ids = file.build_ids()?;
        let build_ids = ids.into_values().filter_map(|dso| Some((dso.path, BuildId::new(&dso.build_id)?))).collect();
        let (cpus, lost_by_format, last_ns) = (BTreeMap::new(), 0, 0);
        Ok(Self { meta: meta(file)?, build_ids, cpus, lost_by_format, last_ns, done: Imported::default() })
    }

    fn run<R: Read, W: Write>(
        mut self,
        mut file: PerfFile,
        mut records: PerfRecordIter<R>,
        output: W,
    ) -> Result<Imported, ImportError> {
        let mut output = Some(output);
        let mut writer: Option<RecordingWriter<W>> = None;
        let mut early = Vec::new();
        let mut sample = Sample::default();
        while let Some(record) = records.next_record(&mut file)? {
            let PerfFileRecord::EventRecord { attr_index, record } = record else { continue };
            let taken = self.take(&record, attr_index, &mut sample)?;
            let is_sample = matches!(taken, Taken::Sample);
            if is_sample && let Some(output) = output.take() {
                self.meta.start_ns = sample.time_ns;
                let mut started = RecordingWriter::new(output, &self.meta)?;
                early.drain(..).try_for_each(|event| started.sideband(&event))?;
                writer = Some(started);
            }
            match (taken, &mut writer) {
                (Taken::Sample, Some(writer)) => writer.sample(&sample, None)?,
                (Taken::Sideband(event), Some(writer)) => writer.sideband(&event)?,
                (Taken::Sideband(event), None) => early.push(event),
                _ => {}
            }
        }
        let mut writer = writer.ok_or(ImportError::NoSamples)?;
        writer.finish(&self.end())?;
        Ok(self.done)
    }

    fn take(&mut self, raw: &RawEventRecord<'_>, event: usize, sample: &mut Sample) -> Result<Taken, ImportError> {
        let common = raw.common_data().map_err(ImportError::Record)?;
        let taken = match raw.parse().map_err(ImportError::Record)? {
            EventRecord::Sample(record) => convert::sample(&record, event, sample).map(|()| Taken::Sample),
            EventRecord::Mmap2(record) => {
                convert::mmap2(&record, &common, &self.build_ids).map(Sideband::Mmap).map(Taken::Sideband)
            }
            EventRecord::Mmap(record) => {
                convert::mmap(&record, &common, &self.build_ids).map(Sideband::Mmap).map(Taken::Sideband)
            }
            EventRecord::Comm(record) => convert::comm(&record, &common).map(Sideband::Comm).map(Taken::Sideband),
            EventRecord::Fork(record) => convert::fork(&record).map(Sideband::Fork).map(Taken::Sideband),
            EventRecord::Exit(record) => convert::exit(&record).map(Sideband::Exit).map(Taken::Sideband),
            EventRecord::Lost(record) => {
                let cpu = self.cpus.entry(common.cpu.unwrap_or(0)).or_default();
                cpu.lost = cpu.lost.saturating_add(record.count);
                self.done.lost_records += 1;
                Some(Taken::Counted)
            }
            EventRecord::Raw(record) if record.record_type == RecordType::LOST_SAMPLES => {
                let bytes = record.data.as_slice();
                let lost = bytes.first_chunk().copied().map(u64::from_le_bytes);
                self.lost_by_format = self.lost_by_format.saturating_add(lost.unwrap_or(0));
                Some(Taken::Counted)
            }
            _ => None,
        };
        if let Some(Taken::Sample) = taken {
            self.count(sample);
        }
        Ok(taken.unwrap_or_else(|| self.leave_out(raw)))
    }

    fn count(&mut self, sample: &mut Sample) {
        let counts = self.cpus.entry(sample.cpu).or_default();
        counts.recorded += 1;
        sample.cpu_fired = counts.recorded.saturating_add(counts.lost);
        sample.cpu_lost = counts.lost;
        self.last_ns = self.last_ns.max(sample.time_ns);
        self.done.samples += 1;
    }

    fn leave_out(&mut self, raw: &RawEventRecord<'_>) -> Taken {
        *self.done.left_out.entry(format!("{:?}", raw.record_type)).or_default() += 1;
        Taken::Counted
    }

    /// The balance. `LOST_SAMPLES` counts the same losses as `LOST` but samples only, so it wins where it is there;
    /// perf writes it once for the whole file, hence it is booked on the CPU that lost most.
    fn end(&mut self) -> End {
        let by_records: u64 = self.cpus.values().fold(0, |sum, cpu| sum.saturating_add(cpu.lost));
        if self.lost_by_format > 0 {
            let most = self.cpus.iter().max_by_key(|(_, counts)| counts.lost).map(|(cpu, _)| *cpu);
            self.cpus.values_mut().for_each(|counts| counts.lost = 0);
            self.cpus.entry(most.unwrap_or(0)).or_default().lost = self.lost_by_format;
        }
        self.done.lost_samples = if self.lost_by_format > 0 { self.lost_by_format } else { by_records };
        let cpus = self.cpus.iter().map(|(&cpu, counts)| CpuCounters {
            cpu,
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
        }
    }
}

enum Taken {
    Sample,
    Sideband(Sideband),
    Counted,
}

fn meta(file: &PerfFile) -> Result<Meta, ImportError> {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let attributes = file.event_attributes();
    let stack_bytes = attributes.iter().map(|event| event.attr.sample_stack_user).max().unwrap_or(0);
    let argv = file.cmdline()?.unwrap_or_default().into_iter().map(str::to_owned).collect();
    Ok(Meta {
        tool_version: format!("perf {}", text(file.perf_version()?)),
        start_ns: 0,
        start_unix_ns: 0,
        host: Host {
            arch: text(file.arch()?),
            kernel: text(file.os_release()?),
            cpu_model: text(file.cpu_desc()?),
            cpus_online: file.nr_cpus()?.map_or(0, |cpus| cpus.nr_cpus_online),
            memory_bytes: file.total_mem()?.unwrap_or(0).saturating_mul(1024),
            distribution: String::new(),
        },
        collector: Collector::Imported,
        events: attributes.iter().map(event).collect(),
        mode: if stack_bytes > 0 { CaptureMode::Dwarf { stack_bytes } } else { CaptureMode::Fp },
        kernel_stacks: true,
        scrubbed: false,
        target: Target::Command { argv, pid: 0 },
    })
}

fn event(description: &AttributeDescription) -> Event {
    let sampling = match description.attr.sampling_policy {
        SamplingPolicy::Frequency(hz) => Sampling::FrequencyHz(hz),
        SamplingPolicy::Period(period) => Sampling::Period(period.get()),
        SamplingPolicy::NoSampling => Sampling::Period(0),
    };
    Event { name: description.name().unwrap_or("unnamed").to_owned(), sampling }
}

//! Recordings, whole and with what processes say of compiled code, unwound and named as `report` does.

use crate::files::{Only, written};
use fpprof_analysis::address_space::Timeline;
use fpprof_analysis::attribution::Attribution;
use fpprof_analysis::{Options, analyse};
use fpprof_collector::parse::{Found, ParseTask, parse};
use fpprof_recording::compiled::Compiled;
use fpprof_recording::model::{
    Abi, Arch, CaptureMode, Collector, Event, FileIdentity, FpFrame, Host, Measure, Meta, Mmap, ModuleBytes, Sample,
    Sampling, Sideband, Target, UserRegs,
};
use fpprof_recording::{Recording, RecordingWriter};
use std::io::Cursor;
use std::num::NonZeroUsize;

/// Bytes of a block's header, whose checksum is in the last four.
const HEADER_BYTES: usize = 48;
/// Where the code is that a perf map or jitdump may name.
const CODE: u64 = 0x10_0000;

pub(crate) fn meta() -> Meta {
    Meta {
        tool_version: "fuzz".to_owned(),
        start_ns: 1,
        start_unix_ns: 0,
        host: Host { arch: "x86_64".to_owned(), cpus_online: 1, ..Host::default() },
        collector: Collector::Ebpf,
        events: vec![Event {
            name: "cpu-clock".to_owned(),
            sampling: Sampling::FrequencyHz(999),
            measure: Measure::Samples,
        }],
        mode: CaptureMode::Fp,
        kernel_stacks: false,
        scrubbed: false,
        target: Target::System,
        not_counted: Vec::new(),
        aggregated_ns: None,
    }
}

/// A recording, whose blocks get the checksums that fit them.
pub fn recording(input: &[u8]) {
    let mut file = input.to_vec();
    seal(&mut file);
    analyse_file(&file);
}

/// A perf map, as a process writes it.
pub fn perf_map(input: &[u8]) {
    let parsed = parse(written(input), ParseTask::PerfMap { offset: 0 });
    with_compiled(Compiled::PerfMap(1), parsed.bytes);
    // As it may be in a recording.
    with_compiled(Compiled::PerfMap(1), input.to_vec());
}

/// A jitdump, as a process writes it.
pub fn jitdump(input: &[u8]) {
    let file = written(input);
    let mut position = Default::default();
    let mut taken = Vec::new();
    for _ in 0..4 {
        let parsed = parse(file, ParseTask::JitDump { position, room: 1 << 20 });
        let Found::Records { position: next, .. } = parsed.found else { break };
        taken.extend(parsed.bytes);
        position = next;
    }
    with_compiled(Compiled::JitDump(1), taken);
    with_compiled(Compiled::JitDump(1), input.to_vec());
}

/// Makes the checksums fit: of what a block says is its payload, and of its header.
fn seal(file: &mut [u8]) {
    let mut rest = file;
    while rest.len() >= HEADER_BYTES {
        let (header, behind) = rest.split_at_mut(HEADER_BYTES);
        let stored = header.get(32..36).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let (payload, next) = behind.split_at_mut((stored as usize).min(behind.len()));
        header[40..44].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        let sum = crc32c::crc32c(&header[..44]);
        header[44..].copy_from_slice(&sum.to_le_bytes());
        rest = next;
    }
}

/// A recording of one process that runs code without a file, of which it says `bytes`.
fn with_compiled(compiled: Compiled, bytes: Vec<u8>) {
    let mut writer = RecordingWriter::new(Vec::new(), &meta()).expect("memory");
    let mapping = Mmap {
        time_ns: 1,
        pid: 1,
        tid: 1,
        start: CODE,
        len: 1 << 20,
        file_offset: 0,
        prot: 5,
        flags: 2,
        path: b"//anon".to_vec(),
        identity: FileIdentity::default(),
        synthesized: true,
    };
    writer.sideband(&Sideband::Mmap(mapping)).expect("memory");
    let module = ModuleBytes { path: compiled.path(), identity: FileIdentity::default(), bytes };
    writer.sideband(&Sideband::Module(module)).expect("memory");
    for n in 0..16_u64 {
        let address = CODE + 0x40 * n;
        let mut values = [0; 17];
        values[16] = address;
        let sample = Sample {
            time_ns: 2 + n,
            pid: 1,
            tid: 1,
            weight: 1,
            cpu_fired: n + 1,
            user_regs: Some(UserRegs::new(Arch::X86_64, Abi::Bits64, &values)),
            user_fp: vec![FpFrame { address, frame_address: 0 }],
            ..Sample::default()
        };
        writer.sample(&sample, None).expect("memory");
    }
    writer.flush().expect("memory");
    analyse_file(&writer.into_inner());
}

fn analyse_file(file: &[u8]) {
    let Ok(mut recording) = Recording::open(Cursor::new(file)) else { return };
    let none = Only::of(&[]);
    let options = Options { is_this_machine: false, page: true, n_threads: NonZeroUsize::MIN, ..Options::new(&none) };
    let _ = analyse(&mut recording, &options);
    let mut events = Vec::new();
    if recording.sideband(|event| events.extend(matches!(event, Sideband::Cgroup(_)).then(|| event.clone()))).is_ok() {
        Timeline::new(events).cgroups().for_each(|path| _ = Attribution::of(path));
    }
}

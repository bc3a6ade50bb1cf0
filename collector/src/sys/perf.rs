//! perf events.

use crate::event::Event;
use fpprof_recording::model::Sampling;
use perf_event_open_sys as sys;
use perf_event_open_sys::bindings;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An open perf event, of a CPU or a thread.
#[derive(Debug)]
pub(crate) struct PerfEvent {
    fd: OwnedFd,
}

/// What follows the fields of a process event record; see `sideband::parse`.
const SAMPLE_ID: u64 = (bindings::PERF_SAMPLE_TID
    | bindings::PERF_SAMPLE_TIME
    | bindings::PERF_SAMPLE_CPU
    | bindings::PERF_SAMPLE_IDENTIFIER) as u64;

impl PerfEvent {
    /// Opens the sampling event of a CPU, disabled. For a tracepoint or a probe, the program runs on all CPUs, starting
    /// with [`Self::set_bpf`].
    pub(crate) fn sampling(cpu: u32, event: &Event, sampling: Sampling) -> io::Result<Self> {
        Self::open(&mut Self::sampling_attr(event, sampling), None, cpu)
    }

    /// Opens a sampling event for the calling thread on any CPU, disabled. Its interrupts do nothing.
    pub(crate) fn of_this_thread(event: &Event, sampling: Sampling) -> io::Result<Self> {
        Self::open_for(&mut Self::sampling_attr(event, sampling), 0, -1)
    }

    pub(super) fn sampling_attr(event: &Event, sampling: Sampling) -> bindings::perf_event_attr {
        let mut attr = Self::attr();
        (attr.type_, attr.config) = (event.type_, event.config);
        if let Some((path, offset)) = &event.probe {
            attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
            attr.__bindgen_anon_4.probe_offset = *offset;
        }
        match sampling {
            Sampling::FrequencyHz(hz) => {
                attr.set_freq(1);
                attr.__bindgen_anon_1.sample_freq = hz;
            }
            Sampling::Period(period) => attr.__bindgen_anon_1.sample_period = period,
        }
        // An idle CPU has no jiffies: after as many interrupts as are allowed in one jiffy, the event would be
        // throttled until the CPU is busy again, and longer.
        attr.set_exclude_idle(u64::from(event.is_timer()));
        attr
    }

    /// Opens an event of a CPU that only reports what processes do, disabled.
    pub(crate) fn sideband(cpu: u32, wakeup_bytes: u32) -> io::Result<Self> {
        Self::open_counting_lost(Self::sideband_attr(wakeup_bytes), None, cpu)
    }

    /// Likewise for one thread on that CPU and its future descendants. Any user may do that for their own processes.
    pub(crate) fn thread_sideband(tid: u32, cpu: u32, wakeup_bytes: u32) -> io::Result<Self> {
        let mut attr = Self::sideband_attr(wakeup_bytes);
        attr.set_inherit(1);
        attr.set_exclude_kernel(1);
        attr.set_exclude_hv(1);
        Self::open_counting_lost(attr, Some(tid), cpu)
    }

    /// Opens an event for which [`Self::lost`] works, if the kernel supports it: Linux 6.0 and later.
    fn open_counting_lost(mut attr: bindings::perf_event_attr, tid: Option<u32>, cpu: u32) -> io::Result<Self> {
        attr.read_format |= u64::from(bindings::PERF_FORMAT_LOST);
        Self::open(&mut attr, tid, cpu).or_else(|error| {
            attr.read_format &= !u64::from(bindings::PERF_FORMAT_LOST);
            if error.raw_os_error() == Some(libc::EINVAL) { Self::open(&mut attr, tid, cpu) } else { Err(error) }
        })
    }

    fn sideband_attr(wakeup_bytes: u32) -> bindings::perf_event_attr {
        let mut attr = Self::attr();
        attr.type_ = bindings::PERF_TYPE_SOFTWARE;
        attr.config = u64::from(bindings::PERF_COUNT_SW_DUMMY);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_mmap_data(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = wakeup_bytes;
        attr
    }

    pub(super) fn attr() -> bindings::perf_event_attr {
        let mut attr = bindings::perf_event_attr::default();
        attr.size = u32::try_from(size_of_val(&attr)).unwrap_or(u32::MAX);
        attr.set_disabled(1);
        attr.sample_type = SAMPLE_ID;
        attr.read_format =
            u64::from(bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC;
        attr
    }

    /// Opens an event for one thread on a CPU, or for everything that runs there.
    pub(super) fn open(attr: &mut bindings::perf_event_attr, tid: Option<u32>, cpu: u32) -> io::Result<Self> {
        let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
        let cpu = i32::try_from(cpu).map_err(invalid)?;
        let tid = tid.map_or(Ok(-1), i32::try_from).map_err(invalid)?;
        Self::open_for(attr, tid, cpu)
    }

    /// `pid` and `cpu` as the system call takes them.
    fn open_for(attr: &mut bindings::perf_event_attr, pid: i32, cpu: i32) -> io::Result<Self> {
        let flags = u64::from(bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is an initialised attribute of the size it says.
        let fd = unsafe { sys::perf_event_open(attr, pid, cpu, -1, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Runs `program` at each overflow instead of writing a sample.
    pub(crate) fn set_bpf(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        let program = program.as_raw_fd().cast_unsigned();
        // SAFETY: no pointers; the result is checked.
        Self::check(unsafe { sys::ioctls::SET_BPF(self.fd.as_raw_fd(), program) })
    }

    /// Writes this event's records into the ring of `other`, an event of the same CPU.
    pub(crate) fn set_output(&self, other: &Self) -> io::Result<()> {
        // SAFETY: no pointers; the result is checked.
        Self::check(unsafe { sys::ioctls::SET_OUTPUT(self.fd.as_raw_fd(), other.fd.as_raw_fd()) })
    }

    /// Enables the event.
    pub(crate) fn enable(&self) -> io::Result<()> {
        // SAFETY: no pointers; the result is checked.
        Self::check(unsafe { sys::ioctls::ENABLE(self.fd.as_raw_fd(), 0) })
    }

    /// Disables the event; when this returns, none of its handlers runs any more.
    pub(crate) fn disable(&self) -> io::Result<()> {
        // SAFETY: no pointers; the result is checked.
        Self::check(unsafe { sys::ioctls::DISABLE(self.fd.as_raw_fd(), 0) })
    }

    /// The count of the event and of all events that inherited it.
    pub(crate) fn count(&self) -> Option<Count> {
        self.read().map(|(count, _)| count)
    }

    /// Number of its records that were lost for lack of room. `None` if the kernel does not count them.
    pub(crate) fn lost(&self) -> Option<u64> {
        self.read()?.1
    }

    fn read(&self) -> Option<(Count, Option<u64>)> {
        let mut words = [0u64; 4];
        // SAFETY: so many writable bytes, and the descriptor is ours.
        let n = unsafe { libc::read(self.fd.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words)) };
        let [value, enabled_ns, running_ns, lost] = words;
        let count = Count { value, enabled_ns, running_ns };
        match n {
            24 => Some((count, None)),
            32 => Some((count, Some(lost))),
            _ => None,
        }
    }

    fn check(result: i32) -> io::Result<()> {
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The count of an event, and the time it was counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) value: u64,
    /// Time it was enabled.
    pub(crate) enabled_ns: u64,
    /// Of that, the time it had a hardware counter.
    pub(crate) running_ns: u64,
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

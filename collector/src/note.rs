//! Facts about a recording that are not errors.

use crate::sideband::EVENTS_A_SECOND;
use std::borrow::Cow;

/// A number, and the note that reports it.
pub(crate) type CountedNote = (u64, fn(u64) -> Note);

/// A fact about a recording that is not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// Number of samples in the kernel without a kernel stack, though requested: the kernel gave none.
    KernelStacksMissing(u64),
    /// Number of stacks whose end could not be determined; as many bytes were copied as could be read.
    StackEndUnknown(u64),
    /// Number of timer ticks that never reached the sampling program: it came late, or other BPF programs ran. They are
    /// not in the balance; the number is an estimate from time and rate.
    TicksMissing(u64),
    /// Number of event occurrences that the kernel counted without running the sampling program: it runs none while the
    /// CPU is in another program, or in a map's system call. They are not in the balance; the number is exact.
    OccurrencesMissing(u64),
    /// Number of counter overflows that did not run the sampling program, for the same reasons. They are not in the
    /// balance; the number is an estimate from the count.
    OverflowsMissing(u64),
    /// The percentage of the time that the hardware counter was counting, because others use it as well.
    CounterShared(u64),
    /// Number of CPUs that came online during the recording and were not sampled.
    CpusNotSampled(u64),
    /// The kernel did not report CPU changes: CPUs that came online, or went offline and came back, were not sampled
    /// from then on.
    CpusNotWatched,
    /// Number of CPUs that came online during the recording and were sampled from then on. What processes did on them
    /// just before may be missing.
    CpusJoined(u64),
    /// Number of CPUs that came online during the recording and have no ring, because their numbers are higher than any
    /// at the start: their ticks are counted as lost, `no_ring`.
    CpusWithoutRing(u64),
    /// Number of processes that were not followed because the table of profiled processes was full.
    ProcessesNotFollowed(u64),
    /// Number of processes that could not be read from `/proc` because they were gone or access was denied.
    ProcessesUnreadable(u64),
    /// Number of files whose bytes would be needed, because they were deleted or replaced, but could not be saved.
    FilesNotSaved(u64),
    /// The command did not end on SIGTERM and was left running.
    TargetStillRuns,
    /// The recording could not be written to the end (errno).
    EndNotWritten(i32),
    /// Number of stacks copied only partly because the ring buffer was filling up.
    StacksShed(u64),
    /// Number of threads still blocked when the recording ended: the time up to then is in it.
    StillBlocked(u64),
    /// Number of threads blocked when the recording began that were not followed: the table of blocked threads was
    /// full.
    WaitsNotFollowed(u64),
    /// Number of gaps that could not be written; the losses themselves are counted.
    GapsDropped(u64),
    /// Ticks in the kernel were neither sampled nor counted, because this user may not see them.
    KernelNotSampled,
    /// Bytes of each CPU's ring, which is smaller than wanted: this user may lock no more memory.
    SmallRings(usize),
    /// Number of processes that left the recording when they executed a setuid program: the kernel removed their
    /// events.
    EventsRemovedByExec(u64),
    /// Number of tables and dumps of compiled code that were there but not taken: no regular file of their process's
    /// user, mounted over or with a second link, too large, or malformed.
    TablesRefused(u64),
    /// Number of dumps of compiled code taken only up to a malformed or incomplete record, or up to a limit.
    DumpsCut(u64),
    /// Number of times the request's parser failed on a file of the profiled programs.
    ParserFailed(u64),
    /// The time in BPF programs could not be measured, though requested: this user may not turn on the kernel's
    /// statistics.
    StatisticsRefused,
    /// Number of file mappings without a build ID, whose files are not kept if they are deleted or replaced: there were
    /// too many, for one user or in total.
    FilesOverLimit(u64),
    /// Number of processes with compiled code, or of their dumps, not looked at: there were too many, for one user or
    /// in total.
    TablesOverLimit(u64),
    /// Number of files not looked at because others of the same user had taken too long.
    FilesTooSlow(u64),
    /// Number of files not parsed because the request's parser had taken too long for files of their user, or had failed too
    /// often on those or on all.
    FilesNotParsed(u64),
    /// Processes created mappings too fast, so some mappings were not recorded. Samples of such processes may precede
    /// the re-reading of their mappings.
    MappingsNotRecorded {
        /// Mappings not recorded.
        mappings: u64,
        /// Samples taken before the mappings were read again.
        samples: u64,
    },
    /// Number of names of threads that were not recorded, since their processes renamed them too often. The last ones were.
    NamesNotRecorded(u64),
    /// Number of process events dropped because the recording could not be written.
    ProcessEventsDropped(u64),
}

impl Note {
    /// The text of the notes that are often about one of something.
    fn of_one(&self) -> Option<&'static str> {
        match self {
            Self::KernelStacksMissing(1) => Some("1 sample in the kernel has no kernel stack"),
            Self::StackEndUnknown(1) => Some("the end of 1 stack is unknown"),
            Self::CpusNotSampled(1) => Some("1 CPU came online during the recording and was not sampled"),
            Self::CpusJoined(1) => Some("1 CPU came online during the recording and was sampled from then on"),
            Self::CpusWithoutRing(1) => Some(
                "1 CPU came online during the recording and has no ring buffer: its samples are counted as lost (no_ring); \
                 record again",
            ),
            Self::ProcessesUnreadable(1) => Some(
                "1 process ended or was unreadable before its mappings were read; samples of it, if any, are truncated \
                 (process_gone)",
            ),
            Self::OccurrencesMissing(1) => Some("1 event did not run the sampling program and is not counted"),
            Self::FilesNotSaved(1) => Some("1 deleted or replaced file could not be saved"),
            Self::StillBlocked(1) => {
                Some("1 thread was still blocked when the recording ended; its time until then counts")
            }
            _ => None,
        }
    }

    /// The count it is about, if any, and its text.
    fn text(&self) -> (Option<u64>, Cow<'static, str>) {
        let n_words = |n: &u64, words: &'static str| (Some(*n), Cow::from(words));
        match self {
            Self::KernelStacksMissing(n) => n_words(n, "samples in the kernel have no kernel stack"),
            Self::StackEndUnknown(n) => (None, format!("the ends of {n} stacks are unknown").into()),
            Self::TicksMissing(n) => {
                (None, format!("about {n} ticks came late: they were not recorded, and are not counted as lost").into())
            }
            Self::OccurrencesMissing(n) => n_words(n, "events did not run the sampling program and are not counted"),
            Self::OverflowsMissing(n) => (
                None,
                format!("about {n} overflows of the counter did not run the sampling program and are not counted")
                    .into(),
            ),
            Self::CounterShared(share) => {
                (None, format!("the processor's counter was on for {share} % of the time: {COUNTER_SHARED}").into())
            }
            Self::CpusNotSampled(n) => n_words(n, "CPUs came online during the recording and were not sampled"),
            Self::CpusNotWatched => (None, CPUS_NOT_WATCHED.into()),
            Self::CpusJoined(n) => n_words(n, "CPUs came online during the recording and were sampled from then on"),
            Self::CpusWithoutRing(n) => n_words(n, CPUS_WITHOUT_RING),
            Self::ProcessesNotFollowed(n) => n_words(n, PROCESSES_NOT_FOLLOWED),
            Self::ProcessesUnreadable(n) => n_words(n, PROCESSES_UNREADABLE),
            Self::FilesNotSaved(n) => n_words(n, "deleted or replaced files could not be saved"),
            Self::TargetStillRuns => (None, "the command did not stop on SIGTERM and still runs".into()),
            Self::EndNotWritten(errno) => {
                let error = std::io::Error::from_raw_os_error(*errno);
                (None, format!("cannot write the end of the recording: {error}").into())
            }
            Self::StacksShed(n) => n_words(n, STACKS_SHED),
            Self::StillBlocked(n) => n_words(n, STILL_BLOCKED),
            Self::WaitsNotFollowed(n) => n_words(n, WAITS_NOT_FOLLOWED),
            Self::GapsDropped(n) => {
                (None, format!("the times of {n} gaps could not be written; their lost samples are counted").into())
            }
            Self::KernelNotSampled => (None, KERNEL_NOT_SAMPLED.into()),
            Self::SmallRings(bytes) => {
                (None, format!("ring buffers have only {} KiB per CPU: {SMALL_RINGS}", bytes >> 10).into())
            }
            Self::EventsRemovedByExec(n) => {
                (None, format!("events removed by setuid exec: {n} {EVENTS_REMOVED}").into())
            }
            Self::TablesRefused(n) => n_words(n, TABLES_REFUSED),
            Self::DumpsCut(n) => n_words(n, DUMPS_CUT),
            Self::ParserFailed(n) => {
                (None, format!("{PARSER_FAILED}: {n} times; each time a build id or a file is missing").into())
            }
            Self::StatisticsRefused => (None, STATISTICS_REFUSED.into()),
            Self::FilesOverLimit(n) => n_words(n, FILES_OVER_LIMIT),
            Self::TablesOverLimit(n) => n_words(n, TABLES_OVER_LIMIT),
            Self::FilesTooSlow(n) => n_words(n, FILES_TOO_SLOW),
            Self::FilesNotParsed(n) => n_words(n, FILES_NOT_PARSED),
            Self::MappingsNotRecorded { mappings, samples } => {
                let limit = format!("of processes that made more than {EVENTS_A_SECOND} a second");
                (Some(*mappings), format!("mappings {limit} were not recorded; {samples} {MAPPINGS_UNKNOWN}").into())
            }
            Self::NamesNotRecorded(n) => names_not_recorded(*n),
            Self::ProcessEventsDropped(n) => n_words(n, "process events could not be written"),
        }
    }
}

fn names_not_recorded(n: u64) -> (Option<u64>, Cow<'static, str>) {
    let limit = format!("of processes that renamed their threads more than {EVENTS_A_SECOND} times a second");
    (Some(n), format!("names {limit} were not recorded; the last of each thread was").into())
}

const PROCESSES_NOT_FOLLOWED: &str = "processes were not followed, as the table of processes was full";
const PROCESSES_UNREADABLE: &str = "processes ended or were unreadable before their mappings were read; samples of these, if any, are truncated (process_gone)";
const COUNTER_SHARED: &str = "others use it too; samples of the other time are missing";
const CPUS_WITHOUT_RING: &str = "CPUs came online during the recording and have no ring buffer: their samples are \
    counted as lost (no_ring); record again";
const CPUS_NOT_WATCHED: &str =
    "CPUs that came online during the recording were not sampled: the kernel does not report them here";
const STACKS_SHED: &str = "stacks were copied in part because the ring buffer was filling up; use a larger -m";
const STILL_BLOCKED: &str = "threads were still blocked when the recording ended; their time until then counts";
const WAITS_NOT_FOLLOWED: &str =
    "threads that were already blocked at the start were not followed, as the table of blocked threads was full";
const KERNEL_NOT_SAMPLED: &str = "ticks in the kernel are not sampled or counted: that needs CAP_PERFMON (or: sysctl \
    kernel.perf_event_paranoid=1)";
const SMALL_RINGS: &str = "this user cannot lock more memory (see ulimit -l, kernel.perf_event_mlock_kb)";
const EVENTS_REMOVED: &str = "processes were not sampled after they executed a setuid program; record as root, with \
    eBPF or -a, to sample them";
const TABLES_REFUSED: &str = "files with JIT symbols (/tmp/perf-PID.map, jit-PID.dump) were ignored or cut: not a regular \
    file of the process's user, too large, with a line of more than 4 MiB, not a jitdump, or on a file system that did not \
    answer";
const DUMPS_CUT: &str = "jitdumps (jit-PID.dump) were read in part, up to a corrupt record or the size limit; later \
    code has no names";
const PARSER_FAILED: &str = "the process that parses files of the profiled programs crashed or took too long";
const FILES_OVER_LIMIT: &str = "mappings of files have no build id, and the files were not saved if they were deleted: one \
    user, or all together, ran too many files";
const TABLES_OVER_LIMIT: &str = "processes with JIT code or jitdumps were left out, and their code has no names: one user, or all \
    together, had too many; record fewer with -p";
const FILES_TOO_SLOW: &str =
    "times a file was left out, without build id or JIT symbols: the file systems of its user are too slow";
const FILES_NOT_PARSED: &str = "files were left out, as the process that parses files had taken too long for those of the \
    same user, or had failed too often on those or on all";
const MAPPINGS_UNKNOWN: &str = "of their samples came before their mappings were read from /proc again: names and \
    callers may be missing there";
const STATISTICS_REFUSED: &str = "BPF run time was not measured (--stats): that needs CAP_SYS_ADMIN";

/// The notes that a recording has: those that its own figures do not tell, in words.
pub(crate) fn recorded(notes: &[Note]) -> Vec<String> {
    let is_told = |note: &Note| match note {
        Note::TicksMissing(_) | Note::OccurrencesMissing(_) | Note::OverflowsMissing(_) | Note::CounterShared(_) => {
            true
        }
        // Replay counts them, and the start of the recording says so.
        Note::EventsRemovedByExec(_) | Note::StacksShed(_) | Note::KernelNotSampled => true,
        // Of the recorder, not of the recording.
        Note::TargetStillRuns | Note::SmallRings(_) | Note::StatisticsRefused => true,
        _ => false,
    };
    notes.iter().filter(|note| !is_told(note)).map(ToString::to_string).collect()
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(words) = self.of_one() {
            return f.write_str(words);
        }
        match self.text() {
            (Some(n), words) => write!(f, "{n} {words}"),
            (None, words) => f.write_str(&words),
        }
    }
}

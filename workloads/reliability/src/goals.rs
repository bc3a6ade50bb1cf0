//! The list of goals.

use crate::goal::{Goal, How};
use crate::{
    churn, clock, crash, files, fuzzed, many, mutants, neighbour, object, rights, ring, same, soak, sources, starved,
    stop,
};

const fn goal(id: &'static str, what: &'static str, goal: &'static str, how: How) -> Goal {
    Goal { id, what, goal, how }
}

/// Reliability, then security.
pub(crate) const GOALS: &[Goal] = &[
    goal(
        "R1",
        "1,000 recorders killed (SIGKILL) at random instants",
        "every file that was begun opens and adds up; at most 1 s lost",
        How::Measured(crash::kills),
    ),
    goal(
        "R2",
        "a recording cut at each of its last 65,536 bytes, and 10,000 changed bits",
        "all opens; a changed bit costs one block at most",
        How::Measured(crash::damage),
    ),
    goal(
        "R3",
        "writes that fail with ENOSPC or EIO from the Nth on, that fail once or are interrupted; a full disk; a limit to files",
        "no crash; what was written opens and adds up; what was not is counted",
        How::Measured(crash::faults),
    ),
    goal(
        "R4",
        "damaged perf.data files are imported",
        "no crash, none longer than 5 s, at most 256 MB",
        How::Measured(mutants::measure),
    ),
    goal(
        "R5",
        "`./dev fuzz`, all that was run in this folder",
        "at least 3 h, no failure",
        How::Measured(fuzzed::measure),
    ),
    goal(
        "R6",
        "recorders that are stopped, with the smallest ring, and CPUs that go off and come on, 3 recordings each",
        "each tick is accounted for in all of them",
        How::Measured(crash::balance),
    ),
    goal(
        "R7",
        "`record` with a ring of 8 KiB and chunks of 64 KiB",
        "refused with the size that is needed, which does",
        How::Measured(ring::measure),
    ),
    goal(
        "R8",
        "`record -a` in both modes while processes, threads and mappings are made without end, those at one place and anywhere, of \
         memory and of a program's code",
        "at most 64 MB with its parsers, not growing; at most 10 % of a CPU; no stack broken; report in 4 s CPU and 300 MB",
        How::Measured(churn::measure),
    ),
    goal(
        "R9",
        "`record -a` with a program of 2,000 libraries and 500 processes",
        "recorder and report take at most 256 MB each",
        How::Measured(many::measure),
    ),
    goal(
        "R10",
        "`record -a` for long (`--soak`) while programs and threads come and go, and programs' files are replaced and deleted",
        "at most 64 MB, growing by at most 1 MB an hour; descriptors do not grow; each tick is accounted for",
        How::Measured(soak::measure),
    ),
    goal(
        "R11",
        "a program in another time namespace, recorded from outside and from inside",
        "no sample outside of the recording's time",
        How::Measured(clock::measure),
    ),
    goal("R12", "a server that recordings are sent to fails", "bounded, nothing sent twice", How::NotBuilt),
    goal(
        "R13",
        "`record -a` is ended (SIGTERM) 100 times at random instants",
        "ends within 2 s; nothing is left in the kernel",
        How::Measured(stop::measure),
    ),
    goal("R14", "other kernels", "loads and records on all", How::By("./dev kernels")),
    goal(
        "R15",
        "stacks against the true ones",
        "at least 99.8 % exact, at most 0.05 % wrong without a flag",
        How::By("./dev truth"),
    ),
    goal(
        "R16",
        "one recording analysed again, on fewer CPUs, and by 1, 2 and 16 threads",
        "report, JSON, HTML, SVG and folded stacks have the same bytes",
        How::Measured(same::measure),
    ),
    goal(
        "R17",
        "`record -a -F 4999` beside 100 programs that compute, without and with a real-time priority (`-r 1`)",
        "each tick is accounted for, lost ones too, and it ends by itself; with `-r 1` at most 1 % lost",
        How::Measured(starved::measure),
    ),
    goal(
        "S1",
        "the rights of every thread that has BPF or perf descriptors open, while root records",
        "the 8 capabilities 0x1c400084024 at most, NoNewPrivs 1",
        How::Measured(rights::of_the_recorder),
    ),
    goal(
        "S2",
        "what parses foreign files: its rights, what it has open, and its end by a signal",
        "no rights, nothing open, costs one file",
        How::Tests(files::PARSERS),
    ),
    goal(
        "S3",
        "perf maps, jitdumps and mapped files replaced by links, pipes, devices and other users' files",
        "none is read",
        How::Tests(files::TRAPS),
    ),
    goal(
        "S4",
        "patterns on stacks, in registers and in deleted files",
        "none is in a recording",
        How::Tests(files::SECRETS),
    ),
    goal(
        "S5",
        "links, pipes and files of others in the place of outputs, in directories of everyone",
        "none is followed or written to; outputs have mode 0600",
        How::Tests(files::OUTPUTS),
    ),
    goal("S6", "an HTTP server", "local, with limits", How::NotBuilt),
    goal("S7", "recordings that are sent", "to the right server, in secret", How::NotBuilt),
    goal(
        "S8",
        "hostile names in terminal text, Markdown, JSON, folded stacks, SVG and HTML",
        "each is a name and nothing else",
        How::Tests(files::NAMES),
    ),
    goal(
        "S9",
        "symbols that are long, deep or grow when demangled, and hostile ELF files",
        "bounded names; 256 MB and 4 s of CPU a file",
        How::Tests(files::SYMBOLS),
    ),
    goal(
        "S10",
        "a program, while another user starts 500 programs of his as fast as he can and maps memory and code without end",
        "at least 80 % of the samples a CPU second, and of the complete stacks, that it has alone",
        How::Measured(neighbour::measure),
    ),
    goal(
        "S11",
        "programs that forbid others to look into them: by an ordinary user, and by root with defaults",
        "the ordinary user is refused or warned; root's recording has no stack bytes of them",
        How::Measured(rights::of_closed_programs),
    ),
    goal(
        "S12",
        "the BPF programs as the kernel has them while `record` runs",
        "none calls a helper that writes to programs' memory; nothing is pinned",
        How::Measured(object::measure),
    ),
    goal(
        "S13",
        "the test of where `unsafe` stands, Cargo.lock and Cargo.toml; known vulnerabilities are not looked up",
        "`unsafe` in four folders only; dependencies from the registry, by check sum; overflow checks",
        How::Measured(sources::measure),
    ),
];

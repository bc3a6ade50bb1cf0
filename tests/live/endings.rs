//! How recordings end on a signal, or if their output is not read. Loads the real BPF program.

use super::worker::children;
use crate::support::{
    ENDLESS, Ended, assert_balance, compile, fpprof, number, ran, report, wait_for_samples, wait_until,
};
use fpprof_recording::Recording;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};

fn kill(recorder: &Ended, signal: &str) {
    assert!(Command::new("kill").args([signal, &recorder.id().to_string()]).status().expect("kill starts").success());
}

/// Waits for a recorder to end; returns its status.
fn status_of(recorder: &mut Ended) -> Option<i32> {
    let mut status = None;
    wait_until("the recorder ends", || {
        status = recorder.try_wait().expect("its state");
        status.is_some()
    });
    status.and_then(|status| status.code())
}

fn record(file: &Path, command: &[&str]) -> Command {
    let mut record = fpprof();
    record.args(["record", "-q", "-o"]).arg(file).arg("--").args(command).stderr(Stdio::piped());
    record
}

/// Check that a recording whose terminal is closed ends in order, and that one under nohup continues.
#[test]
fn sighup_ends_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let mut recorder = Ended(record(&file, &ENDLESS).spawn().unwrap());
    wait_for_samples(&file);
    kill(&recorder, "-HUP");
    status_of(&mut recorder);
    let ended = report(&file, &[]);
    assert_balance(&ended);
    assert_eq!(ended["ended_in_order"], true, "{ended}");

    let file = dir.path().join("outlives");
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_fpprof")).args(["record", "-q", "-o"]).arg(&file).arg("--").args(ENDLESS);
    let mut recorder = Ended(nohup.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for_samples(&file);
    kill(&recorder, "-HUP");
    let before = number(&report(&file, &[]), "recorded");
    wait_until("more samples", || number(&report(&file, &[]), "recorded") > before);
    assert!(recorder.try_wait().unwrap().is_none(), "it runs on");
    kill(&recorder, "-TERM");
    status_of(&mut recorder);
    assert_eq!(report(&file, &[])["ended_in_order"], true);
}

/// Starts a process that computes until it is killed.
fn busy() -> Ended {
    Ended(Command::new(ENDLESS[0]).args(&ENDLESS[1..]).spawn().expect("perl starts"))
}

/// Check that a recording continues in further files, with either collector: each is complete, they are consecutive in
/// time, and the requested number is kept. The final signal ends the last one in order.
#[test]
fn recordings_in_several_files() {
    for collector in ["ebpf", "perf-event"] {
        let dir = tempfile::tempdir().unwrap();
        let files = || {
            let mut files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            files
        };
        let _busy = busy();
        let mut record = fpprof();
        record.args([
            "record",
            "-a",
            "--collector",
            collector,
            "--switch-output",
            "1s",
            "--switch-max-files",
            "2",
            "-o",
        ]);
        let mut recorder = Ended(record.arg(dir.path().join("run")).stderr(Stdio::null()).spawn().unwrap());
        wait_until("a first file", || !files().is_empty());
        let first = files()[0].clone();
        wait_until("the first file is removed", || !first.exists());
        kill(&recorder, "-TERM");
        assert_eq!(status_of(&mut recorder), Some(0), "{collector}");
        let files = files();
        assert_eq!(files.len(), 2, "{files:?}");
        let times = files.iter().map(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            let (date, time) = name.strip_prefix("run.").unwrap().split_once('T').unwrap();
            assert!(date.len() == 8 && time.get(6..7) == Some("Z"), "{name}");
            let report = report(file, &[]);
            assert_balance(&report);
            assert_eq!(report["ended_in_order"], true, "{report}");
            let recording = Recording::open(fs::File::open(file).unwrap()).unwrap();
            (recording.meta().start_ns, recording.end().unwrap().time_ns)
        });
        let times: Vec<_> = times.collect();
        assert!(times.is_sorted_by(|before, after| before.1 < after.0), "{times:?}");
    }
}

/// Check that a recording continues once it can create a file again: its directory is missing for a while.
#[test]
fn recordings_in_several_files_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (here, away) = (dir.path().join("here"), dir.path().join("away"));
    fs::create_dir(&here).unwrap();
    let n_files = || fs::read_dir(&here).map_or(0, Iterator::count);
    let _busy = busy();
    let mut record = fpprof();
    record.args(["record", "-q", "-a", "--switch-output", "1s", "-o"]).arg(here.join("run")).stderr(Stdio::piped());
    let mut recorder = Ended(record.spawn().unwrap());
    let mut output = BufReader::new(recorder.stderr.take().unwrap());
    wait_until("a second file", || n_files() > 1);
    fs::rename(&here, &away).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("not recording, trying again every second"), "{line}");
    fs::rename(&away, &here).unwrap();
    let before = n_files();
    wait_until("another file", || n_files() > before);
    kill(&recorder, "-TERM");
    assert_eq!(status_of(&mut recorder), Some(1), "a part of the time was not recorded");
    for entry in fs::read_dir(&here).unwrap() {
        assert_balance(&report(&entry.unwrap().path(), &[]));
    }
}

/// Check that a recording in several files ends after its duration, and that the size of the files is bounded.
#[test]
fn recordings_in_several_files_end() {
    let dir = tempfile::tempdir().unwrap();
    let _busy = busy();
    let mut record = fpprof();
    record.args(["record", "-a", "--keep-raw-stacks", "-F", "4999", "--switch-output", "1M", "--duration", "6", "-o"]);
    let ended = ran(record.arg(dir.path().join("run")));
    assert_eq!(ended.status, 0, "{}", ended.stderr);
    let files: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 1, "{}", ended.stderr);
    let reports: Vec<_> = files.iter().map(|file| report(file, &[])).collect();
    reports.iter().for_each(assert_balance);
    let by_time = reports.iter().filter(|report| !report["ended"].as_str().unwrap().contains("size limit")).count();
    assert!(by_time <= 1, "the last one may end by time");
}

/// Check that a file size limit loses only what goes beyond it.
#[test]
fn a_limit_to_the_size_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    // Many processes, for a lot of output; until nothing more is written.
    let busy = "while [ \"$(stat -c %s \"$1\")\" -lt 524288 ]; do :; done";
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 1024 && exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_fpprof"));
    limited.args(["record", "--keep-raw-stacks", "-o"]).arg(&file).args(["--", "sh", "-c", busy, "sh"]).arg(&file);
    let ran = ran(&mut limited);
    assert_eq!(ran.status, 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("File too large"), "{}", ran.stderr);
    let report = report(&file, &[]);
    assert_balance(&report);
    assert!(number(&report, "recorded") > 0, "{report}");
}

/// Check that a pipe that is not read, or no longer, does not keep a recording from ending.
#[test]
fn pipes_that_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for signal in ["-INT", "-TERM"] {
        let mut waiting = Ended(record(&pipe, &ENDLESS).spawn().unwrap());
        // Two of them are parsers.
        wait_until("the command is held", || children(waiting.id()).len() == 3);
        kill(&waiting, signal);
        assert_eq!(status_of(&mut waiting), Some(1), "nobody opened the pipe");

        let stuck = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let to_pipe = Ended(record(&pipe, &["sh", "-c", "while :; do /bin/true; done"]).spawn().unwrap());
        let mut to_stdout = record(Path::new("-"), &["sh", "-c", "while :; do /bin/true; done"]);
        let mut to_stdout = Ended(to_stdout.stdout(Stdio::piped()).spawn().unwrap());
        let stdout = to_stdout.stdout.take().unwrap();
        for (mut recorder, pipe) in [(to_pipe, stuck.as_fd()), (to_stdout, stdout.as_fd())] {
            // Only the writing end reports it.
            let end = format!("/proc/self/fd/{}", pipe.as_raw_fd());
            let end = OpenOptions::new().write(true).open(end).unwrap();
            let is_full = || poll(&mut [PollFd::new(&end, PollFlags::OUT)], Some(&Timespec::default())).unwrap() == 0;
            wait_until("the pipe is full", || is_full() && rustix::io::ioctl_fionread(pipe).unwrap() > 0);
            kill(&recorder, signal);
            assert_eq!(status_of(&mut recorder), Some(1), "nobody reads the pipe");
        }
    }
}

/// Check that a report opens no file named in a recording but regular files on disks, and of these only the mapped one,
/// identified by its inode: opening a device may have an effect, opening a pipe lets its writer continue, and reading a
/// kernel file may consume what others wait for.
#[test]
fn reports_open_files_only() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let (program, file) = (at("program"), at("recording"));
    fs::write(at("program.c"), "volatile long n; int main(void) { while (n++ < 1L << 28) ; }").unwrap();
    compile("gcc", &["-O1", "-Wl,--build-id=none"], &program, &at("program.c"));
    assert_eq!(ran(record(&file, &[program.to_str().unwrap()]).stdin(Stdio::null())).status, 0);
    // Otherwise the file system may give its inode number to the file that takes its place.
    fs::hard_link(&program, at("recorded")).unwrap();
    let pipe = || assert!(Command::new("mkfifo").arg(at("other")).status().unwrap().success());
    // Unused by other programs, so that only the report would open it.
    let kernel = || std::os::unix::fs::symlink("/proc/execdomains", at("other")).unwrap();
    let copy = || assert!(fs::copy("/bin/dash", at("other")).is_ok());
    let others: [(&dyn Fn(), &str); 3] =
        [(&pipe, "not a regular file"), (&kernel, "a /proc or /sys file"), (&copy, "replaced")];
    for (make, words) in others {
        make();
        fs::rename(at("other"), &program).unwrap();
        let events = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::NONBLOCK).unwrap();
        rustix::fs::inotify::add_watch(&events, &program, rustix::fs::inotify::WatchFlags::OPEN).unwrap();
        let report = report(&file, &[]);
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains(words), "{warnings}");
        let mut buffer = [0u8; 512];
        assert_eq!(rustix::io::read(&events, &mut buffer), Err(rustix::io::Errno::AGAIN), "{words}: it was opened");
        OpenOptions::new().read(true).write(words.starts_with("not")).open(&program).unwrap();
        assert!(rustix::io::read(&events, &mut buffer).is_ok(), "{words}: an opening is reported");
    }
}

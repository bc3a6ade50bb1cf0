//! `fpprof top` in a real terminal.

use super::worker::{assert_confined, children, status};
use crate::support::{bpf_ids, compile, fpprof, ran, source};
use fpprof_workloads::{build, programs};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A tmux terminal with a shell, on its own server.
struct Terminal {
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

/// The longest time for anything to appear, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

impl Terminal {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let terminal = Self { socket: directory.path().join("tmux"), _directory: directory };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "30", "env", "PS1=ready> ", "sh"]);
        terminal.wait("a shell", |screen| screen.contains("ready>"));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let output = Command::new("tmux").arg("-S").arg(&self.socket).args(arguments).output();
        let output = output.expect("these tests need tmux");
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.tmux(&["capture-pane", "-p"]).stdout).into_owned()
    }

    fn type_line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.tmux(&["send-keys", "Enter"]);
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Waits until the screen satisfies `is_it`, and returns it.
    fn wait(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is_it(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "{what} is not seen:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Checks that the shell has its terminal back: main screen, echo, line mode, cursor, and the exit status of the
    /// command.
    fn assert_restored(&self) {
        self.type_line("echo status=$?; stty -a");
        let screen = self.wait("the shell", |screen| screen.contains("status=0") && screen.contains("extproc"));
        for flag in ["icanon", "echo", "isig", "icrnl", "opost"] {
            assert!(screen.split_whitespace().any(|word| word == flag), "{flag}: {screen}");
        }
        let state = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(String::from_utf8_lossy(&state.stdout).trim(), "0 1", "screen and cursor");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(&self.socket).arg("kill-server").output();
    }
}

fn chain(directory: &Path) -> PathBuf {
    let program = programs().iter().find(|program| program.name == "leaf_with_frame").expect("a program of this name");
    build(program, directory).expect("the program builds")
}

/// The pid of the fpprof that runs in the terminal, identified by its command line.
fn fpprof_pid(marker: &str) -> Option<u32> {
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.get(1) == Some(&b"top".as_slice()) && words.contains(&marker.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

/// BPF programs that a process has open.
fn kernel_objects(pid: u32) -> Vec<String> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("descriptors");
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.map(|link| link.display().to_string()).filter(|link| link.contains("bpf-prog")).collect()
}

/// The second percentage of each row.
fn totals(screen: &str) -> Vec<f64> {
    let words = screen.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let second = |words: Vec<&str>| match words[..] {
        [_, "%", total, "%", ..] => Some(total.parse().expect("a share")),
        _ => None,
    };
    words.filter_map(second).collect()
}

fn is_loaded(id: &str) -> bool {
    let output = Command::new("bpftool").args(["prog", "show", "id", id]).output().expect("these tests need bpftool");
    output.status.success()
}

/// Check that the hot function of a known program is shown, with both kinds of stacks and with the keys that switch;
/// that a filter removes rows; and that `q` ends fpprof and the program, restores the terminal, and leaves nothing
/// loaded.
#[test]
fn shows_the_hot_function_and_obeys_keys() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = chain(directory.path());
    let terminal = Terminal::new();
    let marker = program.to_str().expect("a path");
    terminal.type_line(&format!("cd {}", directory.path().display()));
    terminal.type_line(&format!("{} top -F 499 -- {marker} 600", env!("CARGO_BIN_EXE_fpprof")));
    let row = |screen: &str, name: &str| {
        let is_it = |line: &&str| line.split_whitespace().any(|word| word == name) && line.contains(" % ");
        screen.lines().find(is_it).map(str::to_owned)
    };
    let own = |screen: &str| row(screen, "burn")?.split_whitespace().next()?.parse::<f64>().ok();
    let screen = terminal.wait("the hot function", |screen| own(screen).is_some_and(|own| own >= 80.0));
    for words in ["cfi: complete", "fp: complete", "0 lost", "own cost", "q quit", marker] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    let pid = fpprof_pid(marker).expect("it runs");
    let programs = bpf_ids("prog_id:", pid);
    assert!(!programs.is_empty() && !kernel_objects(pid).is_empty(), "it records with eBPF");

    terminal.press("t");
    terminal.wait("rows in the order of the second share", |screen| {
        let totals = totals(screen);
        screen.contains("total▼") && row(screen, "_start").is_some() && totals.is_sorted_by(|a, b| a >= b)
    });
    terminal.press("f");
    terminal.wait("stacks by frame pointers, without a root", |screen| {
        row(screen, "burn").is_some() && row(screen, "_start").is_none()
    });
    terminal.press("d");
    terminal.wait("the root again", |screen| row(screen, "_start").is_some());
    terminal.press("p");
    terminal.wait("the process", |screen| {
        screen.contains("process") && row(screen, "burn").is_some_and(|row| row.contains(" program "))
    });
    terminal.press("/");
    terminal.tmux(&["send-keys", "-l", "outer"]);
    terminal.press("Enter");
    terminal.wait("outer alone", |screen| row(screen, "outer").is_some() && row(screen, "burn").is_none());
    terminal.press("q");
    terminal.wait("the end", |screen| screen.contains("ready>") && !screen.contains("own cost"));
    terminal.assert_restored();
    let deadline = Instant::now() + PATIENCE;
    while programs.iter().any(|id| is_loaded(id)) {
        assert!(Instant::now() < deadline, "BPF programs are left behind: {programs:?}");
        std::thread::yield_now();
    }
    let left: Vec<_> = std::fs::read_dir(directory.path()).expect("the directory").flatten().collect();
    let names: Vec<_> = left.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(names, ["leaf_with_frame"], "no recording without -o");
}

/// Check that `top` parses files without privileges, in processes that are not sampled themselves; and that the
/// recording continues, with a message, if these die.
#[test]
fn files_are_parsed_without_privileges() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("kept");
    let marker = file.to_str().expect("a path");
    let terminal = Terminal::new();
    terminal.type_line(&format!("{} top -F 999 -a -o {marker}", env!("CARGO_BIN_EXE_fpprof")));
    terminal.wait("functions", |screen| screen.contains("cfi: complete"));
    let pid = fpprof_pid(marker).expect("it runs");
    let workers = children(pid);
    assert_eq!(workers.len(), 4, "one analyses, three parse for the recorder");
    for worker in &workers {
        assert_confined(&status(*worker));
        let killed = Command::new("kill").args(["-KILL", &worker.to_string()]).status().expect("kill");
        assert!(killed.success());
    }
    terminal.wait("that it died", |screen| screen.contains("recording goes on"));
    terminal.press("q");
    terminal.wait("the end", |screen| screen.contains("ready>") && screen.contains("recorded"));
    terminal.assert_restored();
    let summary = crate::support::report(&file, &[]);
    crate::support::assert_balance(&summary);
    let processes = summary["processes"].as_array().expect("processes");
    let is_worker = |process: &&serde_json::Value| process["comm"] == "fpprof-worker";
    let of_workers: Vec<_> = processes.iter().filter(is_worker).collect();
    // Their replacements are sampled.
    let is_sampled = |worker: &u32| of_workers.iter().any(|process| process["pid"] == *worker);
    assert!(!workers.iter().any(is_sampled), "{workers:?} are not sampled: {of_workers:?}");
}

/// Check that it ends with its terminal, rather than wait for keys; also if the terminal goes just after it was polled.
#[test]
fn ends_with_its_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = chain(directory.path());
    let marker = program.to_str().expect("a path");
    let library = directory.path().join("late_waits.so");
    compile("gcc", &["-O1", "-shared", "-fPIC"], &library, &source("late_waits.c"));
    for environment in [String::new(), format!("LD_PRELOAD={} ", library.display())] {
        let terminal = Terminal::new();
        terminal.type_line(&format!("{environment}{} top -- {marker} 600", env!("CARGO_BIN_EXE_fpprof")));
        terminal.wait("the view", |screen| screen.contains("own cost"));
        assert!(fpprof_pid(marker).is_some(), "it runs");
        drop(terminal);
        let deadline = Instant::now() + PATIENCE;
        while fpprof_pid(marker).is_some() {
            assert!(Instant::now() < deadline, "it goes on without a terminal: {environment}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Check that SIGTERM restores the terminal like `q`, and that with -o the recording is complete.
#[test]
fn sigterm_restores_the_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = chain(directory.path());
    let terminal = Terminal::new();
    let marker = program.to_str().expect("a path");
    let file = directory.path().join("kept");
    terminal.type_line(&format!("{} top -o {} -- {marker} 600", env!("CARGO_BIN_EXE_fpprof"), file.display()));
    terminal
        .wait("the hot function", |screen| screen.lines().any(|line| line.contains("burn") && line.contains(" % ")));
    let pid = fpprof_pid(marker).expect("it runs");
    let killed = Command::new("kill").arg(pid.to_string()).status().expect("kill");
    assert!(killed.success());
    terminal.wait("the end", |screen| screen.contains("ready>") && screen.contains("recorded"));
    terminal.assert_restored();
    let summary = crate::support::report(&file, &[]);
    crate::support::assert_balance(&summary);
    assert!(crate::support::number(&summary, "recorded") > 0);
}

/// Check that without a terminal there is a clear error, and nothing runs; and that usage errors are reported.
#[test]
fn needs_a_terminal() {
    let directory = tempfile::tempdir().expect("a directory");
    let started = directory.path().join("started");
    let refused = ran(fpprof().args(["top", "--", "touch"]).arg(&started));
    assert_eq!(refused.status, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("terminal") && refused.stderr.contains("fpprof record"), "{}", refused.stderr);
    assert!(!started.exists(), "the command ran");
    let help = ran(fpprof().args(["top", "--help"]));
    for words in ["q quit", "-p", "--call-graph", "Examples"] {
        assert!(help.stdout.contains(words), "{words}: {}", help.stdout);
    }
}

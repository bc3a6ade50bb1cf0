//! Runs `fpprof serve`, and writes stores for it.

use super::stored::{self, Rows};
use super::{Ended, fpprof, wait_until};
use fpprof_reports::parquet::stacks;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A running server.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) server: Ended,
    /// `http` or `https`; empty on a Unix socket.
    pub(crate) scheme: String,
    /// Address, such as `127.0.0.1:7475`.
    pub(crate) address: String,
    /// Lines that it printed after it listened.
    messages: Arc<Mutex<Vec<String>>>,
}

impl Serving {
    /// Starts a server and waits until it listens.
    pub(crate) fn start(path: &Path) -> Self {
        Self::started(fpprof().args(["serve", "--listen", "127.0.0.1:0"]).arg(path))
    }

    pub(crate) fn started(command: &mut Command) -> Self {
        let mut server = Ended(command.stderr(Stdio::piped()).spawn().expect("it starts"));
        let mut output = BufReader::new(server.stderr.take().expect("its messages"));
        let mut all = String::new();
        while !all.contains("fpprof: http") && !all.contains("fpprof: unix:") {
            let n = output.read_line(&mut all).expect("a message");
            assert!(n > 0, "it ended: {all}");
        }
        let messages = Arc::new(Mutex::new(Vec::new()));
        let its = Arc::clone(&messages);
        // To the end, so that the server cannot block on a full pipe.
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| its.lock().expect("no panic").push(line));
        });
        let (scheme, address) = all.rsplit_once("://").map_or(("", ""), |(before, address)| {
            (before.rsplit_once(' ').map_or("", |(_, scheme)| scheme), address.trim_end().trim_end_matches('/'))
        });
        Self { server, scheme: scheme.to_owned(), address: address.to_owned(), messages }
    }

    /// Sends a request line with these header lines; returns the status, the body and the head of the answer.
    pub(crate) fn request(&self, first: &str, headers: &str) -> (u16, String, String) {
        let mut connection = TcpStream::connect(&self.address).expect("it listens");
        connection.set_read_timeout(Some(Duration::from_secs(100))).expect("a time");
        write!(connection, "{first} HTTP/1.1\r\n{headers}\r\n").expect("sent");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned(), head.to_owned())
    }

    /// Sends a query, such as `flamegraph?host=a`; returns the status and the answer.
    pub(crate) fn ask(&self, question: &str) -> (u16, Value) {
        let (status, body, _) = self.request(&format!("GET /api/{question}"), "Host: localhost\r\n");
        (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
    }

    /// Sends a valid query; returns the answer.
    pub(crate) fn answer(&self, question: &str) -> Value {
        let (status, answer) = self.ask(question);
        assert_eq!(status, 200, "{question}: {answer}");
        answer
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.server.id().cast_signed()), signal).expect("it runs");
    }

    /// Waits until it has printed this.
    pub(crate) fn wait_for(&self, words: &str) {
        let is_printed = || self.messages.lock().expect("no panic").iter().any(|line| line.contains(words));
        wait_until(words, is_printed);
    }

    /// Ends the server by a signal, as systemd or a user would.
    pub(crate) fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.server.wait().expect("it ends")
    }
}

/// Writes the stacks of a one-minute interval into a store, with rows for each strategy.
pub(crate) fn write_stacks(store: &Path, minute: u64, host: &str, strategies: &[(&str, Rows<'_>)]) {
    write_weighed(store, minute, host, strategies, 10);
}

/// The same, with a weight of `each` for a sample.
pub(crate) fn write_weighed(store: &Path, minute: u64, host: &str, strategies: &[(&str, Rows<'_>)], each: u64) {
    let began = stored::NOON_US + minute * 60_000_000;
    let mut profiles: Vec<_> =
        strategies.iter().map(|(strategy, rows)| stored::profile(began, host, strategy, rows)).collect();
    for sample in profiles.iter_mut().flat_map(|profile| &mut profile.samples) {
        sample.weight = sample.samples * each;
    }
    let mut bytes = Vec::new();
    stacks::write(&profiles, &mut bytes).expect("a table");
    let day = store.join("stacks/day=2026-11-26");
    std::fs::create_dir_all(&day).expect("a directory");
    std::fs::write(day.join(format!("12{minute:02}00.000000Z-{host}.parquet")), bytes).expect("written");
}

//! Tests of `fpprof agent`: whatever happens, all it records is in its store or counted.

mod ends;

use crate::support::serving::Serving;
use crate::support::{ENDLESS, Ended, fpprof, ran, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// An agent with its own store, and a program that computes.
pub(crate) struct Agent {
    agent: Ended,
    busy: Ended,
    address: SocketAddr,
    pub(crate) directory: tempfile::TempDir,
}

/// The content of a store.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Samples by strategy.
    pub(crate) samples: BTreeMap<String, i64>,
    /// Samples of the program that computes, by strategy and class of stack.
    of_busy: BTreeMap<(String, String), i64>,
    pub(crate) functions: BTreeSet<String>,
    cgroups: BTreeSet<String>,
    labels: BTreeSet<(String, String)>,
    /// Causes of lost or discarded samples.
    causes: BTreeSet<String>,
    /// Sums by counter, over all events and causes.
    pub(crate) counters: BTreeMap<String, i64>,
    /// Requests in the spool.
    pub(crate) waiting: Vec<Vec<u8>>,
}

impl Agent {
    /// Starts an agent with intervals of a second, and these lines before the rest of the configuration.
    pub(crate) fn start(settings: &str, environment: &[(&str, &Path)]) -> Self {
        Self::start_as(fpprof(), settings, environment)
    }

    /// Likewise, with a command that starts fpprof.
    fn start_as(command: Command, settings: &str, environment: &[(&str, &Path)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.expect("an address");
        Self::configured(&directory, settings, address);
        let agent = Self::started(command, &directory, environment);
        let [program, arguments @ ..] = ENDLESS;
        let busy =
            Command::new(program).args(arguments).env("FPPROF_TEAM", "web").env("FPPROF_OTHER", "x-secret").spawn();
        let busy = Ended(busy.expect("it starts"));
        Self { agent, busy, address, directory }
    }

    fn started(mut command: Command, directory: &tempfile::TempDir, environment: &[(&str, &Path)]) -> Ended {
        let log = File::options().create(true).append(true).open(directory.path().join("log")).expect("a log");
        let agent = command
            .args(["agent", "--config"])
            .arg(directory.path().join("agent.toml"))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Ended(agent.expect("it starts"))
    }

    /// Starts an agent with other settings over the same store, after [`Self::stop`].
    pub(crate) fn start_again(&mut self, settings: &str) {
        self.configure(settings);
        self.agent = Self::started(fpprof(), &self.directory, &[]);
        wait_until("it answers", || self.get("/-/healthy").is_some());
    }

    fn configured(directory: &tempfile::TempDir, settings: &str, address: SocketAddr) -> PathBuf {
        let (file, store) = (directory.path().join("agent.toml"), directory.path().join("store"));
        let text = format!(
            "interval = \"1s\"\n{settings}\n[store]\npath = \"{}\"\n[http]\nlisten = \"{address}\"\n\
             [limits]\ncpu-percent = 100.0\nmemory = \"64G\"\n",
            store.display()
        );
        std::fs::write(&file, text).expect("a configuration");
        file
    }

    pub(crate) fn configure(&self, settings: &str) {
        Self::configured(&self.directory, settings, self.address);
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.directory.path().join("store")
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).expect("a log")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.agent.id().cast_signed()), signal).expect("it runs");
    }

    /// Requests a path; returns the status line and the body.
    pub(crate) fn get(&self, path: &str) -> Option<(String, String)> {
        let mut connection = TcpStream::connect(self.address).ok()?;
        connection.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
        write!(connection, "GET {path} HTTP/1.1\r\nHost: fpprof\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.lines().next()?.to_owned(), body.to_owned()))
    }

    /// The value of a metric, summed over all labels not given in `name`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics").unwrap_or_default();
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        let value = |line: &str| line.rsplit_once(' ').and_then(|(_, value)| value.parse::<f64>().ok());
        text.lines().filter(of_name).filter_map(value).sum()
    }

    /// Waits until `n` more samples are stored.
    pub(crate) fn wait_for_samples(&self, n: f64) {
        let before = self.metric("fpprof_samples_stored_total");
        wait_until("samples are stored", || self.metric("fpprof_samples_stored_total") >= before + n);
    }

    /// Stops the agent by SIGTERM.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        let status = self.agent.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.log());
    }

    /// Reads the store.
    pub(crate) fn stored(&self) -> Stored {
        self.stored_in(&self.store())
    }

    /// Reads tables in a directory like the store.
    pub(crate) fn stored_in(&self, directory: &Path) -> Stored {
        read(directory, self.busy.id())
    }

    /// Stops the agent and reads the store.
    pub(crate) fn end(mut self) -> Stored {
        self.stop();
        self.stored()
    }
}

/// Reads the rows of all files of a table.
fn rows(table: &Path) -> Vec<Row> {
    let days = std::fs::read_dir(table).expect("a table").flatten();
    let files = days.flat_map(|day| std::fs::read_dir(day.path()).expect("a day").flatten()).map(|file| file.path());
    files
        // Not the files that the agent is still writing.
        .filter(|path| path.extension().is_some_and(|extension| extension == "parquet"))
        .flat_map(|path| {
            let file = File::open(path).expect("a file of the table");
            let reader = SerializedFileReader::new(file).expect("Parquet");
            reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect::<Vec<_>>()
        })
        .collect()
}

fn field<'a>(row: &'a Row, name: &str) -> &'a Field {
    row.get_column_iter().find(|(column, _)| *column == name).expect("a column of this name").1
}

fn text(row: &Row, name: &str) -> String {
    let Field::Str(text) = field(row, name) else { panic!("{name}: {row}") };
    text.clone()
}

fn number(row: &Row, name: &str) -> i64 {
    let Field::Long(number) = field(row, name) else { panic!("{name}: {row}") };
    *number
}

/// Reads a store; `busy` is a process whose samples are also counted apart.
pub(crate) fn read(store: &Path, busy: u32) -> Stored {
    let mut stored = Stored::default();
    for row in &rows(&store.join("stacks")) {
        let (strategy, samples) = (text(row, "strategy"), number(row, "samples"));
        *stored.samples.entry(strategy.clone()).or_default() += samples;
        if number(row, "pid") == i64::from(busy) {
            *stored.of_busy.entry((strategy, text(row, "stack"))).or_default() += samples;
            stored.cgroups.insert(text(row, "cgroup"));
            let Field::MapInternal(labels) = field(row, "labels") else { panic!("{row}") };
            let word = |word: &Field| word.to_string().trim_matches('"').to_owned();
            stored.labels.extend(labels.entries().iter().map(|(name, value)| (word(name), word(value))));
            let Field::ListInternal(functions) = field(row, "functions") else { panic!("{row}") };
            let names = functions.elements().iter().map(|name| name.to_string().trim_matches('"').to_owned());
            stored.functions.extend(names);
        }
    }
    for row in &rows(&store.join("counters")) {
        *stored.counters.entry(text(row, "counter")).or_default() += number(row, "value");
        stored.causes.insert(text(row, "cause"));
    }
    let waiting = std::fs::read_dir(store.join("spool")).into_iter().flatten().flatten();
    stored.waiting = waiting.map(|file| std::fs::read(file.path()).expect("a request")).collect();
    stored
}

impl Stored {
    pub(crate) fn counter(&self, name: &str) -> i64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Checks that every tick of all intervals is counted, and that every stored sample is in the table under each
    /// strategy.
    pub(crate) fn assert_balance(&self) {
        let count = |name| self.counter(name);
        let ticks = count("recorded") + count("lost") + count("skipped") + count("dropped") + count("unread");
        assert_eq!(count("fired"), ticks, "{:?}", self.counters);
        assert_eq!(
            count("unread"),
            0,
            "what was unread at the end of an interval is in a later one: {:?}",
            self.counters
        );
        assert_eq!(count("recorded"), count("stored") + count("discarded"), "{:?}", self.counters);
        assert!(!self.causes.contains("unknown") && !self.causes.contains("damaged"), "{:?}", self.causes);
        for (strategy, &samples) in &self.samples {
            assert_eq!(samples, count("stored"), "{strategy}: {self:?}");
        }
        assert!(count("stored") > 0, "{self:?}");
    }
}

/// Check that connections cannot use up the agent's descriptors, and that it answers again once they are closed.
#[test]
fn connections_are_few() {
    let agent = Agent::start("rate = 49\ncall-graph = \"fp\"", &[]);
    agent.wait_for_samples(1.0);
    let is_socket =
        |path: PathBuf| std::fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
    let sockets = || {
        let files = std::fs::read_dir(format!("/proc/{}/fd", agent.agent.id())).expect("descriptors").flatten();
        files.filter(|file| is_socket(file.path())).count()
    };
    let before = sockets();
    let connections: Vec<_> = (0..100).map(|_| TcpStream::connect(agent.address)).collect();
    wait_until("connections are accepted", || sockets() >= before + 10);
    // If the remaining connections were accepted at all, it would be within this second.
    std::thread::sleep(Duration::from_secs(1));
    assert!(sockets() < before + 60, "{before} and {}", sockets());
    drop(connections);
    agent.wait_for_samples(1.0);
    agent.end().assert_balance();
}

/// Check that every sample is stored under each strategy, that ticks add up, that a program whose libraries have no
/// frame pointers has its functions and complete stacks, that the metrics agree, and that the health check succeeds.
#[test]
fn what_is_recorded_is_stored() {
    let agent = Agent::start("rate = 199", &[]);
    agent.wait_for_samples(200.0);
    let healthy = agent.get("/-/healthy").expect("an answer");
    assert_eq!(healthy, ("HTTP/1.1 200 OK".to_owned(), "healthy\n".to_owned()));
    let [before, in_metrics, after] = std::array::from_fn(|n| match n {
        1 => agent.metric("fpprof_samples_recorded_total"),
        _ => agent.metric("fpprof_intervals_total"),
    });
    assert!(before >= 1.0 && after >= before && in_metrics > 0.0);
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", agent.busy.id())).expect("its control groups");
    let stored = agent.end();
    stored.assert_balance();
    let is_group = |cgroup: &String| groups.lines().any(|line| line.ends_with(&format!(":{cgroup}")));
    assert!(stored.cgroups.iter().all(is_group), "{:?}: {groups}", stored.cgroups);
    assert!(stored.counter("recorded") as f64 >= in_metrics, "{in_metrics}: {stored:?}");
    let strategies: Vec<&str> = stored.samples.keys().map(String::as_str).collect();
    assert!(strategies.contains(&"fp") && strategies.len() == 2, "{strategies:?}");
    let other = strategies.iter().find(|&&name| name != "fp").expect("another one");
    let of = |stack: &str| stored.of_busy.get(&((*other).to_owned(), stack.to_owned())).copied().unwrap_or(0);
    let rest: i64 = ["truncated", "broken"].iter().map(|stack| of(stack)).sum();
    assert!(of("complete") > 0 && rest * 100 <= of("complete"), "{:?}", stored.of_busy);
    assert!(stored.functions.contains("Perl_runops_standard"), "{:?}", stored.functions);
}

/// Check that a process has labels from its environment and its control group, that it gets others with another program, that a value
/// that is too long is counted, that the page can select a label, and that nothing else of the environment is in the store.
#[test]
fn processes_have_labels() {
    const RULES: &str = "[[label]]\nname = \"team\"\nenvironment = \"FPPROF_TEAM\"\n\
                         [[label]]\nname = \"group\"\ncgroup = '^(.+)$'";
    let mut agent = Agent::start(&format!("rate = 199\n{RULES}"), &[]);
    let long = Command::new("perl").args(&ENDLESS[1..]).env("FPPROF_TEAM", "x".repeat(300)).spawn();
    let _long = Ended(long.expect("perl starts"));
    let script = "alarm 200; for (1 .. 3e6) {} $ENV{FPPROF_TEAM} = 'db'; exec 'perl', '-e', 'alarm 200; while (1) {}'";
    let changing = Command::new("perl").args(["-e", script]).env("FPPROF_TEAM", "first").spawn();
    let changing = Ended(changing.expect("perl starts"));
    let left_out = "fpprof_labels_left_out_total{label=\"team\",cause=\"too_long\"}";
    wait_until("a value is left out", || agent.metric(left_out) > 0.0);
    let stacks = agent.store().join("stacks");
    let team = |row: &Row| {
        let Field::MapInternal(labels) = field(row, "labels") else { panic!("{row}") };
        let of = |wanted: &str| labels.entries().iter().find(|(name, _)| *name == Field::Str(wanted.to_owned()));
        of("team").map(|(_, value)| value.clone())
    };
    wait_until("the second program has its own label", || {
        let of_changing = |row: &&Row| number(row, "pid") == i64::from(changing.id());
        rows(&stacks).iter().filter(of_changing).any(|row| team(row) == Some(Field::Str("db".to_owned())))
    });
    agent.stop();
    let stored = agent.stored();
    stored.assert_balance();
    let group = stored.cgroups.first().expect("a group").clone();
    let expected =
        [("group", group.as_str()), ("team", "web")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(stored.labels, expected.into());
    let all = rows(&stacks);
    assert!(all.iter().all(|row| !row.to_string().contains("x-secret")));
    let of_web = |row: &&Row| team(row) == Some(Field::Str("web".to_owned())) && text(row, "strategy") == "fp";
    let samples: i64 = all.iter().filter(of_web).map(|row| number(row, "samples")).sum();
    let mut serving = Serving::start(&agent.store());
    let teams = serving.answer("facets?strategy=fp&event=cpu-clock")["labels"]["team"].clone();
    let shown =
        |name: &str| teams.as_array().unwrap().iter().find(|team| team["name"] == name).unwrap()["samples"].clone();
    assert_eq!(shown("web"), samples);
    // Those without the label can be chosen, too.
    for name in ["web", ""] {
        let total = &serving.answer(&format!("flamegraph?label.team={name}&strategy=fp&event=cpu-clock"))["total"];
        assert_eq!(*total, shown(name), "{name}");
    }
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
}

/// Check that `--check` and `doctor` say how the agent would sample, as it then does, and whether it can write its store.
#[test]
fn it_says_how_it_would_sample() {
    let agent = Agent::start("rate = 49", &[]);
    agent.wait_for_samples(1.0);
    let config = agent.directory.path().join("agent.toml");
    let checked = ran(fpprof().args(["agent", "--check", "--config"]).arg(&config));
    assert_eq!(checked.status, 0, "{}", checked.stderr);
    let mode = checked
        .stderr
        .lines()
        .find_map(|line| line.strip_prefix("fpprof: as this user it would sample by "))
        .expect("a mode");
    let mode = mode.strip_suffix(" with eBPF").expect("eBPF");
    assert!(checked.stderr.contains(&format!("can write to {}", agent.store().display())), "{}", checked.stderr);
    assert!(agent.log().contains(&format!("fpprof: --call-graph {mode}: ")), "{mode}: {}", agent.log());
    let doctor = ran(fpprof().arg("doctor"));
    assert!(doctor.stdout.contains("\nagent      would sample by "), "{}", doctor.stdout);
    let other = config.with_file_name("other.toml");
    std::fs::write(&other, format!("call-graph = \"fp\"\n[store]\npath = \"{}/store\"\n", config.display()))
        .expect("written");
    let checked = ran(fpprof().args(["agent", "--check", "--config"]).arg(&other));
    let words = ["as this user it would sample by fp with eBPF", "as this user it cannot write to "];
    assert!(words.iter().all(|words| checked.stderr.contains(words)), "{}", checked.stderr);
    agent.end().assert_balance();
}

/// Check that the files of an hour that is over are merged, that whoever asks meanwhile gets the same totals, and that the store has
/// every row afterwards.
#[test]
fn hours_are_merged() {
    let mut agent = Agent::start("rate = 99\ncall-graph = \"fp\"", &[]);
    wait_until("intervals end", || agent.metric("fpprof_intervals_total") >= 6.0);
    agent.stop();
    let before = agent.stored();
    // As if that had been long ago.
    for table in ["stacks", "counters"].map(|table| agent.store().join(table)) {
        for (day, number) in std::fs::read_dir(&table).expect("a table").flatten().zip(1..) {
            std::fs::rename(day.path(), table.join(format!("day=2020-01-0{number}"))).expect("renamed");
        }
    }
    let store = agent.store();
    let of_that_day = || {
        let files = walkdir::WalkDir::new(&store).min_depth(3).max_depth(3).into_iter().flatten();
        let files = files.filter(|file| file.path().parent().is_some_and(|day| day.ends_with("day=2020-01-01")));
        files.map(|file| file.path().strip_prefix(&store).expect("below").to_owned()).collect::<Vec<_>>()
    };
    let n_before = of_that_day().len();
    let hours = |files: &[PathBuf]| -> BTreeSet<PathBuf> {
        let hour = |file: &PathBuf| file.with_file_name(&file.file_name().expect("a name").to_string_lossy()[..2]);
        files.iter().map(hour).collect()
    };
    let n_hours = hours(&of_that_day()).len();
    assert!(n_before >= n_hours + 4, "{:?}", of_that_day());
    let mut serving = Serving::start(&agent.store());
    let samples = before.samples["fp"];
    agent.start_again("rate = 49\ncall-graph = \"dwarf,16K\"");
    wait_until("each hour has one file", || {
        let answer = serving.answer("flamegraph?strategy=fp&event=cpu-clock");
        assert_eq!((&answer["total"], &answer["files"]["unread"]["count"]), (&json!(samples), &json!(0)), "{answer}");
        let files = of_that_day();
        files.len() == hours(&files).len() && files.len() == n_hours
    });
    // A file can be seen a moment before it is counted.
    wait_until("both tables are counted", || agent.metric("fpprof_store_compactions_total{outcome=\"merged\"}") >= 2.0);
    for outcome in ["damaged", "shared", "refused", "failed"] {
        assert_eq!(agent.metric(&format!("fpprof_store_compactions_total{{outcome=\"{outcome}\"}}")), 0.0, "{outcome}");
    }
    assert_eq!(serving.answer("flamegraph?strategy=fp&event=cpu-clock")["total"], samples);
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
    agent.stop();
    let stored = agent.stored();
    let of_fp = |stored: &Stored| -> Vec<_> {
        let counts = stored.of_busy.clone().into_iter();
        counts.filter(|((strategy, _), _)| strategy == "fp").collect()
    };
    assert_eq!((stored.samples["fp"], of_fp(&stored)), (samples, of_fp(&before)));
    assert_eq!(stored.counter("stored"), samples + stored.samples["dwarf"]);
    assert_eq!(stored.counter("recorded"), stored.counter("stored") + stored.counter("discarded"));
}

/// Check that waits are stored too, each with its duration, separately from CPU samples.
#[test]
fn waits_are_stored() {
    let agent = Agent::start("rate = 49\noff-cpu = \"1ms\"", &[]);
    let resting = Command::new("perl").args(["-e", "alarm 200; select(undef, undef, undef, 0.02) while 1"]).spawn();
    let resting = Ended(resting.expect("perl starts"));
    // Until there is a table.
    agent.wait_for_samples(1.0);
    wait_until("waits are stored", || {
        let stacks = agent.store().join("stacks");
        let is_wait = |row: &Row| {
            text(row, "event") == "off-cpu"
                && number(row, "pid") == i64::from(resting.id())
                && text(row, "weight_unit") == "blocked_ns"
                && number(row, "weight") >= 1_000_000
        };
        rows(&stacks).iter().any(is_wait)
    });
    agent.end().assert_balance();
}

/// Check that SIGHUP changes the rate, that an invalid file changes nothing and is reported, that the recording goes on if
/// the file is unchanged, and that the balance is exact over all recordings.
#[test]
fn settings_are_read_again() {
    // With rules, the recording would start again once they no longer fit into its table.
    let rate = |rate: u32| format!("rate = {rate}\ncall-graph = \"fp\"");
    let agent = Agent::start(&rate(99), &[]);
    agent.wait_for_samples(50.0);
    agent.configure(&rate(100_000));
    agent.signal(Signal::SIGHUP);
    wait_until("the mistake is named", || agent.log().contains("rate: choose 1 to 999"));
    assert_eq!(agent.metric("fpprof_sampling_rate_hertz"), 99.0);
    agent.configure(&rate(99));
    agent.signal(Signal::SIGHUP);
    wait_until("it is read", || agent.log().contains("it is unchanged"));
    agent.wait_for_samples(50.0);
    assert_eq!(agent.metric("fpprof_not_sampled_seconds_total"), 0.0, "the recording goes on");
    agent.configure(&rate(499));
    agent.signal(Signal::SIGHUP);
    wait_until("the rate changes", || agent.metric("fpprof_sampling_rate_hertz") == 499.0);
    agent.wait_for_samples(200.0);
    wait_until("the pause is counted", || agent.metric("fpprof_not_sampled_seconds_total") > 0.0);
    agent.end().assert_balance();
}

/// Check that a configuration that cannot be recorded with leaves the previous one in effect, and that an agent that is
/// asked to stop, or to read another configuration, does so at whatever point of that.
#[test]
fn configurations_that_fail_are_taken_back() {
    let without_bpf = || {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", "-bpf,-sys_admin", env!("CARGO_BIN_EXE_fpprof")]);
        Agent::start_as(command, "rate = 99\ncall-graph = \"fp\"", &[])
    };
    let n_read = |agent: &Agent| agent.log().matches("read the configuration again").count();
    let reload = |agent: &Agent, settings: &str| {
        let before = n_read(agent);
        agent.configure(settings);
        agent.signal(Signal::SIGHUP);
        wait_until("it is read", || n_read(agent) > before);
    };
    let agent = without_bpf();
    for (wait_ms, rate) in [(0, 101), (20, 102), (40, 103), (80, 104), (160, 105)] {
        let mut stopped = without_bpf();
        stopped.wait_for_samples(10.0);
        reload(&stopped, "call-graph = \"cfi\"");
        reload(&agent, "call-graph = \"cfi\"");
        std::thread::sleep(Duration::from_millis(wait_ms));
        stopped.stop();
        reload(&agent, &format!("rate = {rate}\ncall-graph = \"fp\""));
        wait_until("the last one is used", || agent.metric("fpprof_sampling_rate_hertz") == f64::from(rate));
        agent.wait_for_samples(10.0);
        stopped.stored().assert_balance();
    }
    let n_taken_back = || agent.log().matches("the previous configuration stays in effect").count();
    let before = n_taken_back();
    reload(&agent, "call-graph = \"cfi\"");
    wait_until("it is taken back", || n_taken_back() > before);
    wait_until("it samples as before", || agent.metric("fpprof_sampling_rate_hertz") == 105.0);
    agent.wait_for_samples(10.0);
    agent.end().assert_balance();
}

/// Check that samples that cannot be written are counted as discarded, that this is printed once, and that storing
/// resumes when writing is possible again.
#[test]
fn a_store_that_fails_is_counted() {
    let agent = Agent::start("rate = 199\ncall-graph = \"fp\"", &[]);
    agent.wait_for_samples(50.0);
    let stacks = agent.store().join("stacks");
    let aside = agent.store().join("aside");
    std::fs::rename(&stacks, &aside).expect("moved");
    std::fs::write(&stacks, "in the way").expect("written");
    wait_until("samples are discarded", || agent.metric("fpprof_store_errors_total") >= 3.0);
    std::fs::remove_file(&stacks).expect("removed");
    std::fs::rename(&aside, &stacks).expect("moved back");
    agent.wait_for_samples(50.0);
    assert_eq!(agent.log().matches("what cannot be stored is counted").count(), 1, "{}", agent.log());
    let stored = agent.end();
    assert!(stored.counter("discarded") > 0, "{stored:?}");
    stored.assert_balance();
}

/// Check that invalid configurations are refused before anything is recorded, with advice.
#[test]
fn wrong_configurations_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("agent.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("a configuration");
        ran(fpprof().args(["agent", "--check", "--config"]).arg(&file))
    };
    let valid = check("rate = 49\n");
    assert_eq!(valid.status, 0, "{}", valid.stderr);
    assert!(valid.stderr.contains("the configuration is valid: 49 Hz"), "{}", valid.stderr);
    for (text, words) in [
        ("rate = ", "TOML parse error"),
        ("rat = 19", "unknown field `rat`"),
        ("[http]\nlisten = \"0.0.0.0:7474\"", "is no loopback address"),
        ("call-graph = \"dwarf,1\"", "cannot copy 1 bytes"),
    ] {
        let refused = check(text);
        assert_eq!(refused.status, 1, "{text}: {}", refused.stderr);
        assert!(refused.stderr.contains(words) && refused.stderr.contains("agent.toml"), "{text}: {}", refused.stderr);
    }
    let missing = ran(fpprof().args(["agent", "--config", "/nonexistent/agent.toml"]));
    assert!(missing.status == 1 && missing.stderr.contains("/nonexistent/agent.toml"), "{}", missing.stderr);
}

//! Tests of `--debuginfod` and of the agent's `[debuginfod]`: missing files come from a server, by build id. `just debuginfod` tests elfutils' own
//! server.

use crate::agent::{Agent, read};
use crate::support::{Ended, compile, fpprof, ran, record, wait_until};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Serves the files below a directory; returns the address and the list of requested paths.
fn serve(dir: PathBuf) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            its.lock().expect("no panic").extend(answer(stream, &dir));
        }
    });
    (url, asked)
}

fn answer(stream: TcpStream, dir: &Path) -> Option<String> {
    let mut stream = BufReader::new(stream);
    let mut lines = stream.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let first = lines.next()?;
    lines.for_each(drop);
    let path = first.split(' ').nth(1)?.to_owned();
    let (status, body) = match std::fs::read(dir.join(path.trim_start_matches('/'))) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let stream = stream.get_mut();
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok()?;
    Some(path)
}

const BUILD_ID: &str = "0123456789abcdef0123456789abcdef01234567";

/// Compiles a program of `main` and `inner` with [`BUILD_ID`], and strips it; its debug information is below `served`. It
/// counts to so many thousands.
fn stripped(dir: &Path, thousands: u64) -> PathBuf {
    let (program, source) = (dir.join("program"), dir.join("program.c"));
    let text = format!(
        "static __attribute__((noinline)) void inner(volatile long *n) {{ for (int i = 0; i < 1000; i++) ++*n; }}
        int main(void) {{ volatile long n = 0; while (n < {thousands}000) inner(&n); return 0; }}"
    );
    std::fs::write(&source, text).expect("written");
    compile("gcc", &["-O2", "-g", &format!("-Wl,--build-id=0x{BUILD_ID}")], &program, &source);
    let files = dir.join("served/buildid").join(BUILD_ID);
    std::fs::create_dir_all(&files).expect("made");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(files.join("debuginfo")));
    run(Command::new("objcopy").arg("--strip-all").arg(&program));
    program
}

fn run(command: &mut Command) {
    assert!(command.status().expect("it starts").success(), "{command:?}");
}

/// Check that functions of a program that is stripped, and then removed, are named by the server's files, that each
/// file is requested once and stays in the cache, that an archive contains it, and that nothing is requested without
/// the option.
#[test]
fn missing_files_come_from_a_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let (cache, file) = (at("cache"), at("run.fpprof"));
    let program = stripped(dir.path(), 600_000);
    record(&file, &["--call-graph", "dwarf"], &[program.to_str().expect("UTF-8")]);
    let (url, asked) = serve(at("served"));
    let asked = || std::mem::take(&mut *asked.lock().expect("no panic"));
    let with = |args: &[&str], file: &Path| {
        let mut command = fpprof();
        command.args(args).arg(file).env("DEBUGINFOD_URLS", &url).env("DEBUGINFOD_CACHE_PATH", &cache);
        // The user's cache of perf may have the program, if perf recorded the machine meanwhile.
        command.env("HOME", dir.path());
        let ran = ran(&mut command);
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        ran.stdout
    };
    let export = ["export", "--lines", "--comm", "program"];
    let fetching = ["export", "--lines", "--comm", "program", "--debuginfod"];
    assert!(!with(&export, &file).contains("inner") && asked().is_empty(), "nobody asked for names");
    assert!(with(&fetching, &file).contains("main (program.c:2);inner (program.c:1)"));
    let of_program = |paths: &[String]| paths.iter().filter(|path| path.contains("/0123456789abcdef")).count();
    assert_eq!(of_program(&asked()), 1);
    assert!(with(&export, &file).contains("inner (program.c:1)"), "it is in the cache");
    assert_eq!(of_program(&asked()), 0);

    // An archive contains the fetched files.
    with(&["archive"], &file);
    run(Command::new("tar").arg("xf").arg(at("run.tar.zst")).arg("-C").arg(dir.path()));
    std::fs::remove_dir_all(&cache).expect("removed");
    let symfs = at("run/files");
    let unpacked = [&export[..], &["--symfs", symfs.to_str().expect("UTF-8")]].concat();
    assert!(with(&unpacked, &file).contains("inner (program.c:1)"));

    // Remove the program, too.
    std::fs::rename(&program, at("served/buildid").join(BUILD_ID).join("executable")).expect("moved");
    assert!(!with(&export, &file).contains("inner"));
    assert!(with(&fetching, &file).contains("main (program.c:2);inner (program.c:1)"));
    assert_eq!(of_program(&asked()), 2);
}

/// Check that an unreachable server is reported and asked once, and that only names are missing; and that without a
/// server the option is an error that says what to set.
#[test]
fn servers_that_fail_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("run.fpprof");
    record(&file, &["--call-graph", "fp"], &["perl", "-e", "for ($i = 0; $i < 3000000; $i++) {}"]);
    let export = |urls: &str| {
        let mut command = fpprof();
        command.args(["export", "--debuginfod"]).arg(&file);
        command.env("DEBUGINFOD_URLS", urls).env("DEBUGINFOD_CACHE_PATH", dir.path().join("cache"));
        ran(command.env("HOME", dir.path()))
    };
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let gone = format!("http://{}", free.expect("an address"));
    let failed = export(&gone);
    assert_eq!((failed.status, failed.stderr.matches("it is not asked again").count()), (0, 1), "{}", failed.stderr);
    assert!(failed.stderr.contains(&gone) && !failed.stdout.is_empty());
    let none = export(" ");
    assert!(none.status == 2 && none.stderr.contains("set DEBUGINFOD_URLS"), "{}", none.stderr);
}

/// Check that the agent names functions of a stripped program in the intervals after it has fetched its debug information,
/// and requests each file once.
#[test]
fn the_agent_has_names_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = stripped(dir.path(), 1 << 50);
    let (url, asked) = serve(dir.path().join("served"));
    let agent = Agent::start(&format!("rate = 99\n[debuginfod]\nurls = [\"{url}/\"]"), &[]);
    let program = Ended(Command::new(&program).spawn().expect("it starts"));
    wait_until("it is fetched", || agent.metric("fpprof_debug_files_total{outcome=\"fetched\"}") >= 1.0);
    wait_until("it is used", || read(&agent.store(), program.id()).functions.contains("inner"));
    let asked = asked.lock().expect("no panic").clone();
    let distinct: BTreeSet<_> = asked.iter().collect();
    assert_eq!(asked.len(), distinct.len(), "{asked:?}");
    assert!(agent.log().contains(&format!("fetched debuginfo {BUILD_ID} from {url}, ")), "{}", agent.log());
    let cached = agent.store().join("debuginfod").join(BUILD_ID).join("debuginfo");
    assert!(cached.is_file());
    agent.end().assert_balance();
}

/// Check that intervals do not wait for a server that never answers.
#[test]
fn the_agent_does_not_wait() {
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let url = format!("http://{}", silent.local_addr().expect("its address"));
    let agent = Agent::start(&format!("rate = 99\n[debuginfod]\nurls = [\"{url}\"]"), &[]);
    let (_connection, _) = silent.accept().expect("it asks");
    let before = agent.metric("fpprof_intervals_total");
    wait_until("intervals end", || agent.metric("fpprof_intervals_total") >= before + 3.0);
    assert_eq!(agent.metric("fpprof_debug_files_total"), 0.0, "the request is under way");
    agent.end().assert_balance();
}

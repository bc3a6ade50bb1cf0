//! Programs on a file system whose server answers slowly or not at all when a file is opened again, as a FUSE or NFS
//! server may.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::changed::Changed;
use crate::support::{Ended, assert_balance, compile, fpprof, number, report, wait_until};
use fpprof_recording::Recording;
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request, SessionACL,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The inode of the first program; the others follow.
const PROGRAM: INodeNo = INodeNo(2);
const TTL: Duration = Duration::from_secs(600);

/// Records who opened the programs.
#[derive(Default)]
struct Opens {
    /// The number of times each was opened.
    n: BTreeMap<u64, u32>,
    /// Requests that wait for an answer.
    unanswered: Vec<ReplyOpen>,
    answers_all: bool,
}

impl Opens {
    fn answer_all(&mut self) {
        self.answers_all = true;
        self.unanswered.drain(..).for_each(|reply| reply.opened(FileHandle(0), FopenFlags::empty()));
    }
}

/// Answers all requests on drop, even if a check fails: until then the waiting processes cannot be killed.
struct AnswersAtLast(Arc<Mutex<Opens>>);

impl Drop for AnswersAtLast {
    fn drop(&mut self) {
        self.0.lock().unwrap().answer_all();
    }
}

/// A directory of programs with numbers as names. The first open of each, by the kernel on exec, is answered at once;
/// later ones are answered late or not at all.
struct Programs {
    content: Vec<u8>,
    opens: Arc<Mutex<Opens>>,
    late: Option<Duration>,
}

impl Programs {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let (kind, size) = match ino {
            INodeNo(ino) if ino >= PROGRAM.0 => (FileType::RegularFile, self.content.len() as u64),
            _ => (FileType::Directory, 0),
        };
        let now = SystemTime::UNIX_EPOCH;
        let (blocks, blksize) = (size.div_ceil(512), 4096);
        let times = [now; 4];
        let [atime, mtime, ctime, crtime] = times;
        let (perm, nlink, uid, gid, rdev, flags) = (0o755, 1, 0, 0, 0, 0);
        FileAttr { ino, size, blocks, atime, mtime, ctime, crtime, kind, perm, nlink, uid, gid, rdev, blksize, flags }
    }
}

impl Filesystem for Programs {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name.to_str().and_then(|name| name.strip_prefix("program")?.parse::<u64>().ok()) {
            Some(n) => reply.entry(&TTL, &self.attr(INodeNo(PROGRAM.0 + n)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut opens = self.opens.lock().unwrap();
        let n = opens.n.entry(ino.0).or_default();
        *n += 1;
        if *n == 1 || opens.answers_all {
            reply.opened(FileHandle(0), FopenFlags::empty());
        } else if let Some(late) = self.late {
            std::thread::spawn(move || {
                std::thread::sleep(late);
                reply.opened(FileHandle(0), FopenFlags::empty());
            });
        } else {
            opens.unanswered.push(reply);
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let start = usize::try_from(offset).unwrap().min(self.content.len());
        reply.data(&self.content[start..self.content.len().min(start + size as usize)]);
    }
}

/// Mounts a directory of programs with this content.
fn mounted(program: &Path, mount: &Path, late: Option<Duration>) -> (Arc<Mutex<Opens>>, BackgroundSession, Changed) {
    std::fs::create_dir(mount).unwrap();
    // In case the test is killed: a mount outlives its server.
    let unmounts = Changed::undone_by("umount -l \"$1\" 2>/dev/null; true", &[mount.to_str().unwrap()]);
    let opens = Arc::new(Mutex::new(Opens::default()));
    let server = Programs { content: std::fs::read(program).unwrap(), opens: Arc::clone(&opens), late };
    let mut config = Config::default();
    config.acl = SessionACL::All;
    (opens, fuser::spawn_mount(server, mount, &config).unwrap(), unmounts)
}

/// Check that files that open slowly are left out after some of them, with a message, and that the recording is
/// complete.
#[test]
fn slow_file_systems_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (file, own, mount) = (dir.path().join("recording"), dir.path().join("own"), dir.path().join("mount"));
    compile("gcc", &["-O2"], &own, &Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c"));
    // All together take longer than a user's budget per minute.
    let (opens, session, _unmounts) = mounted(&own, &mount, Some(Duration::from_millis(900)));
    let mut recorder = fpprof();
    recorder.args(["record", "--call-graph", "fp", "-o"]).arg(&file);
    let script = "for i in 0 1 2 3 4 5 6 7 8 9; do \"$0/program$i\" 2 & done; wait";
    let recorded = recorder.args(["--", "sh", "-c", script]).arg(&mount).output().unwrap();
    let words = String::from_utf8_lossy(&recorded.stderr);
    assert!(recorded.status.success() && words.contains("the file systems of its user are too slow"), "{words}");
    opens.lock().unwrap().answer_all();
    assert_balance(&report(&file, &[]));
    session.umount_and_join().unwrap();
}

/// Check that the agent stores its intervals while a program's file system does not answer.
#[test]
fn silent_file_systems_hold_up_no_interval() {
    let dir = tempfile::tempdir().unwrap();
    let [own, mount, store, config] = ["own", "mount", "store", "agent.toml"].map(|name| dir.path().join(name));
    compile("gcc", &["-O2"], &own, &Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c"));
    let (opens, session, _unmounts) = mounted(&own, &mount, None);
    let settings = format!(
        "rate = 99\ninterval = \"1s\"\ncall-graph = \"dwarf\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
         [limits]\ncpu-percent = 100.0\nmemory = \"64G\"\n[store]\npath = {store:?}\n"
    );
    std::fs::write(&config, settings).unwrap();
    let mut agent = Ended(fpprof().arg("agent").arg("--config").arg(&config).spawn().unwrap());
    let _answers = AnswersAtLast(Arc::clone(&opens));
    let busy = Ended(Command::new(mount.join("program0")).arg("1000").stdout(Stdio::null()).spawn().unwrap());
    let entries = |dir: &Path| std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let n_stored = || entries(&store.join("stacks")).flat_map(|day| entries(&day.path())).count();
    // One by the recorder, one by the process that unwinds.
    wait_until("the program is opened", || opens.lock().unwrap().unanswered.len() >= 2);
    let before = n_stored();
    wait_until("intervals are stored", || n_stored() >= before + 5);
    opens.lock().unwrap().answer_all();
    kill(Pid::from_raw(agent.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(agent.wait().unwrap().success());
    drop(busy);
    session.umount_and_join().unwrap();
}

/// Check that a recording continues and is completed while a program's file system does not answer; and that its stacks
/// are in the report, like those of another program, once the file system answers.
#[test]
fn silent_file_systems_hold_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let (file, own, mount) = (dir.path().join("recording"), dir.path().join("own"), dir.path().join("mount"));
    compile("gcc", &["-O2"], &own, &Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c"));
    let (opens, session, _unmounts) = mounted(&own, &mount, None);
    let mut recorder = fpprof();
    recorder.args(["record", "-q", "--call-graph", "dwarf,16384", "-o"]).arg(&file);
    recorder.args(["--", "sh", "-c", "\"$0\" 3 & \"$1\" 3; wait"]).arg(mount.join("program0")).arg(&own);
    let mut recorder = Ended(recorder.spawn().unwrap());
    let _answers = AnswersAtLast(Arc::clone(&opens));
    let is_ended = |file| Recording::open(file).is_ok_and(|recording| recording.end().is_some());
    wait_until("the recording ends", || File::open(&file).is_ok_and(is_ended));
    assert!(!opens.lock().unwrap().unanswered.is_empty(), "the recorder has opened the program");
    // The kernel cannot end the recorder before the call to the server returns.
    opens.lock().unwrap().answer_all();
    assert!(recorder.wait().unwrap().success());
    let report = report(&file, &[]);
    assert_balance(&report);
    for comm in ["program0", "own"] {
        let is_it = |process: &&Value| process["comm"] == comm;
        let process = report["processes"].as_array().unwrap().iter().find(is_it).unwrap();
        let (samples, complete) = (number(process, "samples"), number(&process["strategies"]["dwarf"], "complete"));
        assert!(samples > 50 && complete * 100 >= samples * 95, "{process:#}");
    }
    session.umount_and_join().unwrap();
}

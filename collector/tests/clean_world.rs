//! What a command notices of being profiled: nothing. In a process of its own, whose limits the test changes.

use fpprof_collector::{Request, StopFlag, Target, TargetStatus, record};
use std::path::Path;
use std::process::Command;

/// Check that a command starts like in any fresh process: SIGPIPE ends it, its limits are those from before the
/// recording, and it has inherited none of our file descriptors; and that our own limits are restored afterwards.
#[test]
fn command_finds_a_clean_world() {
    // Below the hard limit, so that raising it would show.
    let lowered = Command::new("prlimit").args(["--nofile=512:", "--pid", &std::process::id().to_string()]).status();
    assert!(lowered.expect("prlimit is there").success());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory for the test");
    let look = |file: &Path| {
        let look = "ulimit -a; ls -l /proc/self/fd | wc -l; grep -E 'Sig(Blk|Cgt)' /proc/self/status";
        format!("{{ {look}; }} > {} < /dev/null; kill -PIPE $$", file.display())
    };
    let plain = |file: &Path| {
        let status = Command::new("sh").args(["-c", &look(file)]).status().expect("a shell");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGPIPE));
        std::fs::read_to_string(file).expect("the shell wrote its file")
    };
    let before = plain(&directory.path().join("before"));
    let inside = directory.path().join("inside");
    let request = Request::new(Target::Command { argv: vec!["sh".into(), "-c".into(), look(&inside).into()] });
    let stop = StopFlag::new().expect("a flag");
    let outcome = record(&request, Vec::new(), &stop, &mut |_| {}).expect("recording works here");
    assert_eq!(outcome.target_status, Some(TargetStatus::Killed(libc::SIGPIPE)));
    assert_eq!(std::fs::read_to_string(&inside).expect("the shell wrote its file"), before);
    assert_eq!(plain(&directory.path().join("after")), before);
}

//! CPUs that come online while the agent runs.

use crate::changed_file;
use crate::support::{Ended, compile, fpprof, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::{Command, Stdio};

/// Check that the agent samples a CPU whose number is higher than any when it started.
#[test]
fn new_cpus_are_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let [program, store, config] = ["pinned", "store", "agent.toml"].map(|name| dir.path().join(name));
    compile("gcc", &["-O2"], &program, &Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/programs/chain.c"));
    let settings = format!(
        "rate = 99\ninterval = \"1s\"\ncall-graph = \"fp\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
         [limits]\ncpu-percent = 100.0\nmemory = \"64G\"\n[store]\npath = {store:?}\n"
    );
    std::fs::write(&config, settings).unwrap();
    // The machine needs two CPUs, of which the second can be switched off.
    let offline = changed_file("/sys/devices/system/cpu/cpu1/online", "0");
    let mut agent = Ended(fpprof().arg("agent").arg("--config").arg(&config).spawn().unwrap());
    let folded = || {
        let export = fpprof().args(["export", "--format", "folded"]).arg(&store).args(["-o", "-"]).output().unwrap();
        String::from_utf8_lossy(&export.stdout).into_owned()
    };
    wait_until("an interval is stored", || !folded().is_empty());
    drop(offline);
    let mut pinned = Command::new("taskset");
    let pinned = pinned.args(["-c", "1"]).arg(&program).arg("1000").stdout(Stdio::null()).spawn();
    let _pinned = Ended(pinned.unwrap());
    wait_until("the second CPU is sampled", || folded().contains("pinned;"));
    kill(Pid::from_raw(agent.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(agent.wait().unwrap().success());
}

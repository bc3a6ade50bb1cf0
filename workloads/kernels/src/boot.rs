//! Boots a kernel in QEMU and retrieves the guest's results.

use crate::kernels::{Arch, Kernel};
use crate::run::run;
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Files of one run.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) image: PathBuf,
    pub(crate) packed: PathBuf,
    pub(crate) console: PathBuf,
    pub(crate) tar: PathBuf,
    pub(crate) results: PathBuf,
}

/// A process that is killed on drop.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Boots, waits for the machine to power off, and unpacks what it sent.
pub(crate) fn boot(kernel: &Kernel, files: &Files, limit: Duration) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut qemu = command(kernel, files);
    let name = qemu.get_program().to_string_lossy().into_owned();
    let mut qemu = Guard(qemu.stdin(Stdio::null()).spawn().with_context(|| format!("starting {name}"))?);
    let status = loop {
        if let Some(status) = qemu.0.try_wait()? {
            break status;
        }
        if began.elapsed() > limit {
            bail!("the guest did not end within {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    ensure!(status.success(), "{name} failed, {status}");
    let size = fs::metadata(&files.tar)?.len();
    ensure!(size > 0, "the guest ended before it sent its results");
    fs::create_dir_all(&files.results)?;
    run(Command::new("tar").arg("-x").arg("-f").arg(&files.tar).arg("-C").arg(&files.results))
        .with_context(|| format!("the guest's results, {size} bytes, are not whole"))
}

fn command(kernel: &Kernel, files: &Files) -> Command {
    let mut qemu = match kernel.arch {
        Arch::X86_64 => {
            let mut qemu = Command::new("qemu-system-x86_64");
            // QEMU 7.2 corrupts the flags in cmpxchg16b: Linux 6.12 panics in kmalloc.
            qemu.args(["-cpu", "max,-cx16"]);
            qemu
        }
        Arch::Aarch64 => {
            let mut qemu = Command::new("qemu-system-aarch64");
            qemu.args(["-machine", "virt", "-cpu", "max,pauth-impdef=on"]);
            qemu
        }
    };
    let serial = |file: &Path| format!("file:{}", file.display());
    let (console, out) = match kernel.arch {
        Arch::X86_64 => {
            qemu.args(["-serial", &serial(&files.console), "-serial", &serial(&files.tar)]);
            ("ttyS0", "/dev/ttyS1")
        }
        Arch::Aarch64 => {
            qemu.args(["-serial", &serial(&files.console)]);
            qemu.args(["-chardev", &format!("file,id=out,path={}", files.tar.display())]);
            qemu.args(["-device", "pci-serial,chardev=out"]);
            ("ttyAMA0", "/dev/ttyS0")
        }
    };
    // One thread for all virtual CPUs: with several, QEMU 7.2 may run code that another CPU has just patched, and the
    // guest panics in __schedule (64 CPUs).
    qemu.args(["-accel", "tcg,thread=single"]);
    // init receives OUT as a variable. A kernel that panics reboots at once, which ends QEMU.
    let line = format!("console={console} loglevel=4 panic=-1 OUT={out}");
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-append", &line]);
    qemu.args(["-smp", &kernel.cpus.to_string(), "-m", &kernel.memory_mib.to_string()]);
    qemu.arg("-kernel").arg(&files.image).arg("-initrd").arg(&files.packed);
    qemu
}

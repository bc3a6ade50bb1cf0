//! Cores written by an emulator, of aarch64 programs with known chains, compared with gdb where it can unwind them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::support::crash::{CHAINS, Crash, addresses, assert_chain, died, frames};
use crate::support::{fpprof, ran};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const AARCH64_ROOT: &str = "/usr/aarch64-linux-gnu";

/// The chains that can be unwound in version 7 of the emulator: it has no vDSO, hence no rows for its signal frame.
fn emulated() -> impl Iterator<Item = (&'static str, &'static [&'static str], &'static str)> {
    CHAINS.into_iter().filter(|(argument, _, _)| *argument != "signal")
}

const QEMU: &[&str] = &["qemu-aarch64", "-cpu", "max", "-L", AARCH64_ROOT];

/// Check that aarch64 cores, which the emulator writes without a list of files, have the known chains, whether return
/// addresses are signed in non-leaf functions, in all functions, or not at all.
#[test]
fn aarch64_cores_with_signed_return_addresses() {
    let protections = ["none", "pac-ret", "pac-ret+leaf", "standard"];
    for (protection, link) in protections.into_iter().zip(["-pie", "-pie", "-no-pie", "-static"]) {
        let flag = format!("-mbranch-protection={protection}");
        let crash = Crash::new("aarch64-linux-gnu-gcc", &[&flag, link], QEMU);
        let disassembly = Command::new("aarch64-linux-gnu-objdump").arg("-d").arg(&crash.program).output().unwrap();
        let signs = String::from_utf8_lossy(&disassembly.stdout).contains("paciasp");
        assert!(signs || protection == "none", "{protection} signs nothing");
        for (argument, functions, root) in emulated() {
            let context = format!("{protection} {link} {argument}");
            let core = crash.core(argument);
            let unwound = crash.unwind(&core, &["--sysroot", AARCH64_ROOT]);
            assert_eq!(unwound["arch"], "aarch64", "{context}");
            assert_chain(died(&unwound), functions, root, &context);
            if protection != "none" && protection != "standard" {
                assert!(has_signed_words(&core), "{context}: no signed return address in the core");
            }
        }
    }
}

/// Whether some word of a core is the signed form of another word that is a code address: bits above 47 set, the rest
/// in the first 4 GiB above where qemu loads programs.
fn has_signed_words(core: &Path) -> bool {
    let bytes = std::fs::read(core).unwrap();
    let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let is_code = |address: u64| (0x40_0000..0x41_0000).contains(&address) || address >> 32 == 0x55;
    words.filter(|&word| word >> 63 == 0 && word >> 48 != 0 && is_code(word & 0xffff_ffff_ffff)).count() >= 4
}

/// Check that unsigned aarch64 stacks equal gdb's frame by frame; gdb cannot follow signed ones in a core.
#[test]
fn aarch64_stacks_are_those_of_gdb() {
    for link in ["-no-pie", "-static"] {
        let crash = Crash::new("aarch64-linux-gnu-gcc", &["-mbranch-protection=none", link], QEMU);
        let core = crash.core("qsort");
        let unwound = crash.unwind(&core, &["--sysroot", AARCH64_ROOT]);
        let gdb = crash.gdb(&core, "gdb-multiarch", Some(AARCH64_ROOT));
        assert_eq!(addresses(died(&unwound)), gdb, "{link}");
    }
}

/// Check that without its executable a core without a list of files says what is missing, and has no invented frame.
#[test]
fn a_core_without_files_says_so() {
    let crash = Crash::new("aarch64-linux-gnu-gcc", &[], QEMU);
    let core = crash.core("qsort");
    let ran = ran(fpprof().args(["unwind", "--json", "--core"]).arg(&core));
    let unwound: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(unwound["warnings"].to_string().contains("--exe"), "{unwound:#}");
    let died = died(&unwound);
    assert_eq!((frames(died).len(), &died["reason"]), (1, &"no_module".into()), "{died:#}");
}

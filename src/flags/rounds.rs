//! Rounds: every binary of a program once, in random order.

use super::build::binary_name;
use super::manifest::{EXE, Manifest, Program};
use super::store::Store;
use anyhow::Context as _;
use fpprof_analysis::flags::{Arm, Times};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::{Command, Stdio};

/// The file of rounds.
pub(super) const FILE: &str = "rounds.jsonl";

/// One round of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) program: String,
    /// The arms, so that a round of an earlier manifest is told from one of this.
    pub(super) arms: Vec<Arm>,
    #[serde(flatten)]
    pub(super) times: Times,
}

/// Runs one round of one program.
pub(super) fn round(
    store: &Store,
    manifest: &Manifest,
    program: &Program,
    arms: &[Arm],
    round: u32,
) -> anyhow::Result<Line> {
    let n = manifest.binaries();
    let mut order: Vec<(usize, u32)> =
        (0..arms.len()).flat_map(|arm| (0..n).map(move |binary| (arm, binary))).collect();
    let name_seed = program.name.bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let seed = manifest.seed ^ name_seed ^ u64::from(round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    let mut cpu_s = vec![vec![0.0; n as usize]; arms.len()];
    for (index, binary) in order {
        let Some(arm) = arms.get(index) else { continue };
        let dir = store.arm_dir(&program.name, &arm.flags, arm.again);
        let seconds = time(&manifest.here, &dir, binary, &program.bench)
            .with_context(|| format!("{} under {}: the benchmark", program.name, arm.flags))?;
        if let Some(slot) = cpu_s.get_mut(index).and_then(|arm| arm.get_mut(binary as usize)) {
            *slot = seconds;
        }
    }
    Ok(Line { program: program.name.clone(), arms: arms.to_vec(), times: Times { round, cpu_s } })
}

/// CPU seconds of one run.
fn time(here: &Path, dir: &Path, binary: u32, bench: &str) -> anyhow::Result<f64> {
    let mut command = command(here, dir, binary, bench);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let before = children_us()?;
    let status = command.status().context("starting it")?;
    let after = children_us()?;
    anyhow::ensure!(status.success(), "{status}");
    #[expect(clippy::cast_precision_loss, reason = "microseconds of one run")]
    let seconds = after.saturating_sub(before) as f64 / 1e6;
    Ok(seconds)
}

/// A run of a binary: in its directory and by a name of fixed length, with an environment of fixed size, since both
/// move the stack. `{here}` is the manifest's directory.
pub(super) fn command(here: &Path, dir: &Path, binary: u32, words: &str) -> Command {
    let exe = format!("./{}", binary_name(binary));
    let here = here.to_string_lossy();
    let mut words = words.split_whitespace().map(|word| word.replace(EXE, &exe).replace("{here}", &here));
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).current_dir(dir).stdin(Stdio::null());
    command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C");
    command
}

/// CPU time of all children that ended, microseconds. Nothing else of ours runs children meanwhile.
fn children_us() -> anyhow::Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

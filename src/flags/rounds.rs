//! Rounds: each runs every binary of a program once, in random order.

use super::build::binary_name;
use super::manifest::{EXE, Manifest, Program};
use super::store::Store;
use super::supervisor::{Run, Supervisor};
use crate::output::print_message;
use anyhow::Context as _;
use fpprof_analysis::flags::{Arm, Times};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The name of the file of rounds.
pub(super) const FILE: &str = "rounds.jsonl";

/// The results of one round of one program.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) program: String,
    /// The arms, to recognise rounds of an earlier manifest.
    pub(super) arms: Vec<Arm>,
    /// The identity of the timed program ([`super::identity::Identity`]); `None` in rounds of fpprof versions that did
    /// not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) made: Option<String>,
    #[serde(flatten)]
    pub(super) times: Times,
}

/// Runs one round of one program.
pub(super) fn round(
    store: &Store,
    manifest: &Manifest,
    program: &Program,
    (arms, made): (&[Arm], &str),
    round: u32,
    supervisor: &mut Supervisor,
) -> anyhow::Result<Line> {
    let n = manifest.binaries();
    let mut order: Vec<(usize, u32)> =
        (0..arms.len()).flat_map(|arm| (0..n).map(move |binary| (arm, binary))).collect();
    // Every program and round has an order of its own, which a repeated run reproduces.
    let name_seed = program.name.bytes().fold(0_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let seed = manifest.seed ^ name_seed ^ u64::from(round).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    fastrand::Rng::with_seed(seed).shuffle(&mut order);
    let mut n_left = 0_u64;
    let mut cpu_s = vec![vec![0.0; n as usize]; arms.len()];
    for (index, binary) in order {
        let Some(arm) = arms.get(index) else { continue };
        let dir = store.arm_dir(&program.name, &arm.flags, arm.again);
        let ended = supervisor
            .run(&command(&manifest.here, &dir, binary, &program.bench))
            .with_context(|| format!("{} under {}: the benchmark", program.name, arm.flags))?;
        n_left = n_left.saturating_add(ended.n_left);
        #[expect(clippy::cast_precision_loss, reason = "microseconds of one run")]
        let seconds = ended.cpu_us as f64 / 1e6;
        if let Some(slot) = cpu_s.get_mut(index).and_then(|arm| arm.get_mut(binary as usize)) {
            *slot = seconds;
        }
    }
    if n_left > 0 {
        print_message(&format!("flags: {}: killed {n_left} processes that the benchmark left running", program.name));
    }
    let times = Times { round, cpu_s };
    Ok(Line { program: program.name.clone(), arms: arms.to_vec(), made: Some(made.to_owned()), times })
}

/// The command that runs a binary, in its directory, with a name and an environment of fixed size, since both move the
/// stack. `{here}` is the manifest's directory.
pub(super) fn command(here: &Path, dir: &Path, binary: u32, words: &str) -> Run {
    let exe = format!("./{}", binary_name(binary));
    let here = here.to_string_lossy();
    let mut words = words.split_whitespace().map(|word| word.replace(EXE, &exe).replace("{here}", &here).into());
    let env = [("PATH", "/usr/bin:/bin:/usr/sbin:/sbin"), ("LANG", "C")];
    Run {
        program: words.next().unwrap_or_default(),
        args: words.collect(),
        dir: dir.to_owned(),
        env: Some(env.map(|(key, value)| (key.into(), value.into())).into()),
        output: None,
        limit_ms: 0,
    }
}

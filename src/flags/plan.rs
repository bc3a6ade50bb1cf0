//! The plan of an evaluation, and facts about its arms.

use super::build::{MADE, first_binary};
use super::identity::{Files, Identity, fnv};
use super::manifest::{Manifest, Program};
use super::rounds::Line;
use super::store::Store;
use anyhow::Context as _;
use fpprof_analysis::flags::{Arm, ArmResult, FlagSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The manifest, the flag sets whose compiler and preparation are available, and the programs that were built.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) manifest: Manifest,
    pub(super) flag_sets: Vec<FlagSet>,
    /// Programs that could be built under every flag set.
    pub(super) programs: Vec<String>,
    /// By program: the layout of each binary of each arm. Missing in plans of fpprof versions that did not compare the
    /// files.
    #[serde(default)]
    pub(super) layouts: BTreeMap<String, Vec<Vec<u32>>>,
    /// The identity of each timed program; empty in plans of fpprof versions that did not record it.
    #[serde(default)]
    pub(super) identities: BTreeMap<String, Identity>,
    pub(super) missing: Vec<String>,
    pub(super) layout: String,
    pub(super) repeat: String,
}

impl Plan {
    /// All arms of a program: each baseline twice, each other flag set once.
    pub(super) fn arms(&self, program: &Program) -> Vec<Arm> {
        let mut arms = Vec::new();
        for flags in self.flag_sets.iter().filter(|flags| program.is_under(&flags.name)) {
            arms.push(first(&flags.name));
            if flags.against == flags.name {
                arms.push(Arm { flags: flags.name.clone(), again: true });
            }
        }
        arms
    }

    /// Whether a round belongs to the current version of this program.
    pub(super) fn counts(&self, program: &Program, line: &Line) -> bool {
        let made = line.made.as_deref();
        let is_covered = self.identities.get(&program.name).map_or(made.is_none(), |identity| identity.covers(made));
        line.program == program.name && is_covered && line.arms == self.arms(program)
    }

    /// What the facts about an arm depend on; `None` if it is not built.
    pub(super) fn fact_key(&self, store: &Store, program: &Program, arm: &Arm) -> Option<String> {
        let dir = store.arm_dir(&program.name, &arm.flags, arm.again);
        let made = first_binary(&dir)?;
        let mut key = vec![serde_json::json!(made), serde_json::json!(program)];
        key.extend([serde_json::json!(self.manifest.recording), serde_json::json!(self.manifest.instructions)]);
        let noted = Store::read::<Files>(&dir.join(Files::FILE)).filter(|noted| noted.since_build);
        key.extend(noted.map(|noted| noted.digest.into()));
        Some(serde_json::Value::from(key).to_string())
    }

    /// The current identity of a program. Rounds in `earlier` without a recorded identity count if the program has not
    /// changed since.
    pub(super) fn identity(
        &self,
        store: &Store,
        program: &Program,
        earlier: Option<&Self>,
    ) -> anyhow::Result<Identity> {
        let mut made = vec![program.bench.clone()];
        let mut has_older_rounds = true;
        for arm in self.arms(program) {
            let dir = store.arm_dir(&program.name, &arm.flags, arm.again);
            let noted = Store::read::<Files>(&dir.join(Files::FILE)).context("a build is missing")?;
            has_older_rounds &= !noted.since_build;
            made.push(noted.digest);
            made.push(std::fs::read_to_string(dir.join(MADE)).context("a build is missing")?);
        }
        let digest = format!("{:016x}", fnv(serde_json::json!(made).to_string().as_bytes()));
        has_older_rounds &= match earlier.and_then(|plan| plan.identities.get(&program.name)) {
            Some(before) => before.has_older_rounds && before.digest == digest,
            None => {
                let mut before = earlier.into_iter().flat_map(|plan| &plan.manifest.program);
                before.any(|before| before.name == program.name && before.bench == program.bench)
            }
        };
        Ok(Identity { digest, has_older_rounds })
    }
}

/// The first arm of a flag set (not its A/A repetition).
fn first(flags: &str) -> Arm {
    Arm { flags: flags.to_owned(), again: false }
}

/// Facts about an arm, other than its times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Fact {
    pub(super) program: String,
    pub(super) arm: Arm,
    /// What the arm was built from, from the manifest; if it changes, the fact is stale.
    pub(super) key: String,
    pub(super) result: ArmResult,
    /// Results that could not be obtained, and why.
    pub(super) missing: Vec<String>,
}

impl Fact {
    /// The name of the file of facts.
    pub(super) const FILE: &'static str = "facts.jsonl";
}

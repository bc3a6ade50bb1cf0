//! What is evaluated, and what was found out about it.

use super::build::MADE;
use super::identity::{Files, Identity, fnv};
use super::manifest::{Manifest, Program};
use super::rounds::Line;
use super::store::Store;
use anyhow::Context as _;
use fpprof_analysis::flags::{Arm, ArmResult, FlagSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is evaluated: the manifest less what is not here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) manifest: Manifest,
    pub(super) flag_sets: Vec<FlagSet>,
    /// Programs that could be built under every flag set.
    pub(super) programs: Vec<String>,
    /// What of each program is timed; nothing in plans of versions that did not note it.
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

    /// Whether a round is one of this program as it is now.
    pub(super) fn counts(&self, program: &Program, line: &Line) -> bool {
        let made = line.made.as_deref();
        let is_covered = self.identities.get(&program.name).map_or(made.is_none(), |identity| identity.covers(made));
        line.program == program.name && is_covered && line.arms == self.arms(program)
    }

    /// What of a program is timed now. Rounds of `earlier` that do not say what they were timed with count if that has
    /// not changed since.
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

/// An arm of the first set.
fn first(flags: &str) -> Arm {
    Arm { flags: flags.to_owned(), again: false }
}

/// What was found out about an arm, beside its times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Fact {
    pub(super) program: String,
    pub(super) arm: Arm,
    /// What it was built of, as the manifest has it: a changed one makes the fact stale.
    pub(super) key: String,
    pub(super) result: ArmResult,
    /// What could not be found out, and why.
    pub(super) missing: Vec<String>,
}

impl Fact {
    /// The file of facts.
    pub(super) const FILE: &'static str = "facts.jsonl";
}

//! The whole evaluation, from what is there already to its end.

use super::build::{Builder, LLD, OBJECTS, binary_name};
use super::collect::{binary, first};
use super::environment::{look, raise_session, version};
use super::manifest::{Flags, Manifest, Program};
use super::rounds::{self, Line, command, round};
use super::sources::sources;
use super::store::Store;
use super::{instructions, recordings};
use crate::output::say;
use anyhow::Context as _;
use fpprof_analysis::flags::{Arm, ArmResult, FlagSet};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What is evaluated: the manifest less what is not here.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) manifest: Manifest,
    pub(super) flag_sets: Vec<FlagSet>,
    /// Programs that could be built under every flag set.
    pub(super) programs: Vec<String>,
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
}

/// What was found out about an arm, beside its times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Fact {
    pub(super) program: String,
    pub(super) arm: Arm,
    /// What it was built of, as the manifest has it: a changed one makes the fact stale.
    key: String,
    pub(super) result: ArmResult,
    /// What could not be found out, and why.
    pub(super) missing: Vec<String>,
}

impl Fact {
    /// The file of facts.
    pub(super) const FILE: &'static str = "facts.jsonl";
}

/// Runs whatever is not finished yet.
pub(crate) fn run(manifest_path: &Path, manifest: &Manifest, store: &Store) -> anyhow::Result<()> {
    let mut plan = plan(manifest_path, manifest, store);
    plan.missing.iter().for_each(|what| say(&format!("flags: not here: {what}")));
    anyhow::ensure!(!plan.flag_sets.is_empty(), "no compiler of the manifest is installed");
    let layout = if plan.layout == LLD { LLD } else { OBJECTS };
    let builder = Builder { store, manifest, layout };
    build(&builder, &mut plan)?;
    Store::write(&store.path("manifest.json"), &plan)?;
    anyhow::ensure!(!plan.programs.is_empty(), "no program could be built");
    let environment = store.path("environment.json");
    if !environment.exists() {
        Store::write(&environment, &look())?;
    }
    facts(store, &plan)?;
    times(store, &plan)
}

fn plan(manifest_path: &Path, manifest: &Manifest, store: &Store) -> Plan {
    let mut flag_sets = Vec::new();
    let mut missing = Vec::new();
    for flags in &manifest.flags {
        match version(&flags.compiler) {
            Some(version) => flag_sets.push(flag_set(flags, version)),
            None => missing.push(format!("compiler {}: no {}", flags.compiler, flags.name)),
        }
    }
    let here: HashSet<_> = flag_sets.iter().map(|flags| flags.name.clone()).collect();
    flag_sets.retain(|flags| here.contains(&flags.against));
    // Baselines first, each followed by what is compared with it.
    flag_sets.sort_by_key(|flags| {
        let order = |name: &str| manifest.flags.iter().position(|flags| flags.name == name);
        (order(&flags.against), flags.against != flags.name, order(&flags.name))
    });
    if manifest.instructions && version("valgrind").is_none() {
        missing.push("valgrind: no instruction counts".to_owned());
    }
    let has_lld = version("ld.lld").is_some();
    if !has_lld {
        missing.push(format!("ld.lld: {OBJECTS}"));
    }
    let layout = if has_lld { LLD } else { OBJECTS }.to_owned();
    let repeat = format!("fpprof flags run {} -o {}", manifest_path.display(), store.path("").display());
    Plan { manifest: manifest.clone(), flag_sets, programs: Vec::new(), missing, layout, repeat }
}

fn flag_set(flags: &Flags, version: String) -> FlagSet {
    FlagSet {
        name: flags.name.clone(),
        compiler: flags.compiler.clone(),
        version,
        cflags: flags.cflags.clone(),
        against: flags.against.clone().unwrap_or_else(|| flags.name.clone()),
    }
}

/// Builds every arm. A program that cannot be built under every flag set is left out, and said.
fn build(builder: &Builder<'_>, plan: &mut Plan) -> anyhow::Result<()> {
    let manifest = builder.manifest;
    let n_arms = manifest.program.iter().map(|program| plan.arms(program).len()).sum();
    let mut progress = Progress::new("builds", n_arms);
    for program in &manifest.program {
        let arms = plan.arms(program);
        if arms.is_empty() {
            plan.missing.push(format!("program {}: none of its compilers is here", program.name));
            continue;
        }
        let built = (|| {
            let sources = sources(builder.store, &manifest.here, program)?;
            for arm in &arms {
                build_arm(builder, plan, program, &sources, arm)?;
                progress.step(&format!("{} {}", program.name, arm.flags));
            }
            anyhow::Ok(())
        })();
        match built {
            Ok(()) => plan.programs.push(program.name.clone()),
            Err(error) => {
                say(&format!("flags: {} cannot be built and is left out: {error:#}", program.name));
                plan.missing.push(format!("program {}: {error:#}", program.name));
            }
        }
    }
    Ok(())
}

fn build_arm(
    builder: &Builder<'_>,
    plan: &Plan,
    program: &Program,
    sources: &[PathBuf],
    arm: &Arm,
) -> anyhow::Result<()> {
    let flags = builder.manifest.flags.iter().find(|flags| flags.name == arm.flags);
    let set = plan.flag_sets.iter().find(|set| set.name == arm.flags);
    let (flags, set) = flags.zip(set).context("an arm without flags")?;
    let what = || format!("{} under {}", program.name, arm.flags);
    builder.arm(program, sources, flags, &set.version, arm).with_context(what)?;
    Ok(())
}

/// Sizes, audits, instruction counts and recordings of every arm, unless they are there already.
fn facts(store: &Store, plan: &Plan) -> anyhow::Result<()> {
    let manifest = &plan.manifest;
    let known: HashSet<_> =
        store.lines::<Fact>(Fact::FILE)?.into_iter().map(|fact| (fact.program, fact.arm, fact.key)).collect();
    let programs: Vec<_> = manifest.program.iter().filter(|program| plan.programs.contains(&program.name)).collect();
    let n_arms = programs.iter().map(|program| plan.arms(program).len()).sum();
    let mut progress = Progress::new("audits and recordings", n_arms);
    for program in programs {
        for arm in plan.arms(program) {
            let dir = store.arm_dir(&program.name, &arm.flags, arm.again);
            let made = std::fs::read_to_string(dir.join("made.json")).context("a build that is gone")?;
            let key = serde_json::json!([made, program, manifest.recording, manifest.instructions]).to_string();
            progress.step(&format!("{} {}", program.name, arm.flags));
            if known.contains(&(program.name.clone(), arm.clone(), key.clone())) {
                continue;
            }
            let (result, missing) = fact(manifest, program, &arm, &dir)?;
            missing.iter().for_each(|what| say(&format!("flags: {} {}: {what}", program.name, arm.flags)));
            store.append(Fact::FILE, &Fact { program: program.name.clone(), arm, key, result, missing })?;
        }
    }
    Ok(())
}

fn fact(manifest: &Manifest, program: &Program, arm: &Arm, dir: &Path) -> anyhow::Result<(ArmResult, Vec<String>)> {
    let mut result = binary(&dir.join(binary_name(0)))?;
    let mut missing = Vec::new();
    if arm.again {
        return Ok((result, missing));
    }
    if manifest.instructions {
        let words = program.short.as_ref().unwrap_or(&program.bench);
        match instructions::count(&manifest.here, dir, words) {
            Ok(count) => result.instructions = Some(count),
            Err(error) => missing.push(format!("no instruction count: {error:#}")),
        }
    }
    if let Some(recording) = &manifest.recording {
        let words = program.long.as_ref().unwrap_or(&program.bench);
        match recordings::quality(recording, &|| command(&manifest.here, dir, 0, words), dir) {
            Ok(quality) => result.quality = Some(quality),
            Err(error) => missing.push(format!("no recording: {error:#}")),
        }
    }
    Ok((result, missing))
}

/// Rounds, until there are as many as wished for. A round runs every program, in an order of its own.
fn times(store: &Store, plan: &Plan) -> anyhow::Result<()> {
    let manifest = &plan.manifest;
    let programs: Vec<_> = manifest.program.iter().filter(|program| plan.programs.contains(&program.name)).collect();
    let arms: HashMap<&str, Vec<Arm>> =
        programs.iter().map(|program| (program.name.as_str(), plan.arms(program))).collect();
    let done: HashSet<(String, u32)> = store
        .lines::<Line>(rounds::FILE)?
        .into_iter()
        .filter(|line| arms.get(line.program.as_str()) == Some(&line.arms))
        .map(|line| (line.program, line.times.round))
        .collect();
    let mut left = Vec::new();
    for n in 0..manifest.rounds {
        let mut order = programs.clone();
        fastrand::Rng::with_seed(manifest.seed ^ u64::from(n)).shuffle(&mut order);
        left.extend(
            order.into_iter().filter(|program| !done.contains(&(program.name.clone(), n))).map(|program| (n, program)),
        );
    }
    if !left.is_empty() && !raise_session() {
        say(
            "flags: other sessions get as much of the CPU as this one; start with `setsid -w` as root for calmer times",
        );
    }
    let mut progress = Progress::new("rounds", left.len());
    for (n, program) in left {
        let arms = arms.get(program.name.as_str()).context("a program without arms")?;
        store.append(rounds::FILE, &round(store, manifest, program, arms, n)?)?;
        progress.step(&program.name);
    }
    Ok(())
}

/// Says how far a stage is, and about how long it will take.
struct Progress {
    stage: &'static str,
    n: usize,
    done: usize,
    start: Instant,
    last: Instant,
}

/// Seconds between lines.
const EVERY_S: u64 = 10;

impl Progress {
    fn new(stage: &'static str, n: usize) -> Self {
        let now = Instant::now();
        Self { stage, n, done: 0, start: now, last: now }
    }

    fn step(&mut self, what: &str) {
        self.done += 1;
        if self.done < self.n && self.last.elapsed().as_secs() < EVERY_S {
            return;
        }
        self.last = Instant::now();
        let each = self.start.elapsed() / u32::try_from(self.done).unwrap_or(u32::MAX);
        let left = each.saturating_mul(u32::try_from(self.n.saturating_sub(self.done)).unwrap_or(u32::MAX)).as_secs();
        say(&format!(
            "flags: {} {} of {} ({what}), about {} min {} s left",
            self.stage,
            self.done,
            self.n,
            left / 60,
            left % 60
        ));
    }
}

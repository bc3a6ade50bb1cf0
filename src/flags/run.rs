//! Runs the whole evaluation, continuing from existing results.

use super::build::{Builder, LLD, OBJECTS, Sources, binary_name};
use super::collect::binary;
use super::environment::{look, raise_session, version};
use super::identity::files;
use super::manifest::{Flags, Manifest, Program};
use super::plan::{Fact, Plan};
use super::rounds::{self, Line, command, round};
use super::sources::{prepare, sources};
use super::store::Store;
use super::supervisor::Supervisor;
use super::{instructions, recordings};
use crate::output::print_message;
use anyhow::Context as _;
use fpprof_analysis::flags::{Arm, ArmResult, FlagSet, FlagsEnvironment};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// How a failure to record begins.
const NO_RECORDING: &str = "no recording";

/// Runs everything that is not finished yet; returns what failed. Results that are complete are kept.
pub(crate) fn run(manifest_path: &Path, manifest: &Manifest, store: &Store) -> anyhow::Result<Vec<String>> {
    describe(store)?;
    let earlier: Option<Plan> = Store::read(&store.path("manifest.json"));
    let mut failed = Vec::new();
    let mut plan = plan(manifest_path, manifest, store, &mut failed);
    plan.missing.iter().for_each(|what| print_message(&format!("flags: not available: {what}")));
    anyhow::ensure!(!plan.flag_sets.is_empty(), "no flag set can be built: {}", plan.missing.join("; "));
    let layout = if plan.layout == LLD { LLD } else { OBJECTS };
    let builder = Builder { store, manifest, layout };
    build(&builder, &mut plan, &mut failed)?;
    for program in manifest.program.iter().filter(|program| plan.programs.contains(&program.name)) {
        let identity = plan.identity(store, program, earlier.as_ref())?;
        plan.identities.insert(program.name.clone(), identity);
    }
    Store::write(&store.path("manifest.json"), &plan)?;
    anyhow::ensure!(!plan.programs.is_empty(), "no program could be built: {}", failed.join("; "));
    let mut supervisor = Supervisor::start(Duration::from_secs(manifest.limit_s.into()))?;
    failed.extend(facts(store, &plan, &mut supervisor)?);
    failed.extend(times(store, &plan, &mut supervisor)?);
    Ok(failed)
}

/// Describes this machine, unless earlier results in the directory are described.
///
/// # Errors
/// If these are of another machine, system or linker.
fn describe(store: &Store) -> anyhow::Result<()> {
    let path = store.path("environment.json");
    let now = look();
    let has_results = [Fact::FILE, rounds::FILE].iter().any(|name| store.path(name).exists());
    let Some(begun) = Store::read::<FlagsEnvironment>(&path).filter(|_| has_results) else {
        return Store::write(&path, &now);
    };
    let words =
        |of: &FlagsEnvironment| format!("{}; Linux {}; {}; {}", of.cpu, of.kernel, of.distribution, of.binutils);
    let tools = |of: &FlagsEnvironment| of.binutils.split("; ").map(str::to_owned).collect::<Vec<_>>();
    // Earlier versions of fpprof did not note ld beside lld, which is the first.
    let (before, after) = (tools(&begun), tools(&now));
    let are_tools_same = before.first() == after.first() && before.iter().all(|tool| after.contains(tool));
    anyhow::ensure!(
        are_tools_same
            && (&begun.cpu, &begun.kernel, &begun.distribution) == (&now.cpu, &now.kernel, &now.distribution),
        "the results in {} are of another machine, system, linker or assembler ({}) than there is here ({}): use another \
         directory with -o",
        store.path("").display(),
        words(&begun),
        words(&now)
    );
    Ok(())
}

/// What can be evaluated here. A flag set whose preparation fails is left out and added to `failed`.
fn plan(manifest_path: &Path, manifest: &Manifest, store: &Store, failed: &mut Vec<String>) -> Plan {
    let mut flag_sets = Vec::new();
    let mut missing = Vec::new();
    for flags in &manifest.flags {
        let Some(version) = version(&flags.compiler) else {
            missing.push(format!("compiler {}: no {}", flags.compiler, flags.name));
            continue;
        };
        match prepare(store, &manifest.here, flags, &version) {
            Ok(()) => flag_sets.push(flag_set(flags, version)),
            Err(error) => {
                let words = format!("flags {}: {error:#}", flags.name);
                missing.push(words.clone());
                failed.push(words);
            }
        }
    }
    let here: HashSet<_> = flag_sets.iter().map(|flags| flags.name.clone()).collect();
    flag_sets.retain(|flags| here.contains(&flags.against));
    // Baselines come first, each followed by the flag sets compared with it.
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
    let mut repeat = format!("fpprof flags run {} -o {}", manifest_path.display(), store.path("").display());
    for (option, names) in [("--flags", &manifest.only_flags), ("--programs", &manifest.only_programs)] {
        if !names.is_empty() {
            repeat = format!("{repeat} {option} {}", names.join(","));
        }
    }
    Plan {
        manifest: manifest.clone(),
        flag_sets,
        programs: Vec::new(),
        layouts: BTreeMap::new(),
        identities: BTreeMap::new(),
        missing,
        layout,
        repeat,
    }
}

fn flag_set(flags: &Flags, version: String) -> FlagSet {
    FlagSet {
        name: flags.name.clone(),
        compiler: flags.compiler.clone(),
        version,
        cflags: flags.prepare.as_ref().map_or_else(
            || flags.cflags.clone(),
            |commands| format!("{}, with what `{commands}` prepared", flags.cflags),
        ),
        against: flags.against.clone().unwrap_or_else(|| flags.name.clone()),
    }
}

/// Builds every arm. A program that cannot be built under every flag set is left out and added to `failed`.
fn build(builder: &Builder<'_>, plan: &mut Plan, failed: &mut Vec<String>) -> anyhow::Result<()> {
    let manifest = builder.manifest;
    let n_arms = manifest.program.iter().map(|program| plan.arms(program).len()).sum();
    let mut progress = Progress::new("builds", n_arms);
    for program in &manifest.program {
        let arms = plan.arms(program);
        if arms.is_empty() {
            plan.missing.push(format!("program {}: none of its compilers is installed", program.name));
            continue;
        }
        // A closure, so that an error leaves out only this program.
        let built = (|| {
            let sources = Sources {
                dirs: sources(builder.store, &manifest.here, program)?,
                digest: files(manifest, program, &builder.store.path(""))?,
            };
            let (mut is_old, mut layouts) = (false, Vec::new());
            for arm in &arms {
                is_old |= build_arm(builder, plan, program, &sources, arm)?;
                layouts.push(builder.layouts(&program.name, arm)?);
                progress.step(&format!("{} {}", program.name, arm.flags));
            }
            anyhow::Ok((is_old, layouts))
        })();
        if let Ok((true, _)) = built {
            print_message(&format!(
                "flags: {}: its builds do not list their files; assuming that they are unchanged",
                program.name
            ));
        }
        match built {
            Ok((_, layouts)) => {
                plan.programs.push(program.name.clone());
                let n = manifest.layouts as usize;
                let equal = arms.iter().zip(layouts.iter().map(|all| n_different(all))).find(|(_, of)| *of < n);
                if let Some((arm, n_different)) = equal {
                    let words = format!(
                        "program {}: layouts under {} that differ: {n_different} of {n}; equal ones count as one: use \
                         `{{layout}}` in `link` and install lld, or compile more than one object",
                        program.name, arm.flags
                    );
                    print_message(&format!("flags: {words}"));
                    plan.missing.push(words);
                }
                plan.layouts.insert(program.name.clone(), layouts);
            }
            Err(error) => {
                print_message(&format!("flags: skipping {}, which does not build: {error:#}", program.name));
                let words = format!("program {}: {error:#}", program.name);
                plan.missing.push(words.clone());
                failed.push(words);
            }
        }
    }
    Ok(())
}

/// The number of different layouts among those of some binaries.
fn n_different(layouts: &[u32]) -> usize {
    layouts.iter().collect::<HashSet<_>>().len()
}

fn build_arm(
    builder: &Builder<'_>,
    plan: &Plan,
    program: &Program,
    sources: &Sources,
    arm: &Arm,
) -> anyhow::Result<bool> {
    let flags = builder.manifest.flags.iter().find(|flags| flags.name == arm.flags);
    let set = plan.flag_sets.iter().find(|set| set.name == arm.flags);
    let (flags, set) = flags.zip(set).context("an arm without flags")?;
    let what = || format!("{} under {}", program.name, arm.flags);
    builder.arm(program, sources, flags, &set.version, arm).with_context(what)
}

/// Collects sizes, audits, instruction counts and recordings of every arm, unless they are already there; returns what
/// failed.
fn facts(store: &Store, plan: &Plan, supervisor: &mut Supervisor) -> anyhow::Result<Vec<String>> {
    let manifest = &plan.manifest;
    // Of an arm the last one counts: a change may have been taken back. What failed is tried again.
    let lines = store.lines::<Fact>(Fact::FILE)?.into_iter();
    let known: HashMap<_, _> =
        lines.map(|fact| ((fact.program, fact.arm), fact.missing.is_empty().then_some(fact.key))).collect();
    let programs: Vec<_> = manifest.program.iter().filter(|program| plan.programs.contains(&program.name)).collect();
    let n_arms = programs.iter().map(|program| plan.arms(program).len()).sum();
    let mut failed = Vec::new();
    let mut progress = Progress::new("audits and recordings", n_arms);
    for program in programs {
        for arm in plan.arms(program) {
            let dir = store.arm_dir(&program.name, &arm.flags, arm.again);
            let key = plan.fact_key(store, program, &arm).context("a build is missing")?;
            progress.step(&format!("{} {}", program.name, arm.flags));
            if known.get(&(program.name.clone(), arm.clone())) == Some(&Some(key.clone())) {
                continue;
            }
            let (result, missing) = fact(manifest, program, &arm, &dir, supervisor)?;
            for what in &missing {
                let words = format!("{} {}: {what}", program.name, arm.flags);
                print_message(&format!("flags: {words}"));
                // Instructions cannot be counted of every program; recordings can be made of all.
                failed.extend(Some(words).filter(|_| what.starts_with(NO_RECORDING)));
            }
            store.append(Fact::FILE, &Fact { program: program.name.clone(), arm, key, result, missing })?;
        }
    }
    Ok(failed)
}

fn fact(
    manifest: &Manifest,
    program: &Program,
    arm: &Arm,
    dir: &Path,
    supervisor: &mut Supervisor,
) -> anyhow::Result<(ArmResult, Vec<String>)> {
    let mut result = binary(&dir.join(binary_name(0)))?;
    let mut missing = Vec::new();
    if arm.again {
        return Ok((result, missing));
    }
    if manifest.instructions {
        let words = program.short.as_ref().unwrap_or(&program.bench);
        match instructions::count(&manifest.here, dir, words, supervisor) {
            Ok(count) => result.instructions = Some(count),
            Err(error) => missing.push(format!("no instruction count: {error:#}")),
        }
    }
    if let Some(recording) = &manifest.recording {
        let words = program.long.as_ref().unwrap_or(&program.bench);
        let (run, has_sframe) = (command(&manifest.here, dir, 0, words), result.sizes.sframe > 0);
        match recordings::quality(recording, &run, has_sframe, dir, supervisor) {
            Ok(quality) => result.quality = Some(quality),
            Err(error) => missing.push(format!("{NO_RECORDING}: {error:#}")),
        }
    }
    Ok((result, missing))
}

/// Runs rounds until there are as many as requested. A round runs every program, in random order. A program whose
/// benchmark fails is left out from then on; the reasons are returned.
fn times(store: &Store, plan: &Plan, supervisor: &mut Supervisor) -> anyhow::Result<Vec<String>> {
    let left = rounds_left(store, plan)?;
    if !left.is_empty() && !raise_session() {
        print_message("flags: other sessions share the CPU; for less noise, run as root with `setsid -w`");
    }
    let mut progress = Progress::new("rounds", left.len());
    let (mut left_out, mut faults) = (BTreeSet::new(), Vec::new());
    for (n, program) in left {
        progress.step(&program.name);
        if left_out.contains(&program.name) {
            continue;
        }
        let made = &plan.identities.get(&program.name).context("a program without builds")?.digest;
        match round(store, &plan.manifest, program, (&plan.arms(program), made), n, supervisor) {
            Ok(line) => store.append(rounds::FILE, &line)?,
            Err(error) => {
                let words = format!("{error:#}; {} has no rounds from round {} on", program.name, n.saturating_add(1));
                print_message(&format!("flags: {words}"));
                left_out.insert(program.name.clone());
                faults.push(words);
            }
        }
    }
    Ok(faults)
}

/// The rounds still to run, in order.
fn rounds_left<'a>(store: &Store, plan: &'a Plan) -> anyhow::Result<Vec<(u32, &'a Program)>> {
    let manifest = &plan.manifest;
    // Times of fewer than two arms with different layouts could not be compared.
    let can_be_compared = |program: &&Program| {
        let layouts = plan.layouts.get(&program.name).into_iter().flatten();
        plan.programs.contains(&program.name) && layouts.filter(|arm| n_different(arm) > 1).count() > 1
    };
    let programs: Vec<_> = manifest.program.iter().filter(can_be_compared).collect();
    let lines = store.lines::<Line>(rounds::FILE)?;
    let counts = |line: &&Line| programs.iter().any(|program| plan.counts(program, line));
    let done: HashSet<_> = lines.iter().filter(counts).map(|line| (line.program.as_str(), line.times.round)).collect();
    let mut left = Vec::new();
    for n in 0..manifest.rounds {
        let mut order = programs.clone();
        fastrand::Rng::with_seed(manifest.seed ^ u64::from(n)).shuffle(&mut order);
        left.extend(
            order.into_iter().filter(|program| !done.contains(&(program.name.as_str(), n))).map(|program| (n, program)),
        );
    }
    Ok(left)
}

/// Reports the progress of a stage and its estimated duration.
struct Progress {
    stage: &'static str,
    n: usize,
    done: usize,
    start: Instant,
    last: Instant,
}

/// Seconds between progress lines.
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
        print_message(&format!(
            "flags: {} {} of {} ({what}), about {} min {} s left",
            self.stage,
            self.done,
            self.n,
            left / 60,
            left % 60
        ));
    }
}

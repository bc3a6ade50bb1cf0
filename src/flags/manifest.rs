//! The manifest: what to evaluate.

use super::shell::quoted;
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The manifest that `flags init` writes.
pub(crate) const TEMPLATE: &str = include_str!("manifest.toml");

/// Placeholder for the binary in a benchmark.
pub(super) const EXE: &str = "{exe}";

/// Placeholder in linker flags for the directory that a flag set's `prepare` filled.
pub(super) const PREPARED: &str = "{prepared}";

/// Programs, flag sets, and how to compare them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Seed of link layouts and of the order of runs.
    pub(crate) seed: u64,
    /// Number of rounds; in each, every binary of a program runs once.
    pub(crate) rounds: u32,
    /// Number of link layouts per flag set.
    pub(crate) layouts: u32,
    /// Number of copies of each layout.
    pub(crate) copies: u32,
    /// How to make recordings; `None` for no recordings.
    pub(crate) recording: Option<Recording>,
    /// Whether to count instructions with valgrind.
    #[serde(default)]
    pub(crate) instructions: bool,
    /// The limit of one run of a benchmark in seconds, whether timed, counted or recorded.
    #[serde(default = "usual_limit_s")]
    pub(crate) limit_s: u32,
    /// The flag sets.
    pub(crate) flags: Vec<Flags>,
    /// The programs.
    pub(crate) program: Vec<Program>,
    /// The manifest's directory, `{here}`.
    #[serde(skip)]
    pub(crate) here: PathBuf,
    /// The names passed to [`Self::only`].
    #[serde(skip)]
    pub(crate) only_flags: Vec<String>,
    #[serde(skip)]
    pub(crate) only_programs: Vec<String>,
}

/// How binaries are recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recording {
    /// Samples per second and CPU.
    pub(crate) freq: u64,
    /// Bytes of stack to copy.
    pub(crate) stack_bytes: u32,
    /// Smaller chunks by which the same samples are judged.
    pub(crate) chunks: Vec<u32>,
    /// The `fpprof` to record with; this one by default.
    pub(crate) profiler: Option<PathBuf>,
}

/// A flag set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flags {
    pub(crate) name: String,
    /// The C compiler, `{cc}`.
    pub(crate) compiler: String,
    /// The C++ compiler, `{cxx}`; by default the C compiler with `g++` or `clang++` in place of `gcc` or `clang`.
    pub(crate) cxx: Option<String>,
    /// Compiler flags, `{cflags}`.
    pub(crate) cflags: String,
    /// Shell commands that create what the binaries need, such as a C library built with these flags, in the current
    /// directory, which is `{prepared}`; run once.
    pub(crate) prepare: Option<String>,
    /// Linker flags, inserted after `{layout}`.
    pub(crate) ldflags: Option<String>,
    /// The flag set to compare with; `None` for a baseline.
    pub(crate) against: Option<String>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Program {
    pub(crate) name: String,
    /// Crates whose sources are `{src}` (the first), `{src2}`, …, each as `NAME@VERSION`.
    #[serde(default, rename = "crate")]
    pub(crate) crates: Vec<String>,
    /// A directory to use as `{src}`, relative to the manifest.
    pub(crate) path: Option<PathBuf>,
    /// Shell commands that create the sources in the current directory, which is `{src}`; run once.
    pub(crate) fetch: Option<String>,
    /// The flag sets to build under; all by default.
    pub(crate) under: Option<Vec<String>>,
    /// Shell commands that create object files in the current directory.
    pub(crate) compile: String,
    /// The shell command that links `{objects}` to `{exe}` with `{layout}`.
    pub(crate) link: String,
    /// The benchmark: words, one of them `{exe}`, first or after a command; it should take 30 to 50 ms of CPU time.
    pub(crate) bench: String,
    /// A shorter run, for counting instructions; the benchmark by default.
    pub(crate) short: Option<String>,
    /// A longer run, for recordings; the benchmark by default.
    pub(crate) long: Option<String>,
}

/// Ten minutes: the longest recordings take less than one, and counting instructions takes some fifty times as long as
/// a run.
fn usual_limit_s() -> u32 {
    600
}

impl Manifest {
    /// Reads and checks a manifest; errors name the file and the fault.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut manifest = Self::parse(&text).with_context(|| format!("in {}", path.display()))?;
        let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
        manifest.here = path.parent().context("the manifest has no directory")?.to_owned();
        Ok(manifest)
    }

    /// Parses and checks a manifest.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let manifest: Self = toml::from_str(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.rounds > 0, "rounds must be at least 1");
        anyhow::ensure!(self.limit_s > 0, "limit_s must be at least 1");
        anyhow::ensure!(self.layouts >= 2, "layouts = {}: must be at least 2", self.layouts);
        let n = self.layouts.checked_mul(self.copies).filter(|n| (2..=99).contains(n));
        anyhow::ensure!(n.is_some(), "layouts × copies must be 2 to 99");
        let flags = self.flags.iter().map(|flags| &flags.name);
        let programs = self.program.iter().map(|program| &program.name);
        for (what, names) in [("flags", flags.collect::<Vec<_>>()), ("program", programs.collect())] {
            anyhow::ensure!(!names.is_empty(), "the manifest has no [[{what}]]");
            for (index, name) in names.iter().enumerate() {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '.');
                let plain = !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain);
                anyhow::ensure!(plain, "[[{what}]] name `{name}`: use only letters, digits, -, _, + and .");
                anyhow::ensure!(
                    !names.iter().take(index).any(|other| other == name),
                    "[[{what}]] `{name}` is given twice"
                );
            }
        }
        for flags in &self.flags {
            let is_prepared =
                flags.prepare.is_some() || !flags.ldflags.as_ref().is_some_and(|all| all.contains(PREPARED));
            anyhow::ensure!(is_prepared, "[[flags]] `{}`: ldflags use {PREPARED} without prepare", flags.name);
            if let Some(against) = &flags.against {
                let baseline = self.flags.iter().find(|other| other.name == *against);
                let is_baseline = baseline.is_some_and(|baseline| baseline.against.is_none());
                anyhow::ensure!(is_baseline, "[[flags]] `{}`: against = `{against}` is not a baseline", flags.name);
            }
        }
        self.program.iter().try_for_each(|program| self.check_program(program))
    }

    fn check_program(&self, program: &Program) -> anyhow::Result<()> {
        let name = &program.name;
        for command in [Some(&program.bench), program.short.as_ref(), program.long.as_ref()].into_iter().flatten() {
            let n = command.split_whitespace().filter(|word| *word == EXE).count();
            anyhow::ensure!(n == 1, "[[program]] `{name}`: `{command}` must contain {EXE} once");
        }
        let sources = [program.path.is_some(), !program.crates.is_empty(), program.fetch.is_some()];
        let n = sources.iter().filter(|given| **given).count();
        anyhow::ensure!(n < 2, "[[program]] `{name}`: set one of crate, path and fetch");
        for flags in program.under.iter().flatten() {
            let is_known = self.flags.iter().any(|other| other.name == *flags);
            anyhow::ensure!(is_known, "[[program]] `{name}`: under = `{flags}` is not a [[flags]]");
        }
        let lacks = self.flags.iter().find(|flags| {
            let needs = flags.against.as_deref().filter(|_| program.is_under(&flags.name));
            needs.is_some_and(|against| !program.is_under(against))
        });
        match lacks {
            None => Ok(()),
            Some(flags) => {
                anyhow::bail!("[[program]] `{name}`: under has `{}` without its baseline", flags.name)
            }
        }
    }

    /// Keeps only the named flag sets with their baselines, and the named programs; an empty list keeps all.
    pub(crate) fn only(mut self, flags: &[String], programs: &[String]) -> anyhow::Result<Self> {
        let (sets, all) = (self.flags.iter().map(|set| &set.name), self.program.iter().map(|program| &program.name));
        for (what, names, wanted) in [("flags", sets.collect::<Vec<_>>(), flags), ("program", all.collect(), programs)]
        {
            let unknown = wanted.iter().find(|name| !names.contains(name));
            anyhow::ensure!(unknown.is_none(), "the manifest has no [[{what}]] `{}`", unknown.map_or("", |name| name));
        }
        let baselines = self.flags.iter().filter(|set| flags.contains(&set.name)).filter_map(|set| set.against.clone());
        let kept: Vec<String> = flags.iter().cloned().chain(baselines).collect();
        self.flags.retain(|set| kept.is_empty() || kept.contains(&set.name));
        self.program.retain(|program| programs.is_empty() || programs.contains(&program.name));
        (self.only_flags, self.only_programs) = (flags.to_vec(), programs.to_vec());
        Ok(self)
    }

    /// The number of binaries of each arm.
    pub(crate) fn binaries(&self) -> u32 {
        self.layouts.saturating_mul(self.copies)
    }
}

impl Program {
    /// Whether the program is built under a flag set.
    pub(crate) fn is_under(&self, flags: &str) -> bool {
        self.under.as_ref().is_none_or(|under| under.iter().any(|name| name == flags))
    }
}

impl Flags {
    /// Replaces the placeholders for compilers, flags and the manifest's directory in a command.
    pub(super) fn fill(&self, template: &str, here: &Path) -> String {
        let here = quoted(here.as_os_str());
        let words = [("{cc}", &self.compiler), ("{cxx}", &self.cxx()), ("{cflags}", &self.cflags), ("{here}", &here)];
        words.iter().fold(template.to_owned(), |text, (word, with)| text.replace(word, with))
    }

    /// The C++ compiler.
    pub(crate) fn cxx(&self) -> String {
        self.cxx.clone().unwrap_or_else(|| {
            let replaced = self.compiler.replacen("clang", "clang++", 1);
            if replaced == self.compiler { self.compiler.replacen("gcc", "g++", 1) } else { replaced }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the manifest of `init` can be read, and has the documented values.
    #[test]
    fn template_is_a_manifest() {
        let manifest = Manifest::parse(TEMPLATE).unwrap();
        assert_eq!(manifest.flags[1].against.as_deref(), Some("gcc"));
        assert_eq!(manifest.flags[0].cxx(), "g++");
    }

    /// Check that the named flag sets are kept with their baselines, and that unknown names are refused.
    #[test]
    fn some_are_kept() {
        let manifest = || Manifest::parse(TEMPLATE).unwrap();
        let names = |manifest: &Manifest| manifest.flags.iter().map(|set| set.name.clone()).collect::<Vec<_>>();
        let only = |flags: &str, programs: &[String]| manifest().only(&[flags.to_owned()], programs);
        assert_eq!(names(&only("gcc-fp", &[]).unwrap()), ["gcc", "gcc-fp"]);
        assert_eq!(names(&only("gcc", &["rec".to_owned()]).unwrap()), ["gcc"]);
        assert!(only("icc", &[]).unwrap_err().to_string().contains("no [[flags]] `icc`"));
        assert!(only("gcc", &["rust".to_owned()]).unwrap_err().to_string().contains("no [[program]] `rust`"));
    }

    /// Check that errors name the mistake.
    #[test]
    fn mistakes_are_named() {
        for (from, to, want) in [
            ("rounds = ", "rounds = 0 #", "rounds must be"),
            ("layouts = ", "layouts = 0 #", "layouts"),
            ("# limit_s = 600", "limit_s = 0", "limit_s must be"),
            ("name = \"gcc-fp\"", "name = \"gcc\"", "twice"),
            ("against = \"gcc\"", "against = \"icc\"", "not a baseline"),
            ("bench = \"{exe}", "bench = \"time", "must contain {exe} once"),
            ("name = \"rec\"", "name = \"rec\"\nunder = [\"icc\"]", "is not a [[flags]]"),
            ("name = \"rec\"", "name = \"rec\"\nunder = [\"gcc-fp\"]", "without its baseline"),
            ("name = \"rec\"", "name = \"rec\"\npath = \"x\"\nfetch = \"y\"", "one of crate, path and fetch"),
            ("name = \"rec\"", "name = \"../rec\"", "use only letters"),
            ("cflags = ", "ldflags = \"-L{prepared}\"\ncflags = ", "without prepare"),
            ("seed = ", "sed = ", "sed"),
        ] {
            assert!(TEMPLATE.contains(from), "{from}");
            let error = format!("{:#}", Manifest::parse(&TEMPLATE.replacen(from, to, 1)).unwrap_err());
            assert!(error.contains(want), "{error}");
        }
    }
}

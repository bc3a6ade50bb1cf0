//! Runs tests of the workspace, and collects the figures they print.

use crate::found::Found;
use crate::place::Place;
use crate::process::{ran, words};
use anyhow::{Context as _, ensure};
use std::collections::BTreeMap;
use std::process::Command;

/// Tests of some test binaries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Suite {
    /// The test binaries, as cargo options.
    pub(crate) programs: &'static [&'static str],
    /// The test functions, each of which must exist.
    pub(crate) tests: &'static [&'static str],
}

/// Figures that tests printed after the word `figures`: names and values.
#[derive(Debug, Default)]
pub(crate) struct Figures(BTreeMap<String, String>);

impl Figures {
    /// The prefix of lines with figures.
    pub(crate) const MARK: &'static str = "figures";

    pub(crate) fn number(&self, name: &str) -> anyhow::Result<f64> {
        let value = self.0.get(name).with_context(|| format!("no figure {name} was printed"))?;
        value.parse().with_context(|| format!("{name}={value}"))
    }

    pub(crate) fn text(&self, name: &str) -> anyhow::Result<&str> {
        Ok(self.0.get(name).with_context(|| format!("no figure {name} was printed"))?)
    }
}

/// Parses the figures in the output of tests.
pub(crate) fn figures(output: &str) -> Figures {
    let lines = output.lines().filter_map(|line| line.strip_prefix(Figures::MARK)?.strip_prefix(' '));
    let pairs = lines.flat_map(|line| line.split(' ').filter_map(|pair| pair.split_once('=')));
    Figures(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// The result of running tests.
#[derive(Debug)]
pub(crate) struct Tested {
    /// The numbers of requested and passed tests, and the names of the others.
    pub(crate) asked: usize,
    pub(crate) passed: usize,
    pub(crate) others: Vec<&'static str>,
    pub(crate) output: String,
}

/// Runs tests to their end, and collects their figures.
pub(crate) fn run(place: &Place, suites: &[Suite], environment: &[(&str, &str)]) -> anyhow::Result<Tested> {
    let mut tested = Tested { asked: 0, passed: 0, others: Vec::new(), output: String::new() };
    for suite in suites {
        let mut command = Command::new("cargo");
        command.args([
            "test",
            "--quiet",
            "--release",
            "--workspace",
            "--features",
            "libdw,libunwind",
            "--no-fail-fast",
        ]);
        command.args(suite.programs).arg("--").args(["--show-output", "--format", "pretty"]).args(suite.tests);
        command.current_dir(&place.root).envs(environment.iter().copied());
        // This program was started by cargo, too; its variables must not reach the tests.
        command.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_PKG_NAME");
        let output = ran(&mut command)?;
        let output = format!("{}\n{}", words(&output.stdout), words(&output.stderr));
        ensure!(output.contains("test result:"), "no tests were run: {output}");
        let (passed, others): (Vec<&str>, Vec<&str>) =
            suite.tests.iter().copied().partition(|name| has_passed(&output, name));
        tested.asked += suite.tests.len();
        tested.passed += passed.len();
        if !others.is_empty() {
            // Their output says why they failed.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), output.as_bytes());
        }
        tested.others.extend(others);
        tested.output.push_str(&output);
    }
    Ok(tested)
}

/// Whether a test ran, and every test with that name passed.
fn has_passed(output: &str, name: &str) -> bool {
    let results = output.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    // Some test names have a suffix: `name - should panic`.
    let own_name = |path: &str| path.split(" - ").next().and_then(|path| path.rsplit("::").next()) == Some(name);
    let mut ends = results.filter(|(path, _)| own_name(path)).map(|(_, end)| end.trim_end().ends_with("ok")).peekable();
    ends.peek().is_some() && ends.all(|is_ok| is_ok)
}

impl Tested {
    pub(crate) fn is_good(&self) -> bool {
        self.others.is_empty()
    }

    /// The number of passed tests, and the names of the failed ones.
    pub(crate) fn words(&self) -> String {
        let failed = if self.is_good() { String::new() } else { format!("; not: {}", self.others.join(", ")) };
        format!("{} of {} tests pass{failed}", self.passed, self.asked)
    }
}

/// The row of a goal that consists of tests only.
pub(crate) fn all_pass(place: &Place, suites: &[Suite]) -> anyhow::Result<Found> {
    let tested = run(place, suites, &[])?;
    Ok(Found::new(tested.is_good(), tested.words()))
}

//! Records rustc, whose stacks of some 600 KiB exceed perf's largest chunk.

use crate::config::RunConfig;
use crate::judge;
use anyhow::{Context as _, ensure};
use std::fmt::Write as _;
use std::process::{Command, Stdio};

/// Number of functions in the compiled program: some seconds of work.
const FUNCTIONS: usize = 20;

/// Records a compilation; returns the number of user stacks and of complete ones.
pub(crate) fn complete(config: &RunConfig) -> anyhow::Result<(u64, u64)> {
    let (source, library, file) = (config.dir.join("much.rs"), config.dir.join("much.rlib"), config.dir.join("rustc"));
    std::fs::write(&source, program())?;
    let mut record = Command::new(&config.fpprof);
    record.args(["record", "--quiet", "-F", "999", "--collector", "ebpf", "--call-graph", "dwarf,1M", "-o"]).arg(&file);
    record.args(["--", "rustc", "--edition", "2021", "-O", "--crate-type", "lib", "-o"]).arg(&library).arg(&source);
    let output = record.stdin(Stdio::null()).output().context("recording rustc")?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    let counted = judge::complete_of(&judge::report(config, &file, "dwarf")?, "dwarf", &["rustc"]);
    for used in [&source, &library, &file] {
        std::fs::remove_file(used)?;
    }
    counted.0.zip(counted.1).context("no stacks of rustc in the report")
}

/// The source of a program that takes both the type checker and LLVM some time.
fn program() -> String {
    let mut text = "use std::collections::{BTreeMap, HashMap};\n".to_owned();
    for n in 0..FUNCTIONS {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "pub fn f{n}(x: &[u64]) -> Vec<String> {{\n\
             let by: BTreeMap<(u64, u64), String> = x.iter().zip(x.iter().skip({n}))\n\
             .filter(|(a, b)| *a % 7 != *b % 3).map(|(a, b)| ((a ^ {n}, *b), format!(\"{{a:x}} {{b}}\"))).collect();\n\
             let mut sums: HashMap<String, u64> = HashMap::new();\n\
             for ((a, b), name) in &by {{ *sums.entry(name.clone()).or_default() += a.wrapping_mul(*b); }}\n\
             let mut all: Vec<String> = sums.into_iter().map(|(k, v)| format!(\"{{k}}: {{v:?}}\")).collect();\n\
             all.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));\nall\n}}\n"
        );
    }
    text
}

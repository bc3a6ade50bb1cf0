//! Inspects a file with binutils.

use fpprof_workloads::{Program, build};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A built file.
pub(crate) struct Binary {
    path: PathBuf,
    /// The directory is kept as long as the file is in use.
    _directory: Option<TempDir>,
}

impl Binary {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), _directory: None }
    }

    /// Builds a program with its usual compiler.
    pub(crate) fn build(program: &Program) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { path: build(program, directory.path()).unwrap(), _directory: Some(directory) }
    }

    /// The output of a tool for the file.
    pub(crate) fn tool(&self, tool: &str, flags: &[&str]) -> String {
        let output = Command::new(tool).args(flags).arg(&self.path).output().unwrap();
        assert!(output.status.success(), "{tool} {flags:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Addresses of functions by their demangled names.
    pub(crate) fn functions(&self) -> BTreeMap<String, u64> {
        let table = self.tool("nm", &["--demangle", "--defined-only"]);
        let function = |line: &str| {
            let (address, rest) = line.split_once(' ')?;
            let (kind, name) = rest.split_once(' ')?;
            matches!(kind, "T" | "t").then_some((name.to_owned(), u64::from_str_radix(address, 16).ok()?))
        };
        table.lines().filter_map(function).collect()
    }

    /// The instructions of a function, without their bytes.
    pub(crate) fn instructions(&self, function: &str) -> Vec<String> {
        let all = self.tool("objdump", &["--disassemble", "--no-show-raw-insn", "--demangle"]);
        let header = format!("<{function}>:");
        let body = all.lines().skip_while(|line| !line.ends_with(&header)).skip(1).take_while(|line| !line.is_empty());
        let instructions: Vec<String> =
            body.filter_map(|line| Some(line.split_once(':')?.1.trim().to_owned())).collect();
        assert!(!instructions.is_empty(), "{function} is not in {}", self.path.display());
        instructions
    }

    /// Whether a function has a row in the section `.eh_frame` or `.debug_frame`.
    pub(crate) fn has_rows(&self, function: &str, section: &str) -> bool {
        let address = self.functions()[function];
        self.rows_of(section).iter().any(|(range, _)| range.contains(&address))
    }

    /// The rows of a function, as `readelf` prints them.
    pub(crate) fn rows(&self, function: &str) -> String {
        let address = self.functions()[function];
        let rows = self.rows_of(".eh_frame");
        rows.into_iter().find(|(range, _)| range.contains(&address)).unwrap().1
    }

    fn rows_of(&self, section: &str) -> Vec<(Range<u64>, String)> {
        let all = self.tool("readelf", &["--debug-dump=frames-interp", "--wide"]);
        let start = format!("Contents of the {section} section:");
        let of_section =
            all.split("Contents of the ").find(|text| text.starts_with(&start["Contents of the ".len()..]));
        let entries = of_section.unwrap_or("").split("\n\n");
        let entry = |text: &str| {
            let range = text.split_once("pc=")?.1.split_whitespace().next()?;
            let (start, end) = range.split_once("..")?;
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            Some((hex(start)..hex(end), text.to_owned()))
        };
        entries.filter_map(entry).collect()
    }

    pub(crate) fn headers(&self) -> String {
        self.tool("readelf", &["--file-header", "--program-headers", "--section-headers", "--dynamic", "--wide"])
    }
}

//! A table of many programs checked by the oracle of `fpprof verify`.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::support::number;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// The oracle's results for one program.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Instructions that were checked.
    pub(crate) checked: u64,
    pub(crate) report: Value,
}

impl Row {
    pub(crate) fn verdicts(&self, strategy: &str) -> &Value {
        let strategies = self.report["strategies"].as_array().expect("strategies");
        strategies.iter().find(|verdicts| verdicts["name"] == strategy).expect("it was asked for")
    }

    /// Number of stacks that are wrong without a flag.
    pub(crate) fn wrong(&self, strategy: &str) -> u64 {
        let wrong = self.verdicts(strategy)["wrong"].as_object().expect("counts");
        wrong.values().filter_map(Value::as_u64).sum()
    }

    /// Per cent of the stacks that are exact.
    pub(crate) fn exact(&self, strategy: &str) -> f64 {
        percent(number(self.verdicts(strategy), "exact"), self.checked)
    }

    /// Number of stacks that are truncated at a frame without call frame information.
    pub(crate) fn without_cfi(&self) -> u64 {
        self.verdicts("dwarf")["truncated"]["no_cfi"].as_u64().unwrap_or(0)
    }
}

/// A strategy's stack in a shown disagreement.
fn stack<'a>(shown: &'a Value, strategy: &str) -> Option<&'a Value> {
    shown["stacks"].as_array()?.iter().find(|stack| stack["strategy"] == strategy)
}

/// The table of all programs.
#[derive(Debug)]
pub(crate) struct Table {
    title: &'static str,
    /// The base name of the files, and of their directory in `target`.
    name: &'static str,
    /// The text below the table.
    remark: &'static str,
    rows: Vec<Row>,
}

impl Table {
    pub(crate) fn new(title: &'static str, name: &'static str, remark: &'static str) -> Self {
        Self { title, name, remark, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, report: Value) {
        self.rows.push(Row { name: name.to_owned(), checked: number(&report, "checked"), report });
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn strategies(&self) -> Vec<String> {
        let names = self.rows.first().and_then(|row| row.report["strategies"].as_array());
        names.into_iter().flatten().filter_map(|verdicts| verdicts["name"].as_str()).map(str::to_owned).collect()
    }

    /// The table as Markdown, also readable on a terminal, followed by the disagreements selected by `is_listed`.
    pub(crate) fn markdown(&self, is_listed: impl Fn(&Value) -> bool) -> String {
        let strategies = self.strategies();
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        let mut out = format!("# {}\n\n", self.title);
        out.push_str(
            "Per cent of the checked instructions at which every frame is right and none is missing, and in brackets \
             those at which\nsomething is not right and nothing says so. Without CFI: where a frame has no call frame \
             information, and ours ends\nthere and says so.\n\n",
        );
        let titles: Vec<String> = strategies.iter().map(|name| format!("{name:^19}")).collect();
        let _ = writeln!(
            out,
            "| {:<width$} | {:>9} | {:>9} | {:>11} | {} |",
            "program",
            "checked",
            "transfers",
            "without CFI",
            titles.join(" | ")
        );
        let _ = writeln!(out, "|:--|--:|--:|--:|{}", ":-:|".repeat(titles.len()));
        for row in &self.rows {
            let transfers = number(&row.report["run"]["events"], "turns_passed");
            let without_cfi = format!("{:.3}", percent(row.without_cfi(), row.checked));
            let _ = write!(out, "| {:<width$} | {:>9} | {transfers:>9} | {without_cfi:>11} |", row.name, row.checked);
            for name in &strategies {
                let wrong = percent(row.wrong(name), row.checked);
                let _ = write!(out, " {:^19} |", format!("{:.3} ({wrong:.3})", row.exact(name)));
            }
            out.push('\n');
        }
        for row in &self.rows {
            let shown = row.report["disagreements"].as_array().into_iter().flatten();
            for (index, shown) in shown.filter(|shown| is_listed(shown)).enumerate() {
                let text = |key: &str| shown[key].as_str().unwrap_or_default().to_owned();
                let ours = stack(shown, "dwarf").map(|stack| format!("{} {}", stack["class"], stack["reason"]));
                if index == 0 {
                    let _ = writeln!(out, "\n{}: where ours is not exact\n", row.name);
                }
                let ours = ours.unwrap_or_default().replace('"', "");
                let _ = writeln!(out, "- {ours}: at {}, {}", text("culprit"), text("row"));
            }
        }
        out.push_str(self.remark);
        out
    }

    /// Writes the table to the build's target directory, and prints it.
    pub(crate) fn publish(&self, is_listed: impl Fn(&Value) -> bool) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join(self.name);
        let rows = self.rows.iter().map(|row| json!({"program": row.name, "verification": row.report}));
        let json = serde_json::to_string(&rows.collect::<Vec<_>>()).expect("plain values");
        let markdown = self.markdown(is_listed);
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(folder.join(self.name).with_extension("md"), &markdown).expect("the table can be written");
        std::fs::write(folder.join(self.name).with_extension("json"), json + "\n").expect("the table can be written");
        #[expect(clippy::print_stdout, reason = "what the recipe is for")]
        {
            println!("{markdown}\nwritten to {}", folder.display());
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of instructions are small")]
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

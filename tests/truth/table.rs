//! The table of verdicts by program, compiler and strategy.

use crate::judge::Verdict;
use fpprof_analysis::strategy::Strategy;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Samples by verdict: exact, truncated, flagged, wrong.
type Classes = [u64; 4];

/// Counts of the strategies' verdicts on some samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Samples with a known true stack.
    pub(crate) n_judged: u64,
    /// Samples of the program's start and end, and of its libraries.
    pub(crate) n_outside: u64,
    /// Counts by strategy.
    pub(crate) classes: Vec<Classes>,
    /// Whether call frame information covers every frame.
    pub(crate) is_described: bool,
    /// Samples with all frames known, so that missing frames of frame pointers are certain.
    pub(crate) n_known: u64,
    /// The known samples in which frame pointers are wrong.
    pub(crate) n_fp_errors: u64,
    /// The known samples in which frame pointers disagree with call frame information: the estimate without the truth.
    pub(crate) n_fp_suspected: u64,
}

impl Counts {
    pub(crate) fn new(n_strategies: usize, is_described: bool) -> Self {
        Self { classes: vec![[0; 4]; n_strategies], is_described, ..Self::default() }
    }

    /// Counts a sample `n` times. The first verdict is that of frame pointers. `is_suspected` is given if every frame
    /// of the sample is known. A strategy without any frame has truncated the stack.
    pub(crate) fn judge(&mut self, verdicts: &[Option<Verdict>], is_suspected: Option<bool>, n: u64) {
        self.n_judged += n;
        for (classes, verdict) in self.classes.iter_mut().zip(verdicts) {
            classes[verdict.unwrap_or(Verdict::Truncated) as usize] += n;
        }
        if let Some(is_suspected) = is_suspected {
            let is_error = matches!(verdicts.first(), Some(Some(Verdict::Flagged | Verdict::Wrong)));
            self.n_known += n;
            self.n_fp_errors += if is_error { n } else { 0 };
            self.n_fp_suspected += if is_suspected { n } else { 0 };
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.n_judged, other.n_judged),
            (&mut self.n_outside, other.n_outside),
            (&mut self.n_known, other.n_known),
            (&mut self.n_fp_errors, other.n_fp_errors),
            (&mut self.n_fp_suspected, other.n_fp_suspected),
        ] {
            *own += other;
        }
        for (own, other) in self.classes.iter_mut().zip(&other.classes) {
            own.iter_mut().zip(other).for_each(|(own, other)| *own += other);
        }
    }

    /// Per cent of the judged samples for which a strategy has this verdict.
    pub(crate) fn percent(&self, strategy: usize, verdict: Verdict) -> f64 {
        percent(self.classes[strategy][verdict as usize], self.classes[strategy].iter().sum())
    }

    /// Per cent of the samples with known frames in which frame pointers are wrong: the true value, and the estimate
    /// from their disagreement with call frame information.
    pub(crate) fn fp_errors(&self) -> (f64, f64) {
        (percent(self.n_fp_errors, self.n_known), percent(self.n_fp_suspected, self.n_known))
    }
}

/// One program built with one compiler.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) program: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) counts: Counts,
}

/// The whole table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) strategies: Vec<Strategy>,
    pub(crate) rows: Vec<Row>,
    /// Counts over all programs.
    pub(crate) all: Counts,
    /// Counts over the programs that call frame information covers.
    pub(crate) described: Counts,
}

impl Table {
    pub(crate) fn new(strategies: &[Strategy], rows: Vec<Row>) -> Self {
        let mut all = Counts::new(strategies.len(), false);
        let mut described = Counts::new(strategies.len(), true);
        for row in &rows {
            all.add(&row.counts);
            if row.counts.is_described {
                described.add(&row.counts);
            }
        }
        Self { strategies: strategies.to_vec(), rows, all, described }
    }

    /// The index of a strategy in all counts.
    pub(crate) fn index(&self, strategy: Strategy) -> usize {
        self.strategies.iter().position(|other| *other == strategy).expect("it was asked for")
    }

    /// The table as Markdown, also readable on a terminal.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::from("# Known stacks, by program, compiler and strategy\n\n");
        out.push_str(
            "Per cent of the samples whose true stack is known: exact / truncated / flagged / wrong. Exact: every \
             frame from the leaf to\n`main` or the thread's first function. Truncated: right as far as it goes, and it \
             says so. Flagged: not right, and it says so.\nWrong: not right, and nothing says so. Programs with a `*` \
             have frames that call frame information or the copied bytes do\nnot hold. The column cfi, walks in the \
             kernel, is of other samples, of a recording of its own. \
             Only gcc was told to write .sframe sections.\nThat a function has no caller (`.cfi_undefined`) the \
             assembler cannot write there: in hand_switch these stacks go on into the\nfunction that went over to the \
             other stack.\n\n",
        );
        let titles: Vec<String> = self.strategies.iter().map(ToString::to_string).collect();
        let _ =
            writeln!(out, "| {:<24} | {:<8} | {:>7} | {:^22} |", "program", "compiler", "samples", titles.join(" | "));
        let _ = writeln!(out, "|:--|:--|--:|{}", ":-:|".repeat(titles.len()));
        for row in &self.rows {
            let star = if row.counts.is_described { "" } else { " *" };
            self.line(&format!("{}{star}", row.program), row.compiler, &row.counts, &mut out);
        }
        self.line("**all**", "", &self.all, &mut out);
        self.line("**without `*`**", "", &self.described, &mut out);
        let (real, suspected) = self.described.fp_errors();
        let _ = writeln!(
            out,
            "\nFrame pointers are not right in {real:.2} % of the {} samples whose every frame is known (without `*`). \
             Their disagreement\nwith call frame information, which knows nothing of the truth, says {suspected:.2} %. \
             {} samples of start and end were not judged.",
            self.described.n_known, self.all.n_outside
        );
        out
    }

    fn line(&self, name: &str, compiler: &str, counts: &Counts, out: &mut String) {
        let _ = write!(out, "| {name:<24} | {compiler:<8} | {:>7} |", counts.n_judged);
        for strategy in 0..self.strategies.len() {
            let shares = [Verdict::Exact, Verdict::Truncated, Verdict::Flagged, Verdict::Wrong];
            let shares = shares.map(|verdict| brief(counts.percent(strategy, verdict)));
            let is_judged = counts.classes[strategy].iter().any(|&n| n > 0);
            let shares = if is_judged { shares.join(" / ") } else { "–".to_owned() };
            let _ = write!(out, " {shares:^22} |");
        }
        out.push('\n');
    }

    /// The table as JSON, in numbers of samples.
    pub(crate) fn json(&self) -> Value {
        let counts = |counts: &Counts| {
            let strategies = self.strategies.iter().zip(&counts.classes).map(|(strategy, classes)| {
                let [exact, truncated, flagged, wrong] = classes;
                let classes = json!({"exact": exact, "truncated": truncated, "flagged": flagged, "wrong": wrong});
                (strategy.to_string(), classes)
            });
            json!({
                "judged": counts.n_judged,
                "outside": counts.n_outside,
                "is_described": counts.is_described,
                "strategies": strategies.collect::<serde_json::Map<_, _>>(),
                "known": counts.n_known,
                "fp_errors": counts.n_fp_errors,
                "fp_suspected": counts.n_fp_suspected,
            })
        };
        let rows = self
            .rows
            .iter()
            .map(|row| json!({"program": row.program, "compiler": row.compiler, "counts": counts(&row.counts)}));
        json!({
            "programs": rows.collect::<Vec<_>>(),
            "all": counts(&self.all),
            "described": counts(&self.described),
        })
    }
}

/// A percentage without a fraction if it is whole.
fn brief(percent: f64) -> String {
    if percent.fract() == 0.0 { format!("{percent:.0}") } else { format!("{percent:.2}") }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of samples are small")]
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

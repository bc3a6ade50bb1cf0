//! The results as JSON and as Markdown.

use crate::bpf_cost::{BpfCost, MODES};
use crate::goals::{Goal, GoalRuns};
use crate::handler::HANDLERS;
use crate::modes::is_installed;
use crate::run::Run;
use crate::summary::{Row, median, rows, slow_down_words};
use serde::Serialize;
use std::fmt::Write as _;
use std::process::Command;

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) cpu_model: String,
    pub(crate) kernel: String,
    pub(crate) cpus: usize,
    /// Tasks ready to run over the last minute, at the end: more than `cpus` means that other programs were running.
    pub(crate) load: String,
    pub(crate) versions: Vec<String>,
    /// Profilers that are not installed.
    pub(crate) not_installed: Vec<&'static str>,
    pub(crate) rounds: u32,
    pub(crate) seconds: u64,
    pub(crate) goals: Vec<Goal>,
    pub(crate) goal_runs: GoalRuns,
    pub(crate) rows: Vec<Row>,
    pub(crate) bpf: Vec<BpfCost>,
    pub(crate) runs: Vec<Run>,
}

const OTHERS: [&str; 3] = ["perf", "bpftrace", "samply"];

impl Report {
    pub(crate) fn new(
        rates: &[u64],
        rounds: u32,
        seconds: u64,
        runs: &[Run],
        goal_runs: GoalRuns,
        bpf: Vec<BpfCost>,
    ) -> anyhow::Result<Self> {
        let info = std::fs::read_to_string("/proc/cpuinfo")?;
        let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let version = |program: &&str| -> Option<String> {
            let output = Command::new(program).arg("--version").output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
        };
        Ok(Self {
            cpu_model: model.trim_start_matches(['\t', ' ', ':']).to_owned(),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            cpus: std::thread::available_parallelism()?.get(),
            load: std::fs::read_to_string("/proc/loadavg")?.split(' ').next().unwrap_or_default().to_owned(),
            versions: OTHERS.iter().filter_map(version).collect(),
            not_installed: OTHERS.into_iter().filter(|program| !is_installed(program)).collect(),
            rounds,
            seconds,
            goals: goal_runs.goals(&bpf),
            goal_runs,
            rows: rates.iter().flat_map(|&rate| rows(runs, rate)).collect(),
            bpf,
            runs: runs.to_vec(),
        })
    }

    /// The tables.
    pub(crate) fn markdown(&self) -> String {
        let mut text = format!(
            "# What collecting costs\n\nnbdkit + fio, {} s a run, {} interleaved rounds; {}, {} CPUs, Linux {}, load {}. {}.",
            self.seconds,
            self.rounds,
            self.cpu_model,
            self.cpus,
            self.kernel,
            self.load,
            self.versions.join(", ")
        );
        if !self.not_installed.is_empty() {
            // Writing to a String cannot fail, here and below.
            let _ = write!(text, " Not installed, so not measured: {}.", self.not_installed.join(", "));
        }
        text.push_str(
            "\n\nComplete: of the user stacks of nbdkit and fio in the first round, whoever took them, unwound by fpprof \
             (bpftrace's by the name of the outermost function). CPU: of the profiler without its children. Slow-down: \
             IOPS without a profiler in the same round to IOPS with it, with its 95 % interval. Start and stop: before \
             the command's first instruction and after its end. Inside execve, between two programs, a thread has no user stack: \
             of ours such a sample says so and is not complete, perf's has what then lies there. –: not known, or not measured.\n",
        );
        self.write_goals(&mut text);
        let mut rate = None;
        for row in &self.rows {
            if rate != Some(row.rate) {
                rate = Some(row.rate);
                let _ = write!(
                    text,
                    "\n## {} Hz\n\n| | B/sample | complete | lost | CPU s | slow-down | RSS MB | start s | stop s | SVG s | BPF ns a tick |\n\
                     |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
                    row.rate
                );
            }
            row.write(&mut text);
        }
        self.write_bpf(&mut text);
        self.write_handlers(&mut text);
        for run in self.goal_runs.runs.iter().chain(&self.runs) {
            let Some(error) = &run.error else { continue };
            let _ = write!(text, "\n- {} at {} Hz: {error}", run.mode, run.rate);
        }
        text.push('\n');
        text
    }

    fn write_goals(&self, text: &mut String) {
        let GoalRuns { rounds, seconds, .. } = self.goal_runs;
        let _ = write!(
            text,
            "\n## Goals\n\nRuns of their own, {seconds} s each, {rounds} interleaved rounds: the median decides; in brackets the \
             least and the most of all rounds.\n\n| goal | wanted | measured | |\n|---|---|---|---|\n"
        );
        text.extend(self.goals.iter().map(Goal::line));
    }

    fn write_bpf(&self, text: &mut String) {
        let _ = write!(
            text,
            "\n## Our BPF program: ns for a sample\n\nA chain of 23 frames above so many bytes of stack, 4999 Hz, medians of \
             the rounds. memcpy: as many bytes from the caches into 64 MiB in turn, and (hot) into the same place.\n\n\
             | stack | {} | bytes in the ring | memcpy | memcpy, hot |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n",
            MODES.join(" | ")
        );
        for cost in &self.bpf {
            let middle = |values: &[f64]| figure(median(values.to_vec()), 0);
            let modes: Vec<String> = cost.ns_per_sample.iter().map(|values| middle(values)).collect();
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {} | {} |",
                cost.stack_bytes,
                modes.join(" | "),
                cost.record_bytes,
                middle(&cost.memcpy_ns),
                middle(&cost.hot_memcpy_ns)
            );
        }
    }

    fn write_handlers(&self, text: &mut String) {
        let handlers: Vec<_> = self.bpf.iter().filter_map(|cost| cost.handler.as_ref()).collect();
        if handlers.is_empty() {
            text.push_str("\nThe interrupt was not measured: that wants bpftrace, perf and tracefs.\n");
            return;
        }
        let _ = write!(
            text,
            "\n## The sampling interrupt: ns for a sample\n\nThe timer's handler as bpftrace sees it, whoever sampled; what \
             bpftrace takes is in all of them. The same program; medians of the rounds. perf copies as many bytes as the \
             stack has, at most 65,528.\n\n| stack | {} |\n|--:|{}\n",
            HANDLERS.join(" | "),
            "--:|".repeat(HANDLERS.len())
        );
        for handler in handlers {
            let values: Vec<String> = handler.ns.iter().map(|ns| figure(median(ns.clone()), 0)).collect();
            let _ = writeln!(text, "| {} | {} |", handler.stack_bytes, values.join(" | "));
        }
    }
}

impl Row {
    fn write(&self, text: &mut String) {
        let lost = match (self.lost, self.lost_percent) {
            (Some(0), _) => "0".to_owned(),
            (Some(lost), Some(percent)) => format!("{percent:.2} % ({lost})"),
            _ => "–".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {lost} | {} | {} | {:.1} | {} | {} | {} | {} |",
            self.mode,
            figure(self.bytes_per_sample, 1),
            self.complete_percent.map_or("–".to_owned(), |percent| format!("{percent:.1} %")),
            figure(self.cpu_s.map(|cpu| cpu.mean), 2),
            self.slow_down.map_or("–".to_owned(), slow_down_words),
            self.max_rss_bytes as f64 / 1e6,
            figure(self.start_s, 2),
            figure(self.stop_s, 2),
            figure(self.svg_s, 2),
            figure(self.bpf_ns_per_tick, 0),
        );
    }
}

pub(crate) fn figure(value: Option<f64>, digits: usize) -> String {
    value.map_or("–".to_owned(), |value| format!("{value:.digits$}"))
}

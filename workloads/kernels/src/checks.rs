//! Checks of a guest's results.

use crate::chain::{CHAIN, THREADS, WAITS, exact, exact_signed};
use crate::kernels::Expects;
use crate::results::{Ended, Results};
use crate::steps::steps;
use anyhow::{Context as _, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// A column of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// Whether the check applies to a kernel with these expectations.
    pub(crate) applies: fn(Expects) -> bool,
    /// Returns the text for the table, or an error with what was expected and what was found.
    pub(crate) judge: fn(&Results, Expects) -> anyhow::Result<String>,
}

/// All columns.
pub(crate) const CHECKS: &[Check] = &[
    Check { name: "fp", applies: is_whole, judge: |results, _| chain(results, "fp", &["fp"]) },
    Check { name: "dwarf", applies: is_whole, judge: |results, _| chain(results, "dwarf", &["dwarf"]) },
    Check { name: "both", applies: |_| true, judge: |results, _| chain(results, "both", &["fp", "dwarf"]) },
    Check { name: "one-in-four", applies: is_whole, judge: one_in_four },
    Check { name: "cfi", applies: is_whole, judge: cfi },
    Check { name: "auto", applies: is_whole, judge: auto },
    Check { name: "private", applies: |expects| is_whole(expects) && expects != Expects::PerfEvent, judge: private },
    Check { name: "signed", applies: |expects| expects == Expects::SignedAddresses, judge: signed },
    Check { name: "attach", applies: is_whole, judge: threads_with_ends },
    Check { name: "-a", applies: is_whole, judge: |results, _| threads(results, "all") },
    Check { name: "off-cpu", applies: is_whole, judge: off_cpu },
    Check { name: "agent", applies: is_whole, judge: agent },
    Check { name: "report", applies: is_whole, judge: report },
    Check { name: "doctor", applies: is_whole, judge: doctor },
    Check { name: "collector", applies: |_| true, judge: collector },
    Check { name: "quiet", applies: |_| true, judge: quiet },
    Check { name: "clamp", applies: |expects| expects == Expects::PerfEvent, judge: clamp },
    Check { name: "rings", applies: |expects| expects == Expects::ManyCpus, judge: rings },
    Check { name: "clean", applies: |_| true, judge: clean },
];

/// Maximum total size of all CPUs' rings by default, plus 16 MB for all other maps.
const MOST_MAP_BYTES: u64 = 256_000_000 + 16_000_000;
/// Kernel messages that indicate a fault of the kernel.
const KERNEL_FAULTS: [&str; 4] = ["BUG: ", "WARNING: CPU", "Oops: ", "general protection fault"];

fn is_whole(expects: Expects) -> bool {
    expects != Expects::ManyCpus
}

/// Checks one thread, twelve functions deep.
fn chain(results: &Results, step: &str, strategies: &[&str]) -> anyhow::Result<String> {
    results.succeeded(step)?;
    judge(results, step, strategies, CHAIN)
}

/// Checks one thread with frame pointers in all samples and a copied stack in one of four, which perf events cannot do.
fn one_in_four(results: &Results, expects: Expects) -> anyhow::Result<String> {
    if expects == Expects::PerfEvent {
        let Ended { status, stderr, .. } = results.ended("one-in-four")?;
        ensure!(status == 1 && stderr.contains("both:1/N"), "expected a refusal, got {status}: {stderr}");
        return Ok("refused".to_owned());
    }
    let samples = chain(results, "one-in-four", &["fp", "dwarf"])?;
    let report = results.report("one-in-four", &[])?;
    let strategies = report.get("strategies").context("no `strategies` in the report")?;
    let of = |name: &str| number(strategies.get(name).context("no such strategy in the report")?, "samples");
    let (all, copied) = (of("fp")?, of("dwarf")?);
    ensure!(all / 8 < copied && copied < all / 3, "expected a quarter of {all} stacks to be copied, got {copied}");
    Ok(samples)
}

/// Whether stacks can be walked in the kernel.
fn can_walk(expects: Expects) -> bool {
    !matches!(expects, Expects::PerfEvent | Expects::SignedAddresses)
}

/// Checks one thread in mode `auto`: walked in the kernel if possible, else copied, with a message.
fn auto(results: &Results, expects: Expects) -> anyhow::Result<String> {
    let (mode, strategies): (_, &[&str]) =
        if can_walk(expects) { ("cfi", &["cfi"]) } else { ("both", &["fp", "dwarf"]) };
    let Ended { stderr, .. } = results.ended("auto")?;
    ensure!(stderr.contains(&format!("--call-graph {mode},")), "expected the choice of {mode}, got {stderr}");
    chain(results, "auto", strategies)?;
    Ok(mode.to_owned())
}

/// Checks one thread walked in the kernel: walks are complete, and copied stacks agree. Frame pointers are recorded as
/// well. On other kernels the mode must be refused.
fn cfi(results: &Results, expects: Expects) -> anyhow::Result<String> {
    if !can_walk(expects) {
        let Ended { status, stderr, .. } = results.ended("cfi")?;
        ensure!(status == 1 && stderr.contains("--call-graph cfi"), "expected a refusal, got {status}: {stderr}");
        return Ok("refused".to_owned());
    }
    results.succeeded("cfi")?;
    let samples = judge(results, "cfi", &["cfi", "fp"], CHAIN)?;
    let report = results.report("cfi", &[])?;
    let walks = report.get("kernel_walks").context("no `kernel_walks` in the report")?;
    let (complete, verified, different) =
        (number(walks, "complete")?, number(walks, "verified")?, number(walks, "different")?);
    let recorded = number(&report, "recorded")?;
    ensure!(complete * 10 > recorded, "expected a tenth of {recorded} walks to be complete, got {complete}");
    ensure!(
        verified > 0 && different == 0,
        "expected the same frames in all {verified} checked, got {different} different"
    );
    Ok(samples)
}

/// Checks one thread of an undumpable process: no stack is copied, but the chain is recorded.
fn private(results: &Results, _: Expects) -> anyhow::Result<String> {
    results.succeeded("private")?;
    let report = results.report("private", &["--strategies", "fp"])?;
    balance(&report)?;
    let (recorded, withheld) = (number(&report, "recorded")?, number(&report, "withheld")?);
    ensure!(withheld * 10 >= recorded * 8, "expected most of {recorded} stacks not to be copied, got {withheld}");
    let samples = exact(&results.stacks("private", &["--strategy", "fp"])?, CHAIN, true)?;
    ensure!(samples >= withheld / 2, "expected chains of {withheld} samples, got {samples}");
    Ok(withheld.to_string())
}

/// Checks that the agent stores what it records, counts every tick, and survives a reload that requests something this
/// kernel may not support.
fn agent(results: &Results, expects: Expects) -> anyhow::Result<String> {
    let Ended { stderr, .. } = results.succeeded("agent")?;
    let metrics = results.text("agent", "metrics")?;
    let sum = |name: &str, label: &str| {
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{']));
        let lines = metrics.lines().filter(of_name).filter(|line| line.contains(label));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<i64>().ok()).sum::<i64>()
    };
    let all = |name: &str| sum(name, "");
    let fired = all("fpprof_ticks_fired_total");
    let parts = [
        "samples_recorded_total",
        "samples_lost_total",
        "ticks_skipped_total",
        "samples_dropped_total",
        "samples_unread",
    ];
    let parts: i64 = parts.iter().map(|name| all(&format!("fpprof_{name}"))).sum();
    ensure!(fired == parts && fired > 0, "expected {fired} ticks to be accounted for, got {parts}");
    let (stored, discarded) = (all("fpprof_samples_stored_total"), all("fpprof_samples_discarded_total"));
    ensure!(
        stored > 100 && discarded == 0,
        "expected samples to be stored, got {stored}, and {discarded} discarded: {stderr}"
    );
    let stacks = |end| sum("fpprof_stacks_total", end) - sum("fpprof_stacks_total", &format!("strategy=\"fp\",{end}"));
    let (complete, broken) = (stacks("stack=\"complete\""), stacks("stack=\"broken\""));
    ensure!(complete > 100 && broken == 0, "expected complete stacks, got {complete}, and {broken} broken");
    let output =
        if can_walk(expects) { "read the configuration again" } else { "the previous configuration stays in effect" };
    ensure!(stderr.contains(output), "expected \"{output}\", got {stderr}");
    Ok(stored.to_string())
}

/// Checks a program that signs its return addresses: `_start` < `run` < twelve times `level` < `leaf`, which has no
/// frame record.
fn signed(results: &Results, _: Expects) -> anyhow::Result<String> {
    let mut samples = 0;
    for (step, strategy) in [("signed-fp", "fp"), ("signed-both", "fp"), ("signed-both", "dwarf")] {
        results.succeeded(step)?;
        balance(&results.report(step, &["--strategies", strategy])?)?;
        samples = exact_signed(&results.stacks(step, &["--strategy", strategy])?)
            .with_context(|| format!("{step} by {strategy}"))?;
    }
    Ok(samples.to_string())
}

/// Checks four threads.
fn threads(results: &Results, step: &str) -> anyhow::Result<String> {
    results.succeeded(step)?;
    judge(results, step, &["fp", "dwarf"], THREADS)
}

/// Checks four threads whose stack ends the kernel knows: copies do not go beyond them. With perf events the requested
/// size is copied.
fn threads_with_ends(results: &Results, expects: Expects) -> anyhow::Result<String> {
    let found = threads(results, "attach")?;
    if expects != Expects::PerfEvent {
        let report = results.report("attach", &[])?;
        let all = report.pointer("/chunk_sizes/0").context("no `chunk_sizes` in the report")?;
        let (samples, unknown) = (number(all, "samples")?, number(all, "without_depth")?);
        ensure!(
            unknown * 2 < samples,
            "expected the end of the stack of most samples, got none for {unknown} of {samples}"
        );
    }
    Ok(found)
}

fn judge(results: &Results, step: &str, strategies: &[&str], chain: &[&str]) -> anyhow::Result<String> {
    let report = results.report(step, &["--strategies", &strategies.join(",")])?;
    balance(&report)?;
    let mut samples = 0;
    for strategy in strategies {
        let stacks = results.stacks(step, &["--strategy", strategy])?;
        samples = exact(&stacks, chain, *strategy == "fp").with_context(|| format!("by {strategy}"))?;
        if *strategy == "dwarf" {
            let complete = complete(&report)?;
            ensure!(complete >= samples, "expected all {samples} stacks in the known chain complete, got {complete}");
        }
    }
    Ok(format!("{samples}"))
}

/// Checks that every tick is accounted for, and that there are samples.
fn balance(report: &Value) -> anyhow::Result<()> {
    let [fired, recorded, skipped, dropped] =
        ["fired", "recorded", "skipped", "dropped"].map(|key| number(report, key));
    let (fired, recorded, skipped, dropped) = (fired?, recorded?, skipped?, dropped?);
    let causes = report.get("lost").and_then(Value::as_object).context("no `lost` in the report")?;
    let lost: u64 = causes.values().filter_map(Value::as_u64).sum();
    ensure!(
        fired == recorded + lost + skipped + dropped,
        "expected fired = recorded + lost + skipped + dropped, got {fired} = {recorded} + {lost} + {skipped} + {dropped}"
    );
    ensure!(recorded > 0, "expected samples, got none of {fired} ticks");
    let has_ended = report.get("ended_in_order").and_then(Value::as_bool);
    ensure!(has_ended != Some(false), "expected a recording that ended in order");
    Ok(())
}

/// Number of the program's complete stacks, by call frame information.
fn complete(report: &Value) -> anyhow::Result<u64> {
    let processes = report.get("processes").and_then(Value::as_array).context("no `processes` in the report")?;
    let known = processes.iter().filter(|process| process.get("comm").and_then(Value::as_str) == Some("known"));
    let stacks = known.filter_map(|process| process.pointer("/strategies/dwarf"));
    stacks.map(|of_dwarf| number(of_dwarf, "complete")).sum()
}

fn off_cpu(results: &Results, expects: Expects) -> anyhow::Result<String> {
    if expects == Expects::PerfEvent {
        let Ended { status, stderr, .. } = results.ended("off-cpu")?;
        ensure!(status == 1, "expected a refusal with exit status 1, got {status}: {stderr}");
        ensure!(
            stderr.lines().last().is_some_and(|line| line.contains("--off-cpu")),
            "expected the reason, got: {stderr}"
        );
        return Ok("refused".to_owned());
    }
    results.succeeded("off-cpu")?;
    let report = results.report("off-cpu", &["--event", "off-cpu"])?;
    balance(&report)?;
    balance(report.get("waits").context("no `waits` in the report")?)?;
    exact(&results.stacks("off-cpu", &["--event", "off-cpu", "--strategy", "dwarf"])?, WAITS, false)
        .context("by dwarf")?;
    Ok(number(&report, "recorded")?.to_string())
}

/// Checks that the guest's own report, whose files are parsed in a process without privileges, equals this machine's.
fn report(results: &Results, _: Expects) -> anyhow::Result<String> {
    let theirs: Value = serde_json::from_str(&results.succeeded("report")?.stdout).context("parsing the report")?;
    let ours = results.report("both", &["--strategies", "dwarf"])?;
    let (theirs, ours) = (complete(&theirs)?, complete(&ours)?);
    ensure!(theirs == ours, "expected {ours} complete stacks as on this machine, got {theirs}");
    Ok(theirs.to_string())
}

/// Checks doctor's output: on eBPF and on waits it must match what `record` did, and else what is known of the kernel.
fn doctor(results: &Results, expects: Expects) -> anyhow::Result<String> {
    let output = results.succeeded("doctor")?.stdout;
    let row = |name: &str| {
        output.lines().find(|line| line.contains(name)).with_context(|| format!("no row {name:?} in:\n{output}"))
    };
    let is_ok = |line: &str| line.trim_start().starts_with("ok");
    let programs = row("BPF programs load")?;
    let used = used_collector(results)?;
    ensure!(
        is_ok(programs) == (used == "ebpf"),
        "expected doctor to agree with `record`, which used {used}; got: {programs}"
    );
    let waits = row("blocked time (--off-cpu)")?;
    let has_waits = results.ended("off-cpu")?.status == 0;
    ensure!(is_ok(waits) == has_waits, "expected doctor to agree with `record --off-cpu`, got: {waits}");
    let symbols = row("kernel symbols")?;
    ensure!(is_ok(symbols), "expected kernel symbols to be readable, got: {symbols}");
    let (ends, stack_ends) = match expects {
        Expects::PerfEvent => ("from process events", row("ends of stacks")?),
        Expects::Realtime => ("from /proc", row("ends of stacks")?),
        _ => ("from the kernel", row("ends of stacks")?),
    };
    ensure!(stack_ends.contains(ends), "expected ends of stacks {ends}, got: {stack_ends}");
    if expects == Expects::PerfEvent {
        ensure!(programs.contains("bpf_loop"), "expected the missing helper as the reason, got: {programs}");
        ensure!(
            output.contains("for more") && output.contains("Linux 5.17"),
            "expected what would allow more, got:\n{output}"
        );
    }
    Ok(if is_ok(programs) { "eBPF" } else { "no eBPF" }.to_owned())
}

fn used_collector(results: &Results) -> anyhow::Result<String> {
    results.succeeded("both")?;
    let report = results.report("both", &["--strategies", "fp"])?;
    let used = report.pointer("/environment/collector").and_then(Value::as_str);
    Ok(used.context("no collector in the report")?.to_owned())
}

/// Checks that the default uses the expected collector, and prints one line if that is not eBPF.
fn collector(results: &Results, expects: Expects) -> anyhow::Result<String> {
    let output = results.succeeded("both")?.stderr;
    let used = used_collector(results)?;
    let expected = if expects == Expects::PerfEvent { "perf_event" } else { "ebpf" };
    ensure!(used == expected, "expected samples by {expected}, got {used}: {output}");
    let lines: Vec<&str> = output.lines().filter(|line| line.contains("perf events")).collect();
    let n_expected = usize::from(expects == Expects::PerfEvent);
    ensure!(lines.len() == n_expected, "expected {n_expected} lines on perf events, got {}:\n{output}", lines.len());
    ensure!(
        lines.iter().all(|line| line.contains("bpf_loop")),
        "expected the missing helper as the reason, got:\n{output}"
    );
    Ok(used)
}

/// Checks that without -v nothing of libbpf's own log is printed, whatever happens.
fn quiet(results: &Results, expects: Expects) -> anyhow::Result<String> {
    for step in steps(expects) {
        let output = results.ended(step.name)?.stderr;
        let first = output.lines().find(|line| line.starts_with("libbpf:"));
        ensure!(
            first.is_none(),
            "expected nothing of libbpf's log, got in {}: {}",
            step.name,
            first.unwrap_or_default()
        );
    }
    Ok("ok".to_owned())
}

/// Checks that with perf events a request for more than 65,528 bytes of stack is reduced to that, with a message.
fn clamp(results: &Results, _: Expects) -> anyhow::Result<String> {
    let output = results.succeeded("dwarf")?.stderr;
    let report = results.report("dwarf", &["--strategies", "dwarf"])?;
    let mode = report.pointer("/environment/mode").and_then(Value::as_str).unwrap_or_default();
    ensure!(mode == "dwarf,65528", "expected the mode dwarf,65528, got {mode}");
    ensure!(output.replace(',', "").contains("65528"), "expected a word on 65528 bytes, got:\n{output}");
    Ok("ok".to_owned())
}

/// Checks the kernel memory of all maps of the recorder, and of its rings of process events.
fn rings(results: &Results, _: Expects) -> anyhow::Result<String> {
    let (maps, events) =
        (map_bytes(&results.text("both", "fdinfo")?)?, event_ring_bytes(&results.text("both", "maps")?)?);
    ensure!(maps > 0 && events > 0, "expected BPF maps and rings of the recorder, got {maps} and {events} bytes");
    let total = maps + events;
    ensure!(total <= MOST_MAP_BYTES, "expected at most {MOST_MAP_BYTES} bytes in BPF maps and rings, got {total}");
    Ok(format!("{} MB", total / 1_000_000))
}

/// Total size of the perf event rings among a process's mappings, in bytes.
fn event_ring_bytes(maps: &str) -> anyhow::Result<u64> {
    let rings = maps.lines().filter(|line| line.contains("[perf_event]"));
    rings
        .map(|line| {
            let (start, end) =
                line.split(' ').next().and_then(|range| range.split_once('-')).context("a line of a mapping")?;
            Ok(u64::from_str_radix(end, 16)? - u64::from_str_radix(start, 16)?)
        })
        .sum()
}

/// Total size of the maps among a process's open files, each counted once, in bytes.
fn map_bytes(fdinfo: &str) -> anyhow::Result<u64> {
    let mut maps = BTreeMap::new();
    let mut bytes = 0;
    for line in fdinfo.lines() {
        match line.split_once(":\t") {
            Some(("memlock", n)) => bytes = n.parse::<u64>().with_context(|| line.to_owned())?,
            Some(("map_id", id)) => drop(maps.insert(id, bytes)),
            _ => {}
        }
    }
    Ok(maps.values().sum())
}

/// Checks that no kernel object and no process is left.
fn clean(results: &Results, _: Expects) -> anyhow::Result<String> {
    let (before, after) = (results.succeeded("before")?.stdout, results.succeeded("after")?.stdout);
    ensure!(before == after, "expected as many BPF objects after as before:\n{before}got:\n{after}");
    let programs = results.text("after", "programs")?;
    let left = programs.lines().find(|path| path.ends_with("/fpprof") || path.ends_with("/known"));
    ensure!(left.is_none(), "expected no process left, got {}", left.unwrap_or_default());
    let kernel_log = results.kernel_log()?;
    let fault = kernel_log.lines().find(|line| KERNEL_FAULTS.iter().any(|fault| line.contains(fault)));
    ensure!(fault.is_none(), "expected no fault of the kernel, got: {}", fault.unwrap_or_default());
    Ok("ok".to_owned())
}

fn number(value: &Value, key: &str) -> anyhow::Result<u64> {
    value.get(key).and_then(Value::as_u64).with_context(|| format!("no number `{key}` in the report"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Check that one tick too many, one too few, and a recording without samples are refused.
    #[test]
    fn balances_are_exact() {
        let report = |fired, recorded| json!({"fired": fired, "recorded": recorded, "skipped": 3, "dropped": 1, "lost": {"ring_full": 2}});
        balance(&report(10, 4)).expect("a balance");
        for wrong in [report(11, 4), report(9, 4), report(6, 0), json!({})] {
            assert!(balance(&wrong).is_err(), "{wrong}");
        }
    }

    /// Check that complete stacks are summed over all processes of that name only.
    #[test]
    fn complete_stacks() {
        let process = |comm: &str, complete| json!({"comm": comm, "strategies": {"dwarf": {"complete": complete}}});
        let report = json!({"processes": [process("known", 7), process("sh", 100), process("known", 5)]});
        assert_eq!(complete(&report).expect("a number"), 12);
    }

    /// Check that a map that is open twice counts once.
    #[test]
    fn maps_count_once() {
        let map = |id, bytes| format!("pos:\t0\nmemlock:\t{bytes}\nmap_id:\t{id}\n");
        assert_eq!(map_bytes(&[map(1, 100), map(2, 50), map(1, 100)].concat()).expect("bytes"), 150);
        assert_eq!(map_bytes("pos:\t0\n").expect("none"), 0);
    }

    /// Check that rings of perf events are distinguished from other mappings.
    #[test]
    fn rings_of_events() {
        let maps = "7f00-7f80 rw-s 00000000 00:0e 1 anon_inode:[perf_event]\n1000-2000 r-xp 0 0:0 0 /bin/true\n";
        assert_eq!(event_ring_bytes(maps).expect("bytes"), 0x80);
    }
}

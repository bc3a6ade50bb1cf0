//! Plain text for a mail.

use super::figures::{
    FIGURES, Gain, SIGN, broken, change, chunk_order, effect, log_change, mean, mean_change, method, noise, outliers,
    p_value, row_name, size_change, verdict, waterfall, worst,
};
use super::marks::{band, line, reach};
use crate::escape::shown;
use crate::figures::{count, share};
use crate::terminal::{Cell, Column, Paragraph, Style, Table, Tone};
use fpprof_analysis::flags::{Evaluation, FlagSetResult, RULE};
use std::io::{self, Write};

/// Width of prose in a mail.
const PROSE: Style = Style { width: Some(96), colors: false };
/// Tables have no limit.
const TABLE: Style = Style { width: None, colors: false };

/// Writes the report.
///
/// # Errors
/// If the writer fails.
pub fn text(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Cost and benefit of build flags")?;
    verdicts(evaluation, out)?;
    decisions(evaluation, out)?;
    how(evaluation, out)?;
    for result in &evaluation.results {
        programs(evaluation, result, out)?;
    }
    gains(evaluation, out)?;
    for result in evaluation.results.iter().filter(|result| !result.arm.again) {
        details(result, out)?;
    }
    PROSE.heading("To repeat", out)?;
    writeln!(out, "  {}", shown(&evaluation.method.repeat))
}

fn prose(label: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
    let mut line = Paragraph::new(label, 12);
    line.words(Tone::Plain, text);
    line.write(&PROSE, out)
}

fn verdicts(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    PROSE.heading("Verdict", out)?;
    for result in &evaluation.results {
        let Some((word, because)) = result.verdict.as_ref().map(verdict) else { continue };
        let name = shown(&result.arm.flags).into_owned();
        prose("", &format!("{name} against {}: {}. {because}", shown(&result.against), word.to_uppercase()), out)?;
    }
    prose("Rule", RULE, out)?;
    prose("Signs", SIGN, out)
}

fn decisions(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    PROSE.heading("Change against the baseline in %, mean over programs", out)?;
    let mut columns =
        vec![Column::left("flags"), Column::left("CPU time [95 %]"), Column::left("worst program [95 %]")];
    columns.extend(FIGURES.iter().map(|(name, _)| Column::right(name)));
    let mut table = Table::new(columns);
    for result in &evaluation.results {
        let worst = worst(result)
            .map_or_else(|| "–".to_owned(), |(program, of)| format!("{} {}", shown(&program.name), effect(of)));
        let mut cells: Vec<Cell> = vec![row_name(result).into(), mean_of(result).into(), worst.into()];
        cells.extend(FIGURES.iter().map(|(_, figure)| Cell::from(mean_change(result, figure))));
        table.row(cells);
    }
    table.write(&TABLE, out)?;
    prose(
        "",
        "unwind: .eh_frame and .eh_frame_hdr; file: stripped; instr: instructions executed, which is not a \
        cost.",
        out,
    )
}

fn mean_of(result: &FlagSetResult) -> String {
    result.mean.as_ref().map_or_else(|| "–".to_owned(), effect)
}

fn how(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    PROSE.heading("Method and noise", out)?;
    for (label, value) in method(evaluation) {
        prose(&format!("  {label}"), &shown(&value), out)?;
    }
    prose("  noise", &noise(evaluation), out)?;
    for flags in &evaluation.flag_sets {
        let name = shown(&flags.name);
        let of = format!("{name}: {} {} ({})", shown(&flags.compiler), shown(&flags.cflags), shown(&flags.version));
        prose("  flags", &of, out)?;
    }
    for what in &evaluation.missing {
        prose("  missing", &shown(what), out)?;
    }
    Ok(())
}

fn programs(evaluation: &Evaluation, result: &FlagSetResult, out: &mut dyn Write) -> io::Result<()> {
    PROSE.heading(&format!("{} against {}, by program", row_name(result), shown(&result.against)), out)?;
    let (reach, band) = (reach(evaluation), band(evaluation));
    let mut columns = vec![
        Column::left("program"),
        Column::left("CPU time % [95 %]"),
        Column::right("p (Holm)"),
        Column::right("MDE %"),
        Column::right("n"),
        Column::right("rounds"),
    ];
    columns.extend(FIGURES.iter().take(1).map(|(name, _)| Column::right(name)));
    columns.push(Column::left(&format!("{} … 0 … {}  (: A/A)", change(-reach), change(reach))));
    let mut table = Table::new(columns);
    for program in &result.programs {
        let mut cells: Vec<Cell> = vec![shown(&program.name).into()];
        let (_, instructions) = FIGURES[0];
        let instructions = log_change(program, instructions).map_or_else(|| "–".to_owned(), change);
        match &program.effect {
            Ok(of) => cells.extend([
                Cell::from(effect(of)),
                program.p_holm.map_or_else(|| "–".to_owned(), p_value).into(),
                change(of.mde).trim_start_matches('+').into(),
                format!("{}+{}", of.n_baseline, of.n).into(),
                count(u64::from(program.rounds)).into(),
                instructions.into(),
                line(of, reach, band).into(),
            ]),
            Err(reason) => cells.push(shown(reason).into()),
        }
        table.row(cells);
    }
    table.write(&TABLE, out)
}

fn gains(evaluation: &Evaluation, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = Vec::new();
    for result in &evaluation.results {
        let (name, qualities): (String, Vec<_>) = if result.arm.again {
            let qualities = result.programs.iter().filter_map(|program| program.baseline.quality.as_ref()).collect();
            (shown(&result.against).into_owned(), qualities)
        } else {
            let qualities = result.programs.iter().filter_map(|program| program.treated.quality.as_ref()).collect();
            (row_name(result), qualities)
        };
        rows.extend(Gain::of(qualities.into_iter()).map(|gain| (name, gain)));
    }
    if rows.is_empty() {
        return Ok(());
    }
    PROSE.heading("Stacks that reach main, of the samples of all programs together", out)?;
    let chunks = chunk_order(rows.iter().flat_map(|(_, gain)| gain.strategies.keys().cloned()));
    let mut columns =
        vec![Column::left("flags"), Column::right("FP"), Column::right("exact"), Column::right("caller dropped")];
    columns.extend(chunks.iter().map(|name| Column::right(name)));
    columns.extend(["B/sample fp", "dwarf", "lost %", "profiler CPU % fp", "dwarf"].map(Column::right));
    let mut table = Table::new(columns);
    for (name, gain) in rows {
        let mut cells: Vec<Cell> =
            vec![name.into(), gain.reach("fp").into(), gain.exact("fp").into(), gain.dropped("fp").into()];
        cells.extend(chunks.iter().map(|name| Cell::from(gain.reach(name))));
        let means = [&gain.fp_bytes, &gain.dwarf_bytes, &gain.lost, &gain.fp_cpu, &gain.dwarf_cpu];
        cells.extend(means.map(|values| Cell::from(mean(values))));
        table.row(cells);
    }
    table.write(&TABLE, out)
}

fn details(result: &FlagSetResult, out: &mut dyn Write) -> io::Result<()> {
    PROSE.heading(&format!("{}: sizes, and what broke stacks", row_name(result)), out)?;
    let mut table = Table::new(vec![
        Column::left("program"),
        Column::right(".text"),
        Column::right("unwind"),
        Column::right(".sframe"),
        Column::right("file"),
        Column::right("non-leaf FP"),
        Column::right("ok / drops / breaks"),
    ]);
    for program in &result.programs {
        let mut cells: Vec<Cell> = vec![shown(&program.name).into()];
        cells.extend(waterfall(program).map(|(_, before, after)| Cell::from(size_change(before, after))));
        let tally = program.treated.tally.unwrap_or_default();
        let judged = tally.ok.saturating_add(tally.drops_caller).saturating_add(tally.breaks_chain);
        let classes = [tally.ok, tally.drops_caller, tally.breaks_chain].map(|n| share(n, judged));
        cells.push(share(tally.non_leaf_framed, tally.non_leaf).into());
        cells.push(classes.join(" / ").into());
        table.row(cells);
    }
    table.write(&TABLE, out)?;
    let broken = broken(result);
    for (label, rows) in [("  broke", &broken.reasons), ("  after", &broken.files)] {
        for (what, n) in rows {
            prose(
                label,
                &format!("{} in {} of the samples ({})", shown(what), share(*n, broken.samples), count(*n)),
                out,
            )?;
        }
    }
    for outlier in outliers(result) {
        prose("  look at", &outlier, out)?;
    }
    Ok(())
}

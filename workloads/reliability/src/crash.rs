//! Recordings that are cut short, damaged, cannot be written, or lose samples: runs the project's own tests and
//! collects their figures.

use crate::found::Found;
use crate::place::Place;
use crate::suite::{Suite, figures, run};

const fn of_crash(tests: &'static [&'static str]) -> Suite {
    Suite { programs: &["--test", "crash"], tests }
}

pub(crate) fn kills(place: &Place) -> anyhow::Result<Found> {
    let tested = run(place, &[of_crash(&["killed_recorders_leave_what_they_wrote"])], &[])?;
    if !tested.is_good() {
        return Ok(Found::new(false, tested.words()));
    }
    let figures = figures(&tested.output);
    let [killed, begun, opened] = [figures.text("killed")?, figures.text("begun")?, figures.text("opened")?];
    let lost = figures.number("most_lost_s")?;
    let figure =
        format!("{killed} killed; {opened} of {begun} files that were begun open and add up; at most {lost:.2} s lost");
    Ok(Found::new(opened == begun && lost <= 1.0, figure))
}

pub(crate) fn damage(place: &Place) -> anyhow::Result<Found> {
    let tested = run(place, &[of_crash(&["cuts_and_flips_cost_one_block_at_most"])], &[])?;
    if !tested.is_good() {
        return Ok(Found::new(false, tested.words()));
    }
    let figures = figures(&tested.output);
    let [cuts, flips, samples] = [figures.text("cuts")?, figures.text("flips")?, figures.text("samples")?];
    let (lost, block) = (figures.number("most_lost")?, figures.number("largest_block")?);
    let figure = format!(
        "{cuts} cuts and {flips} changed bits open; one costs at most {lost} of {samples} samples (largest block: {block})"
    );
    Ok(Found::new(lost <= block, figure))
}

pub(crate) fn faults(place: &Place) -> anyhow::Result<Found> {
    let suites = [
        of_crash(&[
            "failing_writes_cost_what_comes_after",
            "faults_that_pass_are_survived",
            "short_writes_lose_nothing",
        ]),
        Suite {
            programs: &["--test", "live"],
            tests: &["a_full_disk_loses_nothing_written_before", "a_limit_to_the_size_of_files"],
        },
    ];
    let tested = run(place, &suites, &[])?;
    if !tested.is_good() {
        return Ok(Found::new(false, tested.words()));
    }
    let figures = figures(&tested.output);
    let figure = format!(
        "{}; {} recordings with failing writes: {} open, {} had not begun",
        tested.words(),
        figures.text("failing")?,
        figures.text("opened")?,
        figures.text("not_begun")?
    );
    Ok(Found::new(true, figure))
}

/// The number of recordings of each kind.
const ROUNDS: &str = "3";

pub(crate) fn balance(place: &Place) -> anyhow::Result<Found> {
    let suites = [
        Suite { programs: &["--test", "live"], tests: &["a_stopped_recorder_accounts_for_every_tick"] },
        Suite { programs: &["--test", "host"], tests: &["every_tick_is_accounted_for"] },
    ];
    let tested = run(place, &suites, &[("FPPROF_BALANCE_ROUNDS", ROUNDS)])?;
    let last = format!("{ROUNDS} of {ROUNDS} recordings balance: ");
    let totals: Vec<&str> = tested.output.lines().filter_map(|line| Some(line.split_once(&last)?.1)).collect();
    Ok(Found::new(tested.is_good() && totals.len() == 2, format!("{}; {}", tested.words(), totals.join("; "))))
}

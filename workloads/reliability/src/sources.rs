//! Goals that are checked in the sources.

use crate::found::Found;
use crate::place::Place;
use crate::suite::{Suite, run};
use std::fs;

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let rules = Suite {
        programs: &["--test", "tidy"],
        tests: &["unsafe_code_stays_where_it_belongs", "crates_depend_in_one_direction"],
    };
    let tested = run(place, &[rules], &[])?;
    let lock = fs::read_to_string(place.root.join("Cargo.lock"))?;
    let lines = |start: &str| lock.lines().filter(|line| line.starts_with(start)).count();
    let (sourced, registry, sums) = (
        lines("source = "),
        lines("source = \"registry+https://github.com/rust-lang/crates.io-index\""),
        lines("checksum = "),
    );
    let manifest = fs::read_to_string(place.root.join("Cargo.toml"))?;
    let is_checked = manifest.lines().any(|line| line == "overflow-checks = true");
    let figure = format!(
        "{}; {registry} of {sourced} dependencies from the registry, {sums} with a check sum; overflow checks {}",
        tested.words(),
        if is_checked { "on" } else { "off" }
    );
    let is_met = tested.is_good() && registry == sourced && sums == sourced && is_checked;
    Ok(Found::new(is_met, figure))
}

//! Performance goals of fpprof's unwinder, and whether it reaches them.

use crate::engines::Name;
use crate::measured::Measured;
use serde::Serialize;
use std::fmt::Write as _;

/// Compares fpprof's first pass on one thread with a pass of another engine, whose time must be at least a multiple of
/// it.
struct Goal {
    words: &'static str,
    engine: Name,
    at_least: f64,
    /// The other engine's time, then fpprof's.
    seconds: fn(&Measured) -> f64,
    our_seconds: fn(&Measured) -> f64,
}

const fn over(words: &'static str, engine: Name, at_least: f64, seconds: fn(&Measured) -> f64) -> Goal {
    Goal { words, engine, at_least, seconds, our_seconds: |ours| ours.cold_s }
}

const GOALS: [Goal; 4] = [
    over("framehop, cold", Name::Framehop, 3.0, |theirs| theirs.cold_s),
    over("libunwind, cold", Name::Libunwind, 10.0, |theirs| theirs.cold_s),
    over("libdw, warm", Name::Libdw, 8.0, |theirs| theirs.warm_s),
    over("libdw, cold", Name::Libdw, 40.0, |theirs| theirs.cold_s),
];

/// Two threads against one: here the ratio is inverted, and of wall time.
const PARALLEL: [Goal; 2] = [
    Goal {
        words: "two threads over one, cold",
        engine: Name::OursTwoThreads,
        at_least: 1.7,
        seconds: |two| two.cold_wall_s,
        our_seconds: |one| one.cold_wall_s,
    },
    Goal {
        words: "two threads over one, warm",
        engine: Name::OursTwoThreads,
        at_least: 1.7,
        seconds: |two| two.warm_wall_s,
        our_seconds: |one| one.warm_wall_s,
    },
];

/// A goal and the ratios of all rounds, each between two processes that ran consecutively.
#[derive(Debug, Serialize)]
pub(crate) struct Reached {
    pub(crate) goal: &'static str,
    pub(crate) at_least: f64,
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) rounds: usize,
}

/// Every goal whose engine was measured.
pub(crate) fn reached(measured: &[(Name, Vec<Measured>)]) -> Vec<Reached> {
    let rounds_of = |name| measured.iter().find(|(engine, _)| *engine == name).map(|(_, rounds)| rounds.as_slice());
    let Some(ours) = rounds_of(Name::Ours) else { return Vec::new() };
    let pairs = |goal: &Goal| Some((rounds_of(goal.engine)?, ours));
    let faster = GOALS.iter().filter_map(|goal| {
        let (theirs, ours) = pairs(goal)?;
        Some(goal.judge(theirs.iter().zip(ours).map(|(t, o)| (goal.seconds)(t) / (goal.our_seconds)(o))))
    });
    let parallel = PARALLEL.iter().filter_map(|goal| {
        let (two, one) = pairs(goal)?;
        Some(goal.judge(two.iter().zip(one).map(|(two, one)| (goal.our_seconds)(one) / (goal.seconds)(two))))
    });
    faster.chain(parallel).collect()
}

impl Goal {
    fn judge(&self, ratios: impl Iterator<Item = f64>) -> Reached {
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
        let last = ratios.len().saturating_sub(1);
        Reached {
            goal: self.words,
            at_least: self.at_least,
            median: f64::midpoint(at(last / 2), at(ratios.len() / 2)),
            lowest: at(0),
            highest: at(last),
            rounds: ratios.len(),
        }
    }
}

/// Writes the table of goals.
pub(crate) fn write(goals: &[Reached], text: &mut String) {
    text.push_str("\n| faster than | goal | median | of all rounds | |\n|---|---|---|---|---|\n");
    for one in goals {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {}× | {:.2}× | {:.2}–{:.2}× of {} | {} |",
            one.goal,
            one.at_least,
            one.median,
            one.lowest,
            one.highest,
            one.rounds,
            if one.median >= one.at_least { "reached" } else { "not reached" }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{GOALS, reached};
    use crate::engines::Name;
    use crate::measured::Measured;

    fn measured(cold_s: f64, warm_s: f64) -> Measured {
        Measured {
            samples: 1,
            stack_bytes: 1,
            frames: 1,
            complete: 1,
            addresses: 1,
            cold_s,
            warm_s,
            cold_wall_s: cold_s,
            warm_wall_s: warm_s,
            rss_bytes: 0,
        }
    }

    /// Check that ratios are computed within rounds, other engines over fpprof and one thread over two, and that the
    /// median is of these.
    #[test]
    fn pairs_rounds() {
        let rounds = vec![
            (Name::Ours, vec![measured(1.0, 0.5), measured(2.0, 0.5), measured(1.0, 0.5)]),
            (Name::OursTwoThreads, vec![measured(0.5, 0.5), measured(1.0, 0.25), measured(1.0, 0.5)]),
            (Name::Framehop, vec![measured(4.0, 1.0), measured(4.0, 1.0), measured(3.0, 1.0)]),
        ];
        let goals = reached(&rounds);
        let words: Vec<_> = goals.iter().map(|one| (one.goal, one.median, one.lowest, one.highest)).collect();
        assert_eq!(
            words,
            [
                (GOALS[0].words, 3.0, 2.0, 4.0),
                ("two threads over one, cold", 2.0, 1.0, 2.0),
                ("two threads over one, warm", 1.0, 1.0, 2.0),
            ]
        );
    }
}

//! Evaluates the measurements.

use super::estimate::{effect, holm, over_programs};
use super::model::{Arm, Evaluation, FlagSetResult, ProgramResult, Raw, RawProgram};
use super::verdict::verdict;

/// Evaluates all measurements. Deterministic.
#[must_use]
pub fn evaluate(raw: &Raw) -> Evaluation {
    let mut results = Vec::new();
    for flags in &raw.flag_sets {
        let is_baseline = flags.against == flags.name;
        let arm = Arm { flags: flags.name.clone(), again: is_baseline };
        let mut result = FlagSetResult {
            against: flags.against.clone(),
            programs: raw.programs.iter().filter_map(|program| compare(program, &arm, &flags.against)).collect(),
            mean: None,
            verdict: None,
            arm,
        };
        adjust(&mut result.programs);
        let effects: Vec<_> =
            result.programs.iter().filter_map(|program| Some(program.effect.as_ref().ok()?.log_ratio)).collect();
        result.mean = over_programs(&effects);
        if !is_baseline {
            // Baselines come first.
            let again = results.iter().find(|of: &&FlagSetResult| of.arm.again && of.arm.flags == result.against);
            result.verdict = Some(verdict(&result, again));
        }
        results.push(result);
    }
    Evaluation {
        environment: raw.environment.clone(),
        method: raw.method.clone(),
        flag_sets: raw.flag_sets.clone(),
        results,
        missing: raw.missing.clone(),
    }
}

fn compare(program: &RawProgram, arm: &Arm, against: &str) -> Option<ProgramResult> {
    let index_of = |wanted: &Arm| program.arms.iter().position(|arm| arm == wanted);
    let baseline = index_of(&Arm { flags: against.to_owned(), again: false })?;
    let treated = index_of(arm)?;
    let mut times = Vec::new();
    for round in &program.times {
        let (Some(before), Some(after)) = (round.cpu_s.get(baseline), round.cpu_s.get(treated)) else { continue };
        times.push(before.iter().chain(after).copied().collect::<Vec<f64>>());
    }
    Some(ProgramResult {
        name: program.name.clone(),
        effect: effect(&times, program.layouts.get(baseline)?, program.layouts.get(treated)?)
            .map_err(|unfit| unfit.to_string()),
        p_holm: None,
        rounds: u32::try_from(times.len()).unwrap_or(u32::MAX),
        treated: program.results.get(treated)?.clone(),
        baseline: program.results.get(baseline)?.clone(),
    })
}

fn adjust(programs: &mut [ProgramResult]) {
    let ps: Vec<_> = programs.iter().filter_map(|program| Some(program.effect.as_ref().ok()?.p)).collect();
    let with_effect = programs.iter_mut().filter(|program| program.effect.is_ok());
    for (program, p) in with_effect.zip(holm(&ps)) {
        program.p_holm = Some(p);
    }
}

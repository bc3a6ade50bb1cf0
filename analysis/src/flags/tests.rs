//! Tests of the statistics on synthetic times with known truth.

use super::{
    Arm, ArmResult, FileSizes, FlagSet, FlagsEnvironment, FlagsMethod, FlagsQuality, Raw, RawProgram, StrategyQuality,
    Times,
};
use super::{FlagsVerdict, NoEstimate, change, effect, evaluate, holm, over_programs};
use std::collections::BTreeMap;

/// The layouts of eight binaries that all differ.
const EACH: [u32; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Deterministic pseudo-random normal deviates, to simulate the noise of a machine.
struct Noise(u64);

impl Noise {
    /// Xorshift (Marsaglia 2003).
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        #[expect(clippy::cast_precision_loss, reason = "a deviate for tests")]
        let value = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
        value
    }

    /// Approximately normal (Irwin–Hall): the sum of twelve uniform deviates.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// `rounds` × (`n` baseline and `n` treated binaries): a base of 40 ms, binaries with a deviation of 0.5 %, rounds of 5
/// %, runs of 2 % with one in twenty far too slow, and the treated ones slower by `slower`.
fn times(noise: &mut Noise, rounds: usize, n: usize, slower: f64) -> Vec<Vec<f64>> {
    let binaries: Vec<f64> =
        (0..2 * n).map(|index| 0.005 * noise.normal() + if index < n { 0.0 } else { slower.ln_1p() }).collect();
    let mut all = Vec::new();
    for _ in 0..rounds {
        let round = 0.05 * noise.normal();
        let one = |noise: &mut Noise, binary: &f64| {
            let outlier = if noise.uniform() < 0.05 { 0.3 } else { 0.0 };
            0.04 * (binary + round + 0.02 * noise.normal() + outlier).exp()
        };
        all.push(binaries.iter().map(|binary| one(noise, binary)).collect());
    }
    all
}

/// Check that a slow-down of 3 % is found, and that its interval contains it.
#[test]
fn planted_slow_down_is_found() {
    let mut noise = Noise(1);
    let mut held = 0;
    for _ in 0..100 {
        let got = effect(&times(&mut noise, 60, 8, 0.03), &EACH[..8], &EACH[..8]).unwrap();
        assert!(got.differs() && got.log_ratio > 0.0, "{got:?}");
        held += u32::from(got.interval.low <= 0.03_f64.ln_1p() && 0.03_f64.ln_1p() <= got.interval.high);
    }
    // 95 of 100 on average; fewer than 88 has a chance of 0.2 % (binomial).
    assert!(held >= 88, "{held} of 100 intervals hold the truth");
}

/// Check that equal flags are found different in no more than the nominal share of comparisons.
#[test]
fn equal_flags_differ_in_the_nominal_share() {
    let mut noise = Noise(7);
    let n_false =
        (0..400).filter(|_| effect(&times(&mut noise, 30, 6, 0.0), &EACH[..6], &EACH[..6]).unwrap().differs()).count();
    // 20 of 400 on average; more than 34 has a chance of 0.1 % (binomial).
    assert!(n_false <= 34, "{n_false} of 400 A/A comparisons differ");
    assert!(n_false >= 5, "{n_false} of 400: the intervals are too wide to be 95 % ones");
}

/// Check that copies of a layout do not count as replicates: if each layout is duplicated, an effect is that of the
/// layouts, and equal flags differ no more often than they should although only layouts vary.
#[test]
fn copies_of_a_layout_count_once() {
    let twice = |times: Vec<Vec<f64>>| -> Vec<Vec<f64>> {
        times.into_iter().map(|round| round.into_iter().flat_map(|time| [time; 2]).collect()).collect()
    };
    const TWICE: [u32; 8] = [0, 0, 1, 1, 2, 2, 3, 3];
    let mut noise = Noise(3);
    let mut n_false = [0, 0];
    for _ in 0..400 {
        let times = times(&mut noise, 30, 4, 0.0);
        let layouts = effect(&times, &EACH[..4], &EACH[..4]).unwrap();
        let copies = effect(&twice(times.clone()), &TWICE, &TWICE).unwrap();
        assert!((layouts.log_ratio - copies.log_ratio).abs() < 1e-12 && (layouts.p - copies.p).abs() < 1e-9);
        assert_eq!((copies.n_baseline, copies.n), (4, 4));
        n_false[0] += u32::from(copies.differs());
        n_false[1] += u32::from(effect(&twice(times), &EACH[..8], &EACH[..8]).unwrap().differs());
    }
    assert!(n_false[0] <= 34, "{n_false:?} of 400 A/A comparisons differ");
    assert!(n_false[1] > 40, "{n_false:?}: as if copies were layouts, they would differ too often");
}

/// Check that effect, interval and degrees of freedom agree with hand-computed ones.
#[test]
fn effect_is_the_one_worked_by_hand() {
    // One round; baseline ln t = 0, 2; treated 3, 5: means 1 and 4, s² = 2 each, s²/n = 1 each.
    let round = [0.0_f64, 2.0, 3.0, 5.0].map(f64::exp).to_vec();
    let got = effect(&[round], &[0, 1], &[0, 1]).unwrap();
    assert!((got.log_ratio - 3.0).abs() < 1e-12 && (got.standard_error - 2.0_f64.sqrt()).abs() < 1e-12);
    // (1+1)² / (1²/1 + 1²/1) = 2; t(0.975, 2) = 4.3026527.
    assert!((got.freedom - 2.0).abs() < 1e-12);
    assert!((got.interval.high - (3.0 + 4.302_652_7 * 2.0_f64.sqrt())).abs() < 1e-6);
    // t = 3/√2 = 2.1213; two-sided p with 2 degrees of freedom: 1 − t/√(t² + 2) = 0.16794.
    assert!((got.p - 0.167_949_7).abs() < 1e-6, "{}", got.p);
}

/// Check that a fifth of outliers on one side does not change an effect.
#[test]
fn outliers_do_not_move_an_effect() {
    let rounds = |wild: f64| -> Vec<Vec<f64>> {
        (0..20).map(|round| vec![1.0, 1.001, 1.01, if round % 10 == 0 { wild } else { 1.011 }]).collect()
    };
    let of = |wild| effect(&rounds(wild), &[0, 1], &[0, 1]).unwrap();
    let (calm, wild) = (of(1.011), of(9.0));
    assert!((calm.log_ratio - wild.log_ratio).abs() < 1e-9);
}

/// Check that times that cannot be compared are refused.
#[test]
fn unfit_times_are_refused() {
    assert_eq!(effect(&[], &[0, 1], &[0, 1]), Err(NoEstimate::NoRound));
    assert_eq!(effect(&[vec![1.0; 4], vec![1.0; 3]], &[0, 1], &[0, 1]), Err(NoEstimate::NoRound));
    for (baseline, treated) in [(&[0, 1][..], &[0][..]), (&[0, 1], &[0, 0]), (&[1, 1], &[0, 1]), (&[], &[0, 1])] {
        let times = vec![1.0; baseline.len() + treated.len()];
        assert_eq!(effect(&[times], baseline, treated), Err(NoEstimate::FewLayouts));
    }
    assert_eq!(effect(&[vec![1.0, 1.0, 0.0, 1.0]], &[0, 1], &[0, 1]), Err(NoEstimate::NotPositive));
    assert_eq!(over_programs(&[0.1]), None);
}

/// Check that probabilities are adjusted by Holm's procedure.
#[test]
fn probabilities_are_adjusted() {
    // Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, never falling: 0.04, 0.06, 0.06, 0.06.
    let got = holm(&[0.04, 0.01, 0.03, 0.02]);
    for (got, want) in got.iter().zip([0.06, 0.04, 0.06, 0.06]) {
        assert!((got - want).abs() < 1e-12, "{got} is not {want}");
    }
    assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
}

fn arm(complete: u64) -> ArmResult {
    let fp = StrategyQuality { samples: 1000, reach_main: complete, ..StrategyQuality::default() };
    let quality = FlagsQuality { strategies: BTreeMap::from([("fp".to_owned(), fp)]), ..FlagsQuality::default() };
    ArmResult { sizes: FileSizes::default(), tally: None, instructions: None, quality: Some(quality) }
}

fn raw<const N: usize>(slower: [f64; N], complete: u64) -> Raw {
    let mut noise = Noise(99);
    let program = |(index, slower): (usize, f64)| {
        let (both, again) = (times(&mut noise, 40, 8, slower), times(&mut noise, 40, 8, 0.0));
        let split = |(round, (both, again)): (usize, (Vec<f64>, Vec<f64>))| Times {
            round: u32::try_from(round).unwrap(),
            cpu_s: vec![both[..8].to_vec(), again[8..].to_vec(), both[8..].to_vec()],
        };
        RawProgram {
            name: format!("p{index}"),
            arms: vec![
                Arm { flags: "base".to_owned(), again: false },
                Arm { flags: "base".to_owned(), again: true },
                Arm { flags: "fp".to_owned(), again: false },
            ],
            results: vec![arm(0), arm(0), arm(complete)],
            layouts: vec![EACH.to_vec(); 3],
            times: both.into_iter().zip(again).enumerate().map(split).collect(),
        }
    };
    let flags = |name: &str| FlagSet {
        name: name.to_owned(),
        compiler: "cc".to_owned(),
        version: String::new(),
        cflags: String::new(),
        against: "base".to_owned(),
    };
    Raw {
        environment: FlagsEnvironment::default(),
        method: FlagsMethod::default(),
        flag_sets: vec![flags("base"), flags("fp")],
        programs: slower.into_iter().enumerate().map(program).collect(),
        missing: Vec::new(),
    }
}

/// Check that every branch of the rule is taken for its figures.
#[test]
fn verdicts_follow_the_rule() {
    let of = |raw: &Raw| evaluate(raw).results[1].verdict.clone().unwrap();
    let verdict = |slower: [f64; 3], complete| of(&raw(slower, complete));
    assert!(matches!(verdict([0.0, 0.002, 0.001], 990), FlagsVerdict::Adopt { .. }));
    assert!(matches!(verdict([0.0, 0.002, 0.001], 499), FlagsVerdict::Reject { .. }));
    assert_eq!([0.008, -0.012, -0.000_01].map(change), ["+0.80", "−1.19", "+0.00"]);
    assert!(matches!(verdict([0.0, 0.002, 0.001], 900), FlagsVerdict::Inconclusive { .. }));
    assert!(matches!(verdict([0.10, 0.11, 0.12], 990), FlagsVerdict::Reject { .. }));
    assert!(matches!(verdict([0.03, 0.031, 0.032], 990), FlagsVerdict::Reject { .. }));
    assert!(matches!(verdict([0.0, 0.002, 0.05], 990), FlagsVerdict::Inconclusive { .. }));
    let but_one = of(&raw([0.0, 0.002, 0.3, 0.001, 0.0, 0.001], 990));
    assert!(matches!(&but_one, FlagsVerdict::AdoptWithOptOuts { programs, .. } if programs == &["p2"]), "{but_one:?}");
}

/// Check that flags which do not change stacks are not rejected for them, that `.sframe` is judged by its own stacks, that a
/// program without enough samples or with bad stacks keeps flags from being adopted, and so does a failed A/A control.
#[test]
fn verdicts_need_evidence() {
    let verdict = |raw: &Raw| match evaluate(raw).results[1].verdict.clone().unwrap() {
        FlagsVerdict::Adopt { because } => format!("adopt {because}"),
        FlagsVerdict::AdoptWithOptOuts { because, .. } => format!("opt out {because}"),
        FlagsVerdict::Reject { because } => format!("reject {because}"),
        FlagsVerdict::Inconclusive { because } => format!("? {because}"),
    };
    let good = raw([0.0, 0.002, 0.001], 990);
    assert!(verdict(&good).starts_with("adopt "), "{}", verdict(&good));
    let mut same = raw([0.0, 0.002, 0.001], 300);
    same.programs.iter_mut().for_each(|program| program.results[0] = arm(300));
    assert!(verdict(&same).starts_with("? ") && verdict(&same).ends_with("as without the flags"), "{}", verdict(&same));
    same.programs.iter_mut().for_each(|program| {
        program.results[2].sizes.sframe = 1;
        let strategies = &mut program.results[2].quality.as_mut().unwrap().strategies;
        strategies.insert(
            "sframe".to_owned(),
            StrategyQuality { samples: 1000, reach_main: 990, ..StrategyQuality::default() },
        );
    });
    assert!(verdict(&same).starts_with("adopt ") && verdict(&same).contains("SFrame"), "{}", verdict(&same));
    let mut few = good.clone();
    few.programs[1].results[2].quality.as_mut().unwrap().strategies.get_mut("fp").unwrap().samples = 99;
    assert!(
        verdict(&few).starts_with("? ") && verdict(&few).ends_with("at least 100 samples of p1"),
        "{}",
        verdict(&few)
    );
    let mut large = good.clone();
    for (program, (samples, reach_main)) in large.programs.iter_mut().zip([(100_000, 99_000), (300, 299), (300, 0)]) {
        let fp = program.results[2].quality.as_mut().unwrap().strategies.get_mut("fp").unwrap();
        (fp.samples, fp.reach_main) = (samples, reach_main);
    }
    assert!(verdict(&large).starts_with("? ") && verdict(&large).ends_with("in p2"), "{}", verdict(&large));
    let mut noisy = good;
    let times = noisy.programs.iter_mut().flat_map(|program| &mut program.times);
    times.for_each(|times| times.cpu_s[1].iter_mut().for_each(|time| *time *= 1.3));
    assert!(verdict(&noisy).starts_with("? ") && verdict(&noisy).contains("A/A"), "{}", verdict(&noisy));
}

/// Check that the A/A row exists and has no verdict, and that probabilities are adjusted over programs.
#[test]
fn baselines_are_compared_with_themselves() {
    let got = evaluate(&raw([0.03, 0.03, 0.03], 990));
    assert!(got.results[0].arm.again && got.results[0].verdict.is_none() && got.results[0].programs.len() == 3);
    for program in &got.results[1].programs {
        let p = program.effect.as_ref().unwrap().p;
        assert!(program.p_holm.unwrap() >= p);
    }
}

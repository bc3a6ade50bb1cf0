use super::{Interval, Unfit, mean, paired_ratio, quantile};

fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-6 * want.abs().max(1.0), "got {got}, want {want}");
}

fn close_interval(got: Option<Interval>, low: f64, high: f64) {
    let got = got.expect("an interval");
    close(got.low, low);
    close(got.high, high);
}

/// Check that quantiles agree with printed tables of Student's t.
#[test]
fn quantiles_agree_with_tables() {
    // NIST/SEMATECH e-Handbook 1.3.6.7.2 gives three decimals: 12.706, 2.776, 2.262, 2.045, and 0.941 (0.80, 4).
    for (probability, n, want) in
        [(0.975, 2, 12.706), (0.975, 5, 2.776), (0.975, 10, 2.262), (0.975, 30, 2.045), (0.8, 5, 0.941)]
    {
        let got = quantile(probability, n);
        assert!((got - want).abs() < 5e-4, "t({probability}, {n} values) = {got}, table says {want}");
    }
}

/// Check that a mean and its interval agree with hand-computed ones.
#[test]
fn mean_is_the_one_worked_by_hand() {
    // 2 4 4 6: mean 4, s² = (4+0+0+4)/3 = 8/3, s/√n = √(8/12) = 0.8164966, t(0.975, 3) = 3.1824463.
    let got = mean(&[2.0, 4.0, 4.0, 6.0]).unwrap();
    close(got.mean, 4.0);
    close_interval(got.interval, 4.0 - 3.182_446_3 * 0.816_496_58, 4.0 + 3.182_446_3 * 0.816_496_58);
    assert_eq!(got.n, 4);
}

/// Check that ratios are averaged on the log scale, so that a half and a double cancel out.
#[test]
fn half_and_double_cancel() {
    let got = paired_ratio(&[(10.0, 20.0), (20.0, 10.0)]).unwrap();
    close(got.ratio, 1.0);
    // d = ±ln 2: s = √2 · ln 2, s/√2 = ln 2; t(0.975, 1) = 12.7062047.
    close_interval(got.interval, 2_f64.powf(-12.706_204_7), 2_f64.powf(12.706_204_7));
    assert!(!got.differs());
}

/// Check that ratio, interval and minimum detectable effect agree with hand-computed ones.
#[test]
fn ratio_is_the_one_worked_by_hand() {
    // Ratios 1.10, 1.21, 1.331 are 1, 2, 3 times ln 1.1 = 0.0953102: mean 2, s 1, s/√3 0.5773503 (times ln 1.1).
    // t(0.975, 2) = 4.3026527, t(0.8, 2) = 1.0606602.
    let got = paired_ratio(&[(100.0, 110.0), (200.0, 242.0), (50.0, 66.55)]).unwrap();
    close(got.ratio, 1.21);
    let half = 4.302_652_7 * 0.577_350_27;
    close_interval(got.interval, 1.1_f64.powf(2.0 - half), 1.1_f64.powf(2.0 + half));
    close(got.mde.unwrap(), 1.1_f64.powf((4.302_652_7 + 1.060_660_2) * 0.577_350_27) - 1.0);
    assert_eq!(got.n, 3);
    assert!(!got.differs(), "half = {half} > 2, so the interval reaches below 1");
}

/// Check that an effect far above the noise is detected.
#[test]
fn large_effect_differs() {
    let got = paired_ratio(&[(1.0, 2.0), (1.0, 2.02), (1.0, 1.98)]).unwrap();
    assert!(got.differs());
    assert!(paired_ratio(&[(2.0, 1.0), (2.02, 1.0), (1.98, 1.0)]).unwrap().differs());
}

/// Check that a single run has no interval or detectable effect, and never counts as a difference.
#[test]
fn single_run_has_no_interval() {
    let got = mean(&[7.0]).unwrap();
    close(got.mean, 7.0);
    assert_eq!((got.interval, got.n), (None, 1));
    let got = paired_ratio(&[(1.0, 3.0)]).unwrap();
    assert_eq!((got.interval, got.mde, got.n), (None, None, 1));
    assert!(!got.differs());
}

/// Check that values without a mean or a logarithm are refused, with their index.
#[test]
fn unfit_values_are_named() {
    assert_eq!(mean(&[]), Err(Unfit::NoValues));
    assert_eq!(mean(&[1.0, f64::NAN]), Err(Unfit::NotFinite { index: 1 }));
    assert_eq!(paired_ratio(&[]), Err(Unfit::NoValues));
    assert_eq!(paired_ratio(&[(1.0, 1.0), (0.0, 1.0)]), Err(Unfit::NotPositive { index: 1 }));
    assert_eq!(paired_ratio(&[(1.0, -1.0)]), Err(Unfit::NotPositive { index: 0 }));
    assert_eq!(paired_ratio(&[(1.0, f64::INFINITY)]), Err(Unfit::NotFinite { index: 0 }));
}

/// Check that large values do not overflow when added up.
#[test]
fn large_values_do_not_overflow() {
    close(mean(&[f64::MAX, f64::MAX]).unwrap().mean / f64::MAX, 1.0);
}

//! Shares finer than those of other reports: here a thousandth of a per cent counts.

/// A share in per cent with three decimals that never claims too much: `100 %` and `0 %` are exact.
pub(super) fn fine_share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    if part == 0 {
        return "0 %".to_owned();
    }
    if part == whole {
        return "100 %".to_owned();
    }
    // Thousandths of a per cent, rounded to nearest in integers, so that no platform rounds otherwise.
    let thousandths = (u128::from(part) * 200_000 + u128::from(whole)) / (u128::from(whole) * 2);
    match thousandths {
        0 => "<0.001 %".to_owned(),
        100_000.. if part < whole => "99.999 %".to_owned(),
        _ => format!("{}.{:03} %", thousandths / 1000, thousandths % 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a share is never rounded to all or nothing.
    #[test]
    fn shares_do_not_claim_too_much() {
        assert_eq!(fine_share(0, 7), "0 %");
        assert_eq!(fine_share(7, 7), "100 %");
        assert_eq!(fine_share(999_999_999, 1_000_000_000), "99.999 %");
        assert_eq!(fine_share(1, 1_000_000_000), "<0.001 %");
        assert_eq!(fine_share(1, 3), "33.333 %");
        assert_eq!(fine_share(1, 2000), "0.050 %");
        assert_eq!(fine_share(1, 0), "–");
    }
}

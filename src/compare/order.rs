//! The order of runs: every repeat runs every mode once, in a new random order.

/// A shuffled order of `0..n` for one repeat.
///
/// The same seed gives the same orders, so that an experiment can be repeated. Shuffling within a repeat keeps a drift
/// of the machine (temperature, neighbours) from affecting only one mode.
///
/// # Sources
/// Fisher and Yates (1938), in Durstenfeld's form (1964).
pub(crate) fn shuffled(n: usize, seed: u64, repeat: u64) -> Vec<usize> {
    let mut rng = fastrand::Rng::with_seed(seed ^ repeat.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut order: Vec<usize> = (0..n).collect();
    rng.shuffle(&mut order);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an order contains every mode once, differs between repeats, and depends only on the seed and the
    /// repeat.
    #[test]
    fn orders_are_permutations() {
        let orders: Vec<_> = (0..6).map(|repeat| shuffled(9, 42, repeat)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..9).collect::<Vec<_>>());
        }
        assert!(orders.windows(2).any(|pair| pair[0] != pair[1]));
        assert_eq!(orders[3], shuffled(9, 42, 3));
    }
}

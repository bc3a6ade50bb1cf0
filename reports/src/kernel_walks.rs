//! Describes walks in the kernel.

use crate::figures::{count, share};
use fpprof_analysis::kernel_walks::KernelWalks;

/// What the walks of a recording are called.
pub(crate) const IN_KERNEL: &str = "walks in the kernel";

/// How many walks were complete, why others were not, and whether copied stacks agree. `what` names them, in the
/// plural.
pub(crate) fn lines(walks: &KernelWalks, what: &str) -> Vec<String> {
    let KernelWalks { complete, verified, different, ref misses } = *walks;
    let all = walks.n_walks();
    let mut lines = vec![format!("{} of {} {what} complete", share(complete, all), count(all))];
    if !misses.is_empty() {
        let mut reasons: Vec<(&String, u64)> = misses.iter().map(|(reason, &n)| (reason, n)).collect();
        reasons.sort_by_key(|&(reason, n)| (std::cmp::Reverse(n), reason));
        let reasons: Vec<String> = reasons.iter().map(|(reason, n)| format!("{reason} {}", share(*n, all))).collect();
        lines.push(format!("others, from copied stacks: {}", reasons.join(", ")));
    }
    if verified > 0 {
        let same = verified.saturating_sub(different);
        lines.push(format!("same frames as the copied stack in {} of {} checked", count(same), count(verified)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{IN_KERNEL, lines};
    use fpprof_analysis::kernel_walks::KernelWalks;

    /// Check that reasons are ordered by their counts, and that zero counts are left out.
    #[test]
    fn walks_are_reported_with_their_reasons() {
        let misses = [("no_rule".to_owned(), 6), ("abi32".to_owned(), 14)].into();
        let walks = KernelWalks { complete: 980, misses, verified: 9, different: 1 };
        let expected = [
            "98.0 % of 1,000 walks in the kernel complete",
            "others, from copied stacks: abi32 1.4 %, no_rule 0.6 %",
            "same frames as the copied stack in 8 of 9 checked",
        ];
        assert_eq!(lines(&walks, IN_KERNEL), expected);
        let perfect = KernelWalks { complete: 5, ..KernelWalks::default() };
        assert_eq!(lines(&perfect, IN_KERNEL), ["100 % of 5 walks in the kernel complete"]);
    }
}

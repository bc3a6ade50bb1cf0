//! Formats figures: counts with separators, sizes, shares, times. The same for every output format.
//!
//! Sizes on a stack are in K, units of 1,024 bytes, as users type chunk sizes ([`chunk_size`], [`stack_bytes`]). Total
//! bytes copied, and sizes of files, memory and code, are in decimal units ([`bytes`]).

use fpprof_analysis::statistics;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// `1234567` → `1,234,567`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The plural `s` unless `n` is 1.
pub(crate) fn plural(n: u64) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// The processors in words, as far as known.
pub(crate) fn processors(n: u32, model: &str) -> String {
    match (n, model) {
        (0, "") => "unknown machine".to_owned(),
        (0, model) => model.to_owned(),
        (n, "") => format!("{n} CPUs"),
        (n, model) => format!("{n} × {model}"),
    }
}

/// The operating system in words.
pub(crate) fn system(kernel: &str, distribution: &str) -> String {
    if distribution.is_empty() { format!("Linux {kernel}") } else { format!("Linux {kernel}, {distribution}") }
}

/// The counts that are not zero, most frequent first; names break ties, so that the order is deterministic.
pub(crate) fn most_frequent<K: AsRef<str>>(counts: &BTreeMap<K, u64>) -> Vec<(&str, u64)> {
    let mut sorted: Vec<_> = counts.iter().map(|(name, &n)| (name.as_ref(), n)).filter(|&(_, n)| n > 0).collect();
    sorted.sort_by_key(|&(_, n)| Reverse(n));
    sorted
}

/// Bytes with decimal prefixes and three digits: `388 B`, `4.46 kB`, `57.6 MB`.
pub(crate) fn bytes(n: f64) -> String {
    scaled(n, 1000.0, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// [`bytes`] of an integer.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn byte_count(n: u64) -> String {
    bytes(n as f64)
}

/// A chunk size in the form users type, rounded up: `512 B`, `41K`, `1M`.
pub(crate) fn chunk_size(n: u64) -> String {
    match n {
        0..1024 => byte_count(n),
        _ if n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        _ => format!("{}K", n.div_ceil(1024)),
    }
}

/// Bytes of stack with three digits, in the unit of chunk sizes: `536 B`, `3.14K`, `128K`.
pub(crate) fn stack_bytes(n: f64) -> String {
    if n < 1023.5 { format!("{n:.0} B") } else { format!("{}K", number(n / 1024.0)) }
}

/// [`stack_bytes`] of an integer.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(crate) fn stack_byte_count(n: u64) -> String {
    stack_bytes(n as f64)
}

/// Nanoseconds with three digits: `812 ns`, `1.62 µs`.
pub(crate) fn nanoseconds(n: f64) -> String {
    scaled(n, 1000.0, &["ns", "µs", "ms", "s"])
}

/// Seconds: `0.21 s`, `8.02 s`, `12 min 5 s`.
pub(crate) fn seconds(s: f64) -> String {
    if s.is_finite() && s >= 100.0 {
        let whole = s.round();
        return format!("{:.0} min {:.0} s", (whole / 60.0).floor(), whole % 60.0);
    }
    format!("{s:.2} s")
}

/// A share in per cent that never overstates: `100 %` and `0 %` are exact, `99.9 %` and `<0.1 %` are not.
pub(crate) fn share(part: u64, whole: u64) -> String {
    share_with(part, whole, 1)
}

/// Like [`share`] with three decimals, where a thousandth of a per cent matters.
pub(crate) fn fine_share(part: u64, whole: u64) -> String {
    share_with(part, whole, 3)
}

/// The number of samples that have a doubtful frame, however their stack ended.
pub(crate) fn no_call_before(n: u64, samples: u64) -> String {
    format!("no_call_before in {} ({}): a return address does not follow a call", share(n, samples), count(n))
}

fn share_with(part: u64, whole: u64, decimals: u32) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    if part == 0 {
        return "0 %".to_owned();
    }
    if part == whole {
        return "100 %".to_owned();
    }
    // In units of the last decimal, rounded to nearest in integers: the same on every platform.
    let one = 10_u128.pow(decimals);
    let all = 100 * one;
    let units = (u128::from(part) * 2 * all + u128::from(whole)) / (u128::from(whole) * 2);
    let digits = decimals as usize;
    let number = |units: u128| format!("{}.{:0digits$} %", units / one, units % one);
    match units {
        0 => format!("<{}", number(1)),
        _ if units >= all && part < whole => number(all - 1),
        _ => number(units),
    }
}

/// A share in per cent as a number, for comparisons and bar lengths; 0 if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    statistics::percent(part, whole).unwrap_or(0.0)
}

/// A figure with three significant digits, or all digits before the point: `0.35`, `3.14`, `48,210`.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let sign = if value < 0.0 { "−" } else { "" };
    let size = value.abs();
    if size >= 99.95 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "held within u64 by min")]
        let whole = size.round().min(1e18) as u64;
        return format!("{sign}{}", count(whole));
    }
    let decimals = if size >= 9.995 { 1 } else { 2 };
    format!("{sign}{size:.decimals$}")
}

/// A ratio as a signed change: `1.031` → `+3.1 %`.
pub(crate) fn change(ratio: f64) -> String {
    let change = (ratio - 1.0) * 100.0;
    if !change.is_finite() {
        return "–".to_owned();
    }
    let text = if change.abs() >= 99.95 { format!("{:.0}", change.abs()) } else { format!("{:.1}", change.abs()) };
    if text == "0.0" {
        return "0.0 %".to_owned();
    }
    format!("{}{text} %", if change < 0.0 { "−" } else { "+" })
}

/// Whether a word is a unit, ignoring punctuation after it: it must stay with its figure.
pub(crate) fn is_unit(word: &str) -> bool {
    let unit = word.trim_end_matches(|c: char| c.is_ascii_punctuation() && c != '%');
    matches!(unit, "%" | "B" | "kB" | "MB" | "GB" | "TB" | "PB" | "ns" | "µs" | "ms" | "s" | "min")
}

/// `text` with no-break spaces between figures and their units.
pub(crate) fn unbroken(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(' ') {
        if out.ends_with(' ') && is_unit(word.trim_end()) && out.trim_end().ends_with(|c: char| c.is_ascii_digit()) {
            out.pop();
            out.push('\u{a0}');
        }
        out.push_str(word);
    }
    out
}

fn scaled(n: f64, base: f64, units: &[&str]) -> String {
    let mut value = n;
    let mut units = units.iter().copied();
    let mut unit = units.next().unwrap_or_default();
    while value.abs() >= base * 0.9995 {
        let Some(next) = units.next() else { break };
        value /= base;
        unit = next;
    }
    let whole = unit == "B" && (value - value.round()).abs() < 1e-9;
    let decimals = match value.abs() {
        _ if whole => 0,
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that counts get their separators.
    #[test]
    fn counts_have_separators() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    /// Check that sizes and times take the prefix that keeps three digits.
    #[test]
    fn sizes_take_their_prefix() {
        assert_eq!(bytes(388.0), "388 B");
        assert_eq!(bytes(64.25), "64.2 B");
        assert_eq!(bytes(999.6), "1.00 kB");
        assert_eq!(bytes(57_590e6), "57.6 GB");
        assert_eq!(byte_count(u64::MAX), "18447 PB");
        assert_eq!(nanoseconds(812.4), "812 ns");
        assert_eq!(nanoseconds(1620.0), "1.62 µs");
        assert_eq!(seconds(8.016), "8.02 s");
        assert_eq!(seconds(725.0), "12 min 5 s");
    }

    /// Check that a chunk size can be typed and is large enough, and that bytes of stack use its unit.
    #[test]
    fn stacks_are_in_units_of_chunks() {
        assert_eq!([512, 1024, 1025, 40_448, 1 << 20].map(chunk_size), ["512 B", "1K", "2K", "40K", "1M"]);
        assert_eq!([64.0, 1024.0, 3300.0, 39_144.0].map(stack_bytes), ["64 B", "1.00K", "3.22K", "38.2K"]);
        assert_eq!([131_072.0, 16.0 * 1_048_576.0].map(stack_bytes), ["128K", "16,384K"]);
    }

    /// Check that a share is 100 % or 0 % only if that is exact.
    #[test]
    fn shares_do_not_claim_too_much() {
        assert_eq!(share(100_000, 100_000), "100 %");
        assert_eq!(share(99_999, 100_000), "99.9 %");
        assert_eq!(share(1, 100_000), "<0.1 %");
        assert_eq!(share(0, 5), "0 %");
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(0, 0), "–");
        assert_eq!(share(u64::MAX - 1, u64::MAX), "99.9 %");
    }

    /// Check that only a figure and its unit are joined.
    #[test]
    fn units_stay_with_figures() {
        assert_eq!(unbroken("99.8 % of 12 samples, 1.5 s (2 s)."), "99.8\u{a0}% of 12 samples, 1.5\u{a0}s (2\u{a0}s).");
        assert_eq!(unbroken("a % b  s "), "a % b  s ");
    }

    /// Check that changes have a sign in every font, and that numbers have no meaningless digits.
    #[test]
    fn changes_are_signed() {
        assert_eq!(change(1.0312), "+3.1 %");
        assert_eq!(change(0.95), "−5.0 %");
        assert_eq!(change(1.0001), "0.0 %");
        assert_eq!(change(3.0), "+200 %");
        assert_eq!(change(f64::NAN), "–");
        assert_eq!(number(48_210.4), "48,210");
        assert_eq!(number(-2.718_9), "−2.72");
        assert_eq!(number(61.7), "61.7");
    }

    /// Check that a fine share is not rounded to 0 % or 100 % either.
    #[test]
    fn fine_shares_do_not_claim_too_much() {
        assert_eq!(fine_share(0, 7), "0 %");
        assert_eq!(fine_share(7, 7), "100 %");
        assert_eq!(fine_share(999_999_999, 1_000_000_000), "99.999 %");
        assert_eq!(fine_share(1, 1_000_000_000), "<0.001 %");
        assert_eq!(fine_share(1, 3), "33.333 %");
        assert_eq!(fine_share(1, 2000), "0.050 %");
        assert_eq!(fine_share(1, 0), "–");
    }
}

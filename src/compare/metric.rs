//! The workload's own figure, extracted from its output.

use regex_lite::Regex;

/// Finds the figure in a workload's output.
#[derive(Debug, Clone)]
pub(crate) struct Finder {
    regex: Regex,
}

impl Finder {
    /// Creates a finder from a `pattern` with one group in parentheses: the number.
    ///
    /// # Errors
    /// If the pattern is invalid; the error says why.
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        if regex.captures_len() != 2 {
            return Err(format!("`{pattern}` needs one group in parentheses around the number"));
        }
        Ok(Self { regex })
    }

    /// The pattern as it was typed.
    pub(crate) fn pattern(&self) -> &str {
        self.regex.as_str()
    }

    /// Returns the figure of the last match; programs print their totals last.
    ///
    /// # Errors
    /// If there is none; the error says why, in words for a report.
    pub(crate) fn find(&self, output: &str) -> Result<f64, String> {
        let last = self.regex.captures_iter(output).last();
        let text = last.as_ref().and_then(|found| found.get(1)).map(|group| group.as_str());
        let text = text.ok_or_else(|| format!("`{}` does not match the command's output", self.pattern()))?;
        let number: f64 = without_separators(text)?.parse().map_err(|_error| format!("`{text}` is not a number"))?;
        if number.is_finite() && number > 0.0 { Ok(number) } else { Err(format!("{text} is not above 0")) }
    }
}

/// The digits without separators of thousands. In some languages a comma is the decimal mark, as in `1,5`.
fn without_separators(text: &str) -> Result<String, String> {
    let thousands = Regex::new(r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$").map_err(|error| error.to_string())?;
    if text.contains(',') && !thousands.is_match(text) {
        return Err(format!("`{text}` may have a decimal comma: have the command print a point (LC_ALL=C)"));
    }
    Ok(text.replace([',', '_'], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the last figure is used, with or without separators.
    #[test]
    fn the_last_figure_counts() {
        let finder = Finder::new(r"([0-9.,]+) IOPS").unwrap();
        assert_eq!(finder.find("job 1: 12 IOPS\ntotal: 1,234.5 IOPS\n"), Ok(1234.5));
        assert!(finder.find("no figure").unwrap_err().contains("does not match"));
        assert_eq!(finder.find("1,234,567 IOPS"), Ok(1_234_567.0));
        for ambiguous in ["1,5 IOPS", "0,95 IOPS", "0,950 IOPS", "1234,567 IOPS", "1.234,5 IOPS"] {
            assert!(finder.find(ambiguous).unwrap_err().contains("LC_ALL=C"), "{ambiguous}");
        }
        assert!(finder.find("0 IOPS").is_err());
    }

    /// Check that a pattern without exactly one group is refused.
    #[test]
    fn a_pattern_needs_one_group() {
        assert!(Finder::new("IOPS").is_err());
        assert!(Finder::new("(a)(b)").is_err());
        assert!(Finder::new("(").is_err());
    }
}

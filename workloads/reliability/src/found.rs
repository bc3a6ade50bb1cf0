//! The result of a measurement.

/// Whether a goal is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Met,
    Missed,
    /// Not measured here, and so neither met nor missed.
    Elsewhere,
}

/// The result of a measurement.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) figure: String,
    pub(crate) verdict: Verdict,
}

impl Found {
    pub(crate) fn new(is_met: bool, figure: impl Into<String>) -> Self {
        Self { figure: figure.into(), verdict: if is_met { Verdict::Met } else { Verdict::Missed } }
    }
}

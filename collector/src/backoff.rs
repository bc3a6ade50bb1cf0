//! How often to look at what seldom changes.

/// Looks without a change after which one look is left out; after twice as many, two, and so on.
const LOOKS_IN_A_ROW: u32 = 4;
/// The most looks in a row that are left out.
pub(crate) const MOST_LEFT_OUT: u32 = 7;

/// Leaves out looks at something that has not changed for some looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff {
    /// Looks since the last change, without those left out.
    unchanged: u32,
    /// Looks still to be left out.
    wait: u32,
}

impl Backoff {
    /// Whether this look is to be made. If so, [`Self::looked`] follows.
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.wait == 0;
        self.wait = self.wait.saturating_sub(1);
        is_due
    }

    /// Notes what a look found.
    pub(crate) fn looked(&mut self, has_changed: bool) {
        self.unchanged = if has_changed { 0 } else { self.unchanged.saturating_add(1) };
        self.wait = self.left_out();
    }

    /// How many looks are left out between two.
    pub(crate) fn left_out(self) -> u32 {
        (self.unchanged / LOOKS_IN_A_ROW).min(MOST_LEFT_OUT)
    }
}

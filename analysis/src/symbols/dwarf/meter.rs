//! Limits the work for a file.

use std::cell::Cell;

/// Budget of a file, in steps: bytes of DIEs, tables and programs that are read. About 100 million take a second.
const STEPS: u64 = 160 << 20;

/// The remaining steps, and whether they were insufficient.
#[derive(Debug)]
pub(super) struct Meter {
    left: Cell<u64>,
    is_exhausted: Cell<bool>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { left: Cell::new(STEPS), is_exhausted: Cell::new(false) }
    }
}

impl Meter {
    /// Consumes steps. If there are too few, nothing is consumed, so that smaller items can still be handled.
    ///
    /// # Errors
    /// [`Stop::TooMuch`].
    pub(super) fn take(&self, steps: u64) -> Result<(), Stop> {
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(self.too_much()),
        }
    }

    /// Records that something is too large, regardless of the budget.
    pub(super) fn too_much(&self) -> Stop {
        self.is_exhausted.set(true);
        Stop::TooMuch
    }

    /// Whether anything was left out.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }
}

/// Why reading a unit stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The unit is damaged.
    Damaged,
    /// The unit exceeds the budget of the file.
    TooMuch,
}

impl From<gimli::Error> for Stop {
    fn from(_: gimli::Error) -> Self {
        Self::Damaged
    }
}

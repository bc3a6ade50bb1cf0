//! How much may be done for one file.

use std::cell::Cell;

/// Steps for one file: bytes of entries, tables and programs that are looked at. A second does some 100 million.
const STEPS: u64 = 160 << 20;

/// Steps that are left, and whether they were too few.
#[derive(Debug)]
pub(super) struct Meter {
    left: Cell<u64>,
    is_spent: Cell<bool>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { left: Cell::new(STEPS), is_spent: Cell::new(false) }
    }
}

impl Meter {
    /// Takes steps. What there are not enough steps for is left out, and smaller things may still be done.
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

    /// Something is too large whatever is left.
    pub(super) fn too_much(&self) -> Stop {
        self.is_spent.set(true);
        Stop::TooMuch
    }

    /// Whether anything was left out.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent.get()
    }
}

/// Why a unit says nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// It is damaged.
    Damaged,
    /// It asks for more than is done for one file.
    TooMuch,
}

impl From<gimli::Error> for Stop {
    fn from(_: gimli::Error) -> Self {
        Self::Damaged
    }
}

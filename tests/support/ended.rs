//! Child processes that are ended with their owner.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A process that is killed on drop.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) Child);

impl Deref for Ended {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ended {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

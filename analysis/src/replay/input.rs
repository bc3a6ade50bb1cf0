//! The input of recordings.

use std::io::{Read, Seek};

/// What a recording is read from: a file, or bytes in memory. A reference to a recording of a certain input converts to
/// one of any, so that what reads it is compiled once.
pub trait Input: Read + Seek + Send {}

impl<T: Read + Seek + Send> Input for T {}

//! Requests to a receiver of profiles.

use super::gzip;
use super::part::part;
use fpprof_analysis::profile::Profile;
use std::io;

/// What is sent to a receiver at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Number of samples.
    pub samples: u64,
    /// The bytes; compressed, in the form of a receiver's module.
    pub body: Vec<u8>,
}

impl Request {
    /// The first line of a body, and the bytes after it; `None` if it has another form.
    pub fn line_and_rest(body: &[u8]) -> Option<(&str, &[u8])> {
        let mut parts = body.splitn(2, |&byte| byte == b'\n');
        Some((std::str::from_utf8(parts.next()?).ok()?, parts.next()?))
    }
}

/// Makes the requests of a profile, several if it is too large for one.
pub(super) struct Splitter<'a> {
    /// The most bytes before compression; a single sample may be larger.
    pub(super) max_bytes: usize,
    /// The most rows of samples.
    pub(super) max_samples: usize,
    /// What each body begins with, uncompressed.
    pub(super) prefix: &'a [u8],
    /// Encodes a part, given the index of its first sample in the whole profile.
    pub(super) encode: &'a mut dyn FnMut(&Profile, usize) -> Vec<u8>,
    pub(super) requests: &'a mut Vec<Request>,
}

impl Splitter<'_> {
    /// Adds the requests of a part; `first` is the index of its first sample in the whole profile.
    ///
    /// # Errors
    /// If memory is exhausted.
    pub(super) fn add(&mut self, profile: &Profile, first: usize) -> io::Result<()> {
        let half = profile.samples.len() / 2;
        let is_short = profile.samples.len() <= self.max_samples;
        let encoded = is_short.then(|| (self.encode)(profile, first));
        match encoded.filter(|encoded| encoded.len() <= self.max_bytes || half == 0) {
            Some(_) if profile.samples.is_empty() => {}
            Some(encoded) => {
                let samples = profile.samples.iter().map(|sample| sample.samples).sum();
                self.requests.push(Request { samples, body: [self.prefix, &gzip(&encoded)?].concat() });
            }
            None => {
                let (left, right) = profile.samples.split_at(half);
                self.add(&part(profile, left), first)?;
                self.add(&part(profile, right), first.saturating_add(half))?;
            }
        }
        Ok(())
    }
}

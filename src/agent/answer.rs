//! The answer of the process that unwinds: a line of JSON, and the bytes that it describes.
//!
//! Hostile files may have taken the process over, so every size is checked against what is there, and every count
//! against the interval.

use super::labels::LeftOut;
use crate::worker::Owners;
use anyhow::{Context as _, ensure};
use fpprof_analysis::Analysis;
use fpprof_reports::profile::request::Request;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write};

pub(super) const UNEXPECTED: &str = "unexpected answer of the process that unwinds";
/// The most bytes of the JSON line before the table.
const MAX_LINE_BYTES: u64 = 1 << 20;
/// The most requests of an interval: each is a file of the spool.
pub(super) const MAX_REQUESTS: usize = 1000;

/// The result of analysing an interval.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) analysed: Analysed,
    /// The stacks as a Parquet file.
    pub(super) table: Vec<u8>,
    pub(super) requests: Vec<Request>,
    /// The owners of the files that were read.
    pub(super) owners: Owners,
}

/// The JSON line before the bytes of the table and of the requests.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    analysed: Analysed,
    table_bytes: usize,
    /// Number of samples and of bytes of each.
    requests: Vec<(u64, usize)>,
}

/// Counts of the stacks of an interval.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Analysed {
    /// Samples in the table by event; each strategy has the same numbers.
    pub(super) samples: BTreeMap<String, u64>,
    /// Counts of stacks by strategy.
    pub(super) stacks: BTreeMap<String, Vec<StackCount>>,
    /// Walks in the kernel that were given up, by reason.
    pub(super) misses: BTreeMap<String, u64>,
    pub(super) labels_left_out: LeftOut,
    /// Samples that are not sent, since there are more than [`MAX_REQUESTS`].
    pub(super) not_sent: u64,
}

/// The number of stacks with the same end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StackCount {
    /// `complete`, `truncated`, `broken` or `no_stack`.
    pub(super) stack: String,
    /// The reason; for complete stacks, the root.
    pub(super) end: String,
    pub(super) samples: u64,
}

/// The line before a merged table.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct MergedHead {
    pub(super) damaged: Option<String>,
    pub(super) table_bytes: usize,
}

impl Output {
    /// Limits each count to the number of samples of the interval, and those that are not sent to that of all strategies:
    /// hostile files may have taken over the process that counted.
    pub(super) fn limited(mut self, samples: u64) -> Self {
        let Analysed { samples: by_event, stacks, misses, labels_left_out, not_sent } = &mut self.analysed;
        *not_sent = (*not_sent).min(samples.saturating_mul(stacks.len() as u64));
        let stacks = stacks.values_mut().flatten().map(|count| &mut count.samples);
        let left_out = labels_left_out.values_mut().flat_map(BTreeMap::values_mut);
        let requests = self.requests.iter_mut().map(|request| &mut request.samples);
        let counts = by_event.values_mut().chain(stacks).chain(misses.values_mut()).chain(left_out);
        counts.chain(requests).for_each(|n| *n = (*n).min(samples));
        self
    }

    /// Writes it, for [`read_output`].
    pub(super) fn write(self, out: &mut impl Write) -> anyhow::Result<()> {
        let Self { analysed, table, requests, .. } = self;
        let sizes = requests.iter().map(|request| (request.samples, request.body.len())).collect();
        let bodies = requests.iter().map(|request| request.body.as_slice());
        let rest: Vec<&[u8]> = [table.as_slice()].into_iter().chain(bodies).collect();
        Ok(write(out, &Head { analysed, table_bytes: table.len(), requests: sizes }, &rest)?)
    }
}

/// Writes a line of JSON and the bytes that it describes.
pub(super) fn write(out: &mut impl Write, head: &impl Serialize, rest: &[&[u8]]) -> io::Result<()> {
    serde_json::to_writer(&mut *out, head)?;
    out.write_all(b"\n")?;
    rest.iter().try_for_each(|bytes| out.write_all(bytes))?;
    out.flush()
}

impl Analysed {
    /// Each strategy has the same processes: this is for the samples of one.
    pub(super) fn add_left_out(&mut self, left_out: LeftOut) {
        for (label, causes) in left_out {
            let sums = self.labels_left_out.entry(label).or_default();
            causes.into_iter().for_each(|(cause, samples)| *sums.entry(cause).or_default() += samples);
        }
    }

    pub(super) fn add(&mut self, Analysis { summary, profiles, .. }: &Analysis) {
        if let Some(profile) = profiles.first() {
            for sample in &profile.samples {
                let event = usize::try_from(sample.event).ok().and_then(|event| profile.events.get(event));
                let name = event.map(|event| event.name.clone()).unwrap_or_default();
                *self.samples.entry(name).or_default() += sample.samples;
            }
        }
        for (strategy, quality) in &summary.strategies {
            let classes = [
                ("complete", &quality.roots),
                ("truncated", &quality.truncated),
                ("broken", &quality.broken),
                ("no_stack", &quality.no_stack),
            ];
            let counts = classes.into_iter().flat_map(|(stack, ends)| {
                ends.iter().map(|(end, &samples)| StackCount { stack: stack.to_owned(), end: end.clone(), samples })
            });
            self.stacks.entry(strategy.clone()).or_default().extend(counts);
        }
        for (reason, &n) in summary.kernel_walks.iter().flat_map(|walks| &walks.misses) {
            *self.misses.entry(reason.clone()).or_default() += n;
        }
    }
}

/// Reads the first line of what the process wrote, and the bytes that follow.
pub(super) fn read_head<H: DeserializeOwned>(mut output: File) -> anyhow::Result<(H, Vec<u8>)> {
    output.rewind()?;
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    output.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    let head = serde_json::from_slice(&line).context(UNEXPECTED)?;
    let mut rest = Vec::new();
    output.read_to_end(&mut rest)?;
    Ok((head, rest))
}

/// Reads the answer for an interval.
pub(super) fn read_output(output: File) -> anyhow::Result<Output> {
    let (Head { analysed, table_bytes, requests }, mut table) = read_head(output)?;
    ensure!(table_bytes <= table.len() && requests.len() <= MAX_REQUESTS, UNEXPECTED);
    let rest = table.split_off(table_bytes);
    let mut rest = rest.as_slice();
    let requests = requests.into_iter().map(|(samples, bytes)| {
        let (body, following) = rest.split_at_checked(bytes).filter(|(body, _)| !body.is_empty())?;
        rest = following;
        Some(Request { samples, body: body.to_vec() })
    });
    let requests = requests.collect::<Option<_>>().context(UNEXPECTED)?;
    Ok(Output { analysed, table, requests, owners: Owners::default() })
}

/// Leaves the [`MAX_REQUESTS`] requests with most samples; returns the number of samples of the others.
pub(super) fn remove_smallest(requests: &mut Vec<Request>) -> u64 {
    if requests.len() <= MAX_REQUESTS {
        return 0;
    }
    requests.sort_by_key(|request| Reverse(request.samples));
    requests.drain(MAX_REQUESTS..).map(|request| request.samples).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(head: &Head, rest: &[u8]) -> anyhow::Result<Output> {
        let mut file = tempfile::tempfile()?;
        write(&mut file, head, &[rest])?;
        read_output(file)
    }

    /// Check that a table and requests are what the head says, and that a head that says more than there is, or too many or empty
    /// requests, is refused.
    #[test]
    fn output_is_as_its_head_says() {
        let head = |table_bytes, requests| Head { analysed: Analysed::default(), table_bytes, requests };
        let read = output(&head(2, vec![(7, 3), (1, 1)]), b"ttaaab").expect("an output");
        let request = |samples, body: &[u8]| Request { samples, body: body.to_vec() };
        assert_eq!((read.table, read.requests), (b"tt".to_vec(), vec![request(7, b"aaa"), request(1, b"b")]));
        for refused in [head(7, vec![]), head(2, vec![(1, 5)]), head(0, vec![(1, 0)]), head(0, vec![(0, usize::MAX)])] {
            output(&refused, b"ttaaab").expect_err("more than there is, or nothing");
        }
        output(&head(0, vec![(1, 1); MAX_REQUESTS + 1]), &[0; MAX_REQUESTS + 1]).expect_err("too many");
    }

    /// Check that no count is larger than the interval, whatever the process says that unwound it.
    #[test]
    fn counts_are_limited() {
        let count = |n: u64| BTreeMap::from([("a".to_owned(), n), ("b".to_owned(), 2)]);
        let end = StackCount { stack: "complete".to_owned(), end: "start".to_owned(), samples: u64::MAX };
        let analysed = |n: u64| Analysed {
            samples: count(n),
            stacks: BTreeMap::from([("fp".to_owned(), vec![StackCount { samples: n, ..end.clone() }])]),
            misses: count(n),
            labels_left_out: BTreeMap::from([("team".to_owned(), count(n))]),
            not_sent: n,
        };
        let request = |samples| Request { samples, body: vec![1] };
        let hostile = Output { analysed: analysed(u64::MAX), requests: vec![request(u64::MAX)], ..Output::default() };
        let limited = hostile.limited(9);
        assert_eq!((limited.analysed, limited.requests), (analysed(9), vec![request(9)]));
    }

    /// Check that of too many requests those with most samples are left, and that all others are counted.
    #[test]
    fn the_smallest_requests_are_removed() {
        let most = u64::try_from(MAX_REQUESTS).unwrap();
        let of =
            |sizes: std::ops::Range<u64>| sizes.map(|samples| Request { samples, body: vec![0] }).collect::<Vec<_>>();
        let mut requests = of(0..most + 3);
        assert_eq!(remove_smallest(&mut requests), 1 + 2);
        assert_eq!(requests.iter().map(|request| request.samples).min(), Some(3));
        assert_eq!(requests.len(), MAX_REQUESTS);
        let mut few = of(0..most);
        assert_eq!(remove_smallest(&mut few), 0);
        assert_eq!(few, of(0..most), "in their order");
    }
}

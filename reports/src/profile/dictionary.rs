//! Tables that pprof and OpenTelemetry share: strings, functions and locations, without duplicates.

use super::row;
use crate::escape::visible;
use fpprof_analysis::folded::{Origin, marker};
use fpprof_analysis::profile::{Function, Profile, ProfileFrame};
use std::collections::HashMap;

/// The table of strings; the empty string is the first.
#[derive(Debug)]
pub(super) struct Strings {
    values: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Strings {
    fn new() -> Self {
        Self { values: vec![String::new()], numbers: HashMap::from([(String::new(), 0)]) }
    }

    /// The index of a string, made visible first.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        let text = visible(text);
        if let Some(&number) = self.numbers.get(&*text) {
            return number;
        }
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(text.clone().into_owned());
        self.numbers.insert(text.into_owned(), number);
        number
    }

    pub(super) fn into_values(self) -> Vec<String> {
        self.values
    }
}

/// A function: the indices of its name and of its source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct FunctionRow {
    pub(super) name: u32,
    pub(super) file: u32,
}

/// A location.
#[derive(Debug)]
pub(super) struct LocationRow {
    /// Index of its module in [`Profile::modules`].
    pub(super) module: Option<u32>,
    pub(super) address: u64,
    /// Function indices and line numbers (0 if unknown), innermost first.
    pub(super) lines: Vec<(u32, u32)>,
    /// The kind of code in OpenTelemetry's terms; `None` for the end of a stack.
    pub(super) kind: Option<&'static str>,
}

/// The tables of a profile.
#[derive(Debug)]
pub(super) struct Dictionary {
    pub(super) strings: Strings,
    pub(super) functions: Vec<FunctionRow>,
    /// The locations of [`Profile::frames`], then those of stack ends.
    pub(super) locations: Vec<LocationRow>,
    /// The locations of each of [`Profile::stacks`], leaf first.
    pub(super) stacks: Vec<Vec<u32>>,
    numbers: HashMap<FunctionRow, u32>,
}

impl Dictionary {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut dictionary = Self {
            strings: Strings::new(),
            functions: Vec::new(),
            locations: Vec::new(),
            stacks: Vec::new(),
            numbers: HashMap::new(),
        };
        for frame in &profile.frames {
            let lines = frame.functions.iter().rev().map(|function| dictionary.line(function)).collect();
            let location = LocationRow { module: frame.module, address: frame.address, lines, kind: Some(kind(frame)) };
            dictionary.locations.push(location);
        }
        let mut ends: HashMap<String, u32> = HashMap::new();
        for stack in &profile.stacks {
            let mut locations = stack.frames.clone();
            locations.extend(marker(stack.stop).map(|end| dictionary.end(end, &mut ends)));
            dictionary.stacks.push(locations);
        }
        dictionary
    }

    /// The locations of a stack, leaf first.
    pub(super) fn stack(&self, number: u32) -> &[u32] {
        row(&self.stacks, number).map_or(&[], Vec::as_slice)
    }

    fn end(&mut self, end: String, ends: &mut HashMap<String, u32>) -> u32 {
        if let Some(&known) = ends.get(&end) {
            return known;
        }
        let row = FunctionRow { name: self.strings.number(&end), file: 0 };
        let lines = vec![(self.function(row), 0)];
        let number = u32::try_from(self.locations.len()).unwrap_or(u32::MAX);
        self.locations.push(LocationRow { module: None, address: 0, lines, kind: None });
        ends.insert(end, number);
        number
    }

    fn line(&mut self, function: &Function) -> (u32, u32) {
        let (file, line) = match &function.line {
            Some(at) => (self.strings.number(&at.file), at.line),
            None => (0, 0),
        };
        let row = FunctionRow { name: self.strings.number(&function.name), file };
        (self.function(row), line)
    }

    fn function(&mut self, row: FunctionRow) -> u32 {
        *self.numbers.entry(row).or_insert_with(|| {
            self.functions.push(row);
            u32::try_from(self.functions.len()).unwrap_or(u32::MAX).saturating_sub(1)
        })
    }
}

/// # Sources
/// `profile.frame.type` of OpenTelemetry's semantic conventions.
fn kind(frame: &ProfileFrame) -> &'static str {
    match (frame.origin, frame.module) {
        (Origin::Kernel, _) => "kernel",
        _ => "native",
    }
}

//! The sentences of a verdict, in which names are distinguished from our own words, and their judgement.

use crate::escape::shown;
use crate::figures::unbroken;
use maud::{Markup, html};

/// The judgement of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judgement {
    Good,
    Neutral,
    Bad,
}

/// A sentence, in pieces.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub(crate) judgement: Judgement,
    pub(crate) pieces: Vec<Piece>,
}

/// Part of a sentence.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    /// Our own words, and figures.
    Words(String),
    /// A name from the data.
    Name(String),
}

impl Finding {
    /// Creates a finding without text.
    pub(crate) fn new(judgement: Judgement) -> Self {
        Self { judgement, pieces: Vec::new() }
    }

    /// Adds our own words.
    pub(crate) fn words(mut self, text: impl Into<String>) -> Self {
        self.pieces.push(Piece::Words(text.into()));
        self
    }

    /// Adds a name.
    pub(crate) fn name(mut self, name: &str) -> Self {
        self.pieces.push(Piece::Name(name.to_owned()));
        self
    }

    /// Adds a comma-separated list of names, each followed by words.
    pub(crate) fn list<'a>(mut self, items: impl IntoIterator<Item = (&'a str, String)>) -> Self {
        for (index, (name, words)) in items.into_iter().enumerate() {
            if index > 0 {
                self = self.words(", ");
            }
            self = self.name(name).words(words);
        }
        self
    }
}

/// Escapes text and joins each figure to its unit.
pub(crate) fn text(raw: &str) -> String {
    unbroken(&shown(raw))
}

/// The CSS class of a judgement.
pub(crate) fn class(judgement: Judgement) -> &'static str {
    match judgement {
        Judgement::Good => "good",
        Judgement::Neutral => "neutral",
        Judgement::Bad => "bad",
    }
}

/// A finding as HTML.
pub(crate) fn sentence(finding: &Finding) -> Markup {
    html! {
        @for piece in &finding.pieces {
            @match piece {
                Piece::Words(words) => (text(words)),
                Piece::Name(name) => code { (shown(name)) },
            }
        }
    }
}

//! What a verdict is made of: sentences whose names are told apart from words of ours, and how they are meant.

use crate::escape::shown;
use crate::figures::unbroken;
use maud::{Markup, html};

/// How a finding is meant.
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
    /// Words of ours and figures.
    Words(String),
    /// A name that came with the data.
    Name(String),
}

impl Finding {
    /// One without words yet.
    pub(crate) fn new(judgement: Judgement) -> Self {
        Self { judgement, pieces: Vec::new() }
    }

    /// Adds words of ours.
    pub(crate) fn words(mut self, text: impl Into<String>) -> Self {
        self.pieces.push(Piece::Words(text.into()));
        self
    }

    /// Adds a name.
    pub(crate) fn name(mut self, name: &str) -> Self {
        self.pieces.push(Piece::Name(name.to_owned()));
        self
    }

    /// Adds names with words, by commas.
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

/// Text in which a figure and its unit stay on one line.
pub(crate) fn text(raw: &str) -> String {
    unbroken(&shown(raw))
}

/// The class of a judgement in our style sheets.
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

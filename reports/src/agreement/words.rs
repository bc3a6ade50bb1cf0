//! Verdicts and relations in words.

use crate::escape::shown;
use crate::terminal::Tone;
use fpprof_analysis::accuracy::Relation;
use fpprof_analysis::agreement::{Disagreement, EvidenceVerdict};

/// The strategy that a verdict finds right, in words.
pub(super) fn verdict_name(verdict: EvidenceVerdict, report: &Disagreement) -> String {
    match verdict {
        EvidenceVerdict::Reference => shown(&report.agreement.reference).into_owned(),
        EvidenceVerdict::Other => shown(&report.agreement.other).into_owned(),
        EvidenceVerdict::Open => "undecided".to_owned(),
    }
}

/// A relation of the other strategy's stack to the reference's, in words.
pub(super) fn name(relation: Relation) -> &'static str {
    match relation {
        Relation::WrongFrame => "wrong frame",
        Relation::ExtraFrame => "extra frame",
        Relation::LeafCallerMissing => "leaf's caller missing",
        Relation::FrameMissing => "frame missing",
        Relation::Prefix => "ends early",
        Relation::Longer => "goes on",
        Relation::Same => "same",
    }
}

/// A relation in short, for the head of a column.
pub(super) fn short(relation: Relation) -> &'static str {
    match relation {
        Relation::WrongFrame => "wrong",
        Relation::ExtraFrame => "extra",
        Relation::LeafCallerMissing => "leaf's caller",
        Relation::FrameMissing => "missing",
        Relation::Prefix => "ends early",
        Relation::Longer => "goes on",
        Relation::Same => "same",
    }
}

/// The colour for a relation, by how bad it is.
pub(super) fn tone(relation: Relation) -> Tone {
    match relation {
        Relation::WrongFrame | Relation::ExtraFrame | Relation::LeafCallerMissing | Relation::FrameMissing => Tone::Bad,
        Relation::Prefix | Relation::Longer => Tone::Warn,
        Relation::Same => Tone::Good,
    }
}

//! Call frame information: programs, rows and expressions.

mod expression;
mod program;
mod quick;
mod row;
mod rules;
mod words;

pub(crate) use expression::{Evaluation, ExpressionError};
pub(crate) use program::{Program, Scratch, Sections, State};
pub(crate) use quick::{Cies, QuickCie, QuickFde};
pub use row::{Row, row_at};
pub use rules::{CfaRule, ExpressionBytes, RegisterRule};

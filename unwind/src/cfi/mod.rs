//! Call frame information: programs, rows and expressions.

mod expression;
mod program;
mod quick;
mod row;
mod words;

pub(crate) use expression::{Evaluation, ExpressionError};
pub(crate) use program::{Program, Scratch, Sections, State};
pub(crate) use quick::{Cies, QuickCie, QuickFde};
pub use row::{CfaRule, ExpressionBytes, RegisterRule, Row, row_at};

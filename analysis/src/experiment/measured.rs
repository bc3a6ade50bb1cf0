//! A figure, or the reason why there is none.

use serde::{Deserialize, Serialize};

/// A figure, or the reason why there is none.
///
/// In JSON always an object: `{"value": 812.5}`, or `{"value": null, "reason": "perf runs no BPF program"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts<T>", into = "Parts<T>", bound(serialize = "T: Clone + Serialize"))]
pub enum Measured<T> {
    /// The figure.
    Value(T),
    /// The reason why there is none, as text for the reader of the report.
    Missing(String),
}

impl<T> Measured<T> {
    /// A missing figure with its reason.
    pub fn missing(reason: impl Into<String>) -> Self {
        Self::Missing(reason.into())
    }

    /// The figure, or `reason` if there is none.
    pub fn or_missing(value: Option<T>, reason: impl Into<String>) -> Self {
        value.map_or_else(|| Self::missing(reason), Self::Value)
    }

    /// The figure.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing(_) => None,
        }
    }

    /// Borrows the figure.
    pub fn as_ref(&self) -> Measured<&T> {
        match self {
            Self::Value(value) => Measured::Value(value),
            Self::Missing(reason) => Measured::Missing(reason.clone()),
        }
    }

    /// Applies a function to the figure.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Measured<U> {
        match self {
            Self::Value(value) => Measured::Value(make(value)),
            Self::Missing(reason) => Measured::Missing(reason),
        }
    }

    /// The reason why there is no figure.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Value(_) => None,
            Self::Missing(reason) => Some(reason),
        }
    }
}

/// The JSON representation of [`Measured`].
#[derive(Serialize, Deserialize)]
struct Parts<T> {
    value: Option<T>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl<T> From<Measured<T>> for Parts<T> {
    fn from(measured: Measured<T>) -> Self {
        match measured {
            Measured::Value(value) => Self { value: Some(value), reason: None },
            Measured::Missing(reason) => Self { value: None, reason: Some(reason) },
        }
    }
}

impl<T> TryFrom<Parts<T>> for Measured<T> {
    type Error = &'static str;

    fn try_from(parts: Parts<T>) -> Result<Self, Self::Error> {
        match (parts.value, parts.reason) {
            (Some(value), None) => Ok(Self::Value(value)),
            (None, Some(reason)) => Ok(Self::Missing(reason)),
            (Some(_), Some(_)) => Err("a value and a reason why there is none"),
            (None, None) => Err("neither a value nor a reason why there is none"),
        }
    }
}

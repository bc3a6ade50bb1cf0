//! The frame that all HTML pages share.

use crate::escape::shown;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::io::{self, Write};

/// The CSS rules that all pages share; `page.css` includes them.
pub(crate) const BASE: &str = include_str!("base.css");

/// The content security policy of a page without a script: it may load nothing. Inline styles are allowed.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The head of a page.
pub(crate) struct Head<'a> {
    /// The title; it is escaped and cut when it is written.
    pub(crate) title: &'a str,
    /// The content security policy.
    pub(crate) policy: &'a str,
    /// Style sheets in order.
    pub(crate) styles: &'a [&'a str],
}

/// Writes a page.
///
/// # Errors
/// If the writer fails.
pub(crate) fn write(head: &Head<'_>, body: &Markup, out: &mut impl Write) -> io::Result<()> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(head.policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (shown(head.title)) }
                style { @for style in head.styles { (PreEscaped(style)) } }
            }
            body { (body) }
        }
    };
    out.write_all(page.into_string().as_bytes())?;
    writeln!(out)
}

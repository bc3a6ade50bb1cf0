//! What all HTML pages have around their content.

use crate::escape::shown;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::io::{self, Write};

/// The rules that all pages share; `page.css` has them already.
pub(crate) const BASE: &str = include_str!("base.css");

/// What a page without a script may load: nothing. Styles are its own.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The head of a page.
pub(crate) struct Head<'a> {
    /// Shown by the browser, escaped and cut here.
    pub(crate) title: &'a str,
    /// What the page may load and run.
    pub(crate) policy: &'a str,
    /// Style sheets, one after the other.
    pub(crate) styles: &'a [&'a str],
}

/// Writes a page.
///
/// # Errors
/// Those of the writer.
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

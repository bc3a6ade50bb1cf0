//! The frame that all HTML pages share.

use crate::escape::shown;
use crate::figures::{percent, share};
use fpprof_analysis::experiment::StackEnds;
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
pub(crate) fn write(head: &Head<'_>, body: &Markup, out: &mut dyn Write) -> io::Result<()> {
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

/// A bar of complete, truncated and broken stacks; the figures stand next to it.
pub(crate) fn bar(ends: &StackEnds) -> Markup {
    let parts = [("complete", ends.complete), ("truncated", ends.n_truncated()), ("broken", ends.n_broken())];
    let label: Vec<String> = parts.iter().map(|(class, n)| format!("{} {class}", share(*n, ends.samples))).collect();
    let mut x = 0.0;
    let placed = parts.map(|(class, n)| {
        let width = percent(n, ends.samples);
        let start = x;
        x += width;
        (class, start, width)
    });
    html! {
        svg.bar viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label=(label.join(", ")) {
            @for (class, start, width) in placed {
                @if width > 0.0 {
                    rect class=(class) x=(format!("{start:.3}")) width=(format!("{width:.3}")) height="1" {}
                }
            }
        }
    }
}

//! The bundle, and what the page may do.

/// The script, with the libraries it uses; their licences stand in `assets/LICENSES.txt`.
pub(super) const SCRIPT: &str = include_str!("../../assets/page.js");

/// Its SHA-256 in base64: the one script that the page may run.
const SCRIPT_HASH: &str = include_str!("../../assets/page.js.sha256");

/// The style sheet.
pub(super) const STYLE: &str = include_str!("../../assets/page.css");

/// The names and licences of what is bundled, one package a line.
pub(crate) fn bundled() -> Vec<&'static str> {
    let ruler = "-".repeat(80);
    let texts = include_str!("../../assets/LICENSES.txt").split(&ruler).skip(1);
    texts.filter_map(|text| text.trim_start().lines().next()).collect()
}

/// What the page may load and run. Styles of drawings are set by the script, hence `unsafe-inline` for them alone.
pub(super) fn policy() -> String {
    format!(
        "default-src 'none'; {}; style-src 'unsafe-inline'; connect-src 'none'; img-src 'none'; base-uri 'none'; \
         form-action 'none'",
        script_policy()
    )
}

/// The part of it that lets the script run.
pub(crate) fn script_policy() -> String {
    format!("script-src 'sha256-{SCRIPT_HASH}'")
}

//! The bundled script and style sheet, and the content security policy of the page.

/// The script of the pages of a recording and of a store, with the libraries it uses; their licences are in
/// `assets/LICENSES.txt`.
pub(crate) const SCRIPT: &str = include_str!("../../assets/page.js");

/// SHA-256 of the script in base64: the policy allows only this script.
const SCRIPT_HASH: &str = include_str!("../../assets/page.js.sha256");

/// The style sheet.
pub(super) const STYLE: &str = include_str!("../../assets/page.css");

/// Names and licences of the bundled packages, one per line.
pub(crate) fn bundled() -> Vec<&'static str> {
    let ruler = "-".repeat(80);
    let texts = include_str!("../../assets/LICENSES.txt").split(&ruler).skip(1);
    texts.filter_map(|text| text.trim_start().lines().next()).collect()
}

/// The content security policy. The script sets inline styles of drawings, hence `unsafe-inline` for styles only.
pub(super) fn policy() -> String {
    format!(
        "default-src 'none'; {}; style-src 'unsafe-inline'; connect-src 'none'; img-src 'none'; base-uri 'none'; \
         form-action 'none'",
        script_policy()
    )
}

/// The directive of a policy that allows the script, and no other.
pub(crate) fn script_policy() -> String {
    format!("script-src 'sha256-{SCRIPT_HASH}'")
}

//! Handmade models, hostile names, and the comparison with golden files.
#![expect(dead_code, reason = "every test binary uses a part of it")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what helps a test fails by panicking")]

pub(crate) mod browser;
pub(crate) mod detail;
pub(crate) mod experiment;
pub(crate) mod names;
pub(crate) mod profile;
pub(crate) mod tables;
pub(crate) mod timed;

use std::path::PathBuf;

/// Compares `got` with `tests/golden/<name>`, or rewrites the file when `FPPROF_BLESS=1`.
pub(crate) fn golden(name: &str, got: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("FPPROF_BLESS").is_some_and(|value| value == "1") {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let want =
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; FPPROF_BLESS=1 writes it", path.display()));
    if want == got {
        return;
    }
    let (want, got) = (String::from_utf8_lossy(&want), String::from_utf8_lossy(got));
    let line = want.lines().zip(got.lines()).take_while(|(want, got)| want == got).count();
    let at = |text: &str| text.lines().nth(line).unwrap_or("(end of file)").chars().take(300).collect::<String>();
    panic!(
        "{}:{}: differs\n  want: {}\n   got: {}\nFPPROF_BLESS=1 accepts what came out",
        path.display(),
        line + 1,
        at(&want),
        at(&got)
    );
}

/// The output of a report function.
pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    out
}

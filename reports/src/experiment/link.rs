//! Links to the files next to the report.

use std::fmt::Write as _;

/// A relative link to a file next to the report. Everything but unreserved characters is percent-encoded, so that a
/// name cannot change the scheme or the directory, or add markup.
///
/// # Sources
/// RFC 3986 §2.1 and §2.3; the leading `./` follows its §4.2 for names with a colon.
pub(super) fn beside(file: &str) -> String {
    let mut link = "./".to_owned();
    for &byte in file.as_bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            link.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(link, "%{byte:02X}");
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a file name can only lead to a file next to the report.
    #[test]
    fn links_stay_beside() {
        assert_eq!(beside("fp.svg"), "./fp.svg");
        assert_eq!(beside("both-65536 dwarf.svg"), "./both-65536%20dwarf.svg");
        assert_eq!(beside("javascript:alert(1)"), "./javascript%3Aalert%281%29");
        assert_eq!(beside("../../etc/passwd"), "./..%2F..%2Fetc%2Fpasswd");
        assert_eq!(beside("\"><é"), "./%22%3E%3C%C3%A9");
    }
}

//! Tables as objects in a bucket of an S3-compatible store, put there by requests with AWS Signature Version 4.
//!
//! ```text
//! URL/stacks/day=2026-11-26/140500.000012Z-HOST-1f0c2b7a94d6e853.parquet      the table `stacks` of the interval that began then
//! URL/counters/day=2026-11-26/140500.000012Z-HOST-5d20b1c6e7f3a498.parquet    its table `counters`
//! ```
//!
//! These are the paths of the store, with the beginning of the table's SHA-256 in the name: a table that is put again
//! replaces itself, and machines of one name do not replace each other's. A request in the spool is this path, a line
//! feed and the table.
//!
//! # Sources
//! "Authenticating Requests: Using the Authorization Header (AWS Signature Version 4)":
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>; "Error responses":
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>. In github.com/minio/minio:
//! `cmd/api-errors.go` for further codes.

use crate::tables::{Table, day_of, file_of};
use anyhow::{Context as _, ensure};
use axum::http::Uri;
use fpprof_reports::profile::request::Request;
use jiff::Timestamp;
use ring::{digest, hmac};
use std::collections::BTreeMap;
use std::path::Path;

/// The region if none is configured.
pub(super) const DEFAULT_REGION: &str = "us-east-1";
/// How many characters of a table's sum are in its name.
const SUM_LENGTH: usize = 16;

/// What a request is signed with.
pub(super) struct Credentials {
    id: String,
    secret: String,
    session_token: Option<String>,
}

impl Credentials {
    /// Reads the section `[default]` of a file in the form of `~/.aws/credentials`.
    ///
    /// # Errors
    /// If it cannot be read, or has no keys.
    pub(super) fn read(file: &Path) -> anyhow::Result<Self> {
        let context = || format!("push.credentials-file {}", file.display());
        let text = std::fs::read_to_string(file).with_context(context)?;
        Self::parse(&text).with_context(context)
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().map(str::trim).skip_while(|&line| line != "[default]").skip(1);
        let lines = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with(['#', ';']));
        let mut values: BTreeMap<&str, &str> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let mut value = |key: &str| values.remove(key).map(str::to_owned);
        let missing = |key: &str| format!("no {key} under [default]");
        let (id_key, secret_key) = ("aws_access_key_id", "aws_secret_access_key");
        Ok(Self {
            id: value(id_key).with_context(|| missing(id_key))?,
            secret: value(secret_key).with_context(|| missing(secret_key))?,
            session_token: value("aws_session_token"),
        })
    }
}

/// Makes the request for a table of the interval that began at this time.
///
/// # Errors
/// If the time is out of range.
pub(super) fn request(
    table: Table,
    start_unix_us: u64,
    host: &str,
    samples: u64,
    bytes: &[u8],
) -> anyhow::Result<Request> {
    let sum: String = sha256(bytes).chars().take(SUM_LENGTH).collect();
    let name = file_of(start_unix_us, &format!("{host}-{sum}"))?;
    let path = format!("{}/{}/{name}\n", table.name(), day_of(start_unix_us)?);
    Ok(Request { samples, body: [path.as_bytes(), bytes].concat() })
}

/// Checks the path of a URL: bucket and prefix.
///
/// # Errors
/// If there is none, or it has characters that would have to be encoded.
pub(super) fn check_path(path: &str) -> anyhow::Result<()> {
    let path = path.trim_matches('/');
    ensure!(!path.is_empty(), "push.url: give the bucket, too, as in https://s3.example.org/BUCKET/PREFIX");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.~=".contains(c);
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(is_plain);
    ensure!(
        path.split('/').all(is_name),
        "push.url: `{path}` must have letters, digits and the characters `-_.~=` only, between single `/`"
    );
    Ok(())
}

/// The URL of an object, with the characters encoded that are in our paths: a server signs them so.
pub(super) fn url(base: &str, path: &str) -> String {
    format!("{base}/{path}").replace('=', "%3D")
}

/// The headers of a request that puts these bytes there, at this time.
pub(super) fn headers(
    url: &Uri,
    bytes: &[u8],
    region: &str,
    credentials: &Credentials,
    now: Timestamp,
) -> BTreeMap<&'static str, String> {
    let mut headers = BTreeMap::from([
        ("host", url.authority().map(ToString::to_string).unwrap_or_default()),
        ("x-amz-content-sha256", sha256(bytes)),
        ("x-amz-date", now.strftime("%Y%m%dT%H%M%SZ").to_string()),
    ]);
    headers.extend(credentials.session_token.clone().map(|token| ("x-amz-security-token", token)));
    headers.insert("authorization", authorization(url.path(), &headers, region, credentials));
    headers.insert("content-type", "application/vnd.apache.parquet".to_owned());
    headers
}

/// Signs a PUT with these headers, whose names are in lower case.
fn authorization(
    path: &str,
    headers: &BTreeMap<&'static str, String>,
    region: &str,
    Credentials { id, secret, .. }: &Credentials,
) -> String {
    let header = |name| headers.get(name).map_or("", String::as_str);
    let (sum, time) = (header("x-amz-content-sha256"), header("x-amz-date"));
    let signed: Vec<&str> = headers.keys().copied().collect();
    let signed = signed.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let request = sha256(format!("PUT\n{path}\n\n{lines}\n{signed}\n{sum}").as_bytes());
    let date = time.split('T').next().unwrap_or_default();
    let scope = format!("{date}/{region}/s3/aws4_request");
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in [date, region, "s3", "aws4_request", &format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{request}")] {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec();
    }
    format!("AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={signed}, Signature={}", hex(&key))
}

/// The code in the answer to a request that failed, such as `NoSuchBucket`.
pub(super) fn code(answer: &[u8]) -> Option<&str> {
    let (_, rest) = std::str::from_utf8(answer).ok()?.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric())).then_some(code)
}

/// What to do about such a code.
pub(super) fn advice(code: &str) -> &'static str {
    match code {
        "NoSuchBucket" | "InvalidBucketName" => ": create the bucket, or set push.url",
        "AccessDenied" | "AllAccessDisabled" => ": allow these keys to put objects into the bucket",
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" => {
            ": put valid keys into push.credentials-file"
        }
        "RequestTimeTooSkewed" => ": set the clock of this machine",
        "AuthorizationHeaderMalformed" | "PermanentRedirect" => ": set push.region and push.url to those of the bucket",
        _ => "",
    }
}

/// Whether status 400 with this code is not about the object, but about keys, bucket, region or transfer: so it can be
/// put later.
pub(super) fn is_temporary(code: &str) -> bool {
    let of_transfer = ["BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"];
    !advice(code).is_empty() || of_transfer.contains(&code) || code == "XMinioAdminBucketQuotaExceeded"
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Credentials {
        let file = "[other]\naws_access_key_id = x\n[default]\n# a comment\naws_access_key_id=AKIAIOSFODNN7EXAMPLE\n\
                    aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\nregion = eu\n[next]\naws_session_token = x\n";
        Credentials::parse(file).expect("keys")
    }

    /// Check that a request is signed as the example "PUT Object" of the specification.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let headers = BTreeMap::from([
            ("date", "Fri, 24 May 2013 00:00:00 GMT".to_owned()),
            ("host", "examplebucket.s3.amazonaws.com".to_owned()),
            ("x-amz-content-sha256", sha256(b"Welcome to Amazon S3.")),
            ("x-amz-date", "20130524T000000Z".to_owned()),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY".to_owned()),
        ]);
        let signed = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, \
                      SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, \
                      Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd";
        assert_eq!(authorization("/test%24file.text", &headers, DEFAULT_REGION, &example()), signed);
    }

    /// Check that an object has the path of its table in the store, a name that its bytes decide, and that what is sent
    /// is signed: host, sum, time and session token.
    #[test]
    fn objects_have_names_of_their_own() {
        let start_us = 1_795_694_400_000_012;
        let body = |bytes: &[u8]| request(Table::Stacks, start_us, "web-1", 7, bytes).expect("a request").body;
        let [abcd, abce] = [&b"abcd"[..], b"abce"].map(|bytes| String::from_utf8(body(bytes)).expect("text"));
        assert_eq!(abcd, "stacks/day=2026-11-26/120000.000012Z-web-1-88d4266fd4e6338d.parquet\nabcd");
        assert_eq!(abce, "stacks/day=2026-11-26/120000.000012Z-web-1-84e73dc50f2be900.parquet\nabce");
        let url: Uri = url("http://[::1]:9000/b/env=prod", "stacks/day=1/x").parse().expect("a URL");
        assert_eq!(url.path(), "/b/env%3Dprod/stacks/day%3D1/x");
        let credentials = Credentials { session_token: Some("token".to_owned()), ..example() };
        let now = Timestamp::from_second(1_795_694_400).expect("a time");
        let headers = headers(&url, b"", "eu-west-1", &credentials, now);
        assert_eq!((headers["host"].as_str(), headers["x-amz-date"].as_str()), ("[::1]:9000", "20261126T120000Z"));
        let words =
            ["20261126/eu-west-1/s3", "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"];
        assert!(words.iter().all(|words| headers["authorization"].contains(words)), "{headers:?}");
    }

    /// Check that a file without keys is refused, and says which are missing.
    #[test]
    fn keys_must_be_there() {
        for (text, missing) in [
            ("aws_access_key_id = x", "aws_access_key_id"),
            (
                "[default]\naws_access_key_id = x\naws_secret_access_key =\n[other]\naws_secret_access_key = y",
                "aws_secret",
            ),
        ] {
            let error = Credentials::parse(text).err().expect("an error").to_string();
            assert!(error.contains(missing), "{error}");
        }
    }

    /// Check that codes are read from answers and nothing else is, and that one about an object is not temporary.
    #[test]
    fn codes_are_read() {
        let answer = b"<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>The bucket</Message></Error>";
        assert_eq!(code(answer), Some("NoSuchBucket"));
        for other in [&b"<Code>a b</Code>"[..], b"<Code>x", b"<Code>\xff</Code>", b""] {
            assert_eq!(code(other), None);
        }
        assert!(is_temporary("ExpiredToken") && is_temporary("BadDigest") && !is_temporary("KeyTooLongError"));
    }
}

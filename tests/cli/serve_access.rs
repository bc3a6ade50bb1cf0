//! Tests of who may use `fpprof serve`: the token, TLS, and clients that mean no good.

use crate::serve::{capabilities, store};
use crate::support::serving::Serving;
use crate::support::{Ran, fpprof, ran, wait_until};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};
use std::fs::Permissions;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const TOKEN: &str = "0123456789abcdef:token";
/// As many wrong credentials are answered at a time, for a second each.
const REFUSALS: u64 = 4;

/// A store, a token and a certificate with its key, signed by an authority below the root `ca`.
struct Files {
    dir: tempfile::TempDir,
    ca: CertificateDer<'static>,
}

impl Files {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        store(&dir.path().join("store"));
        let keys = [(); 3].map(|()| KeyPair::generate().expect("a key"));
        let [root_key, middle_key, key] = keys;
        let authority = || {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let ca = authority().self_signed(&root_key).expect("a certificate").der().clone();
        let root = Issuer::new(authority(), root_key);
        let middle = authority().signed_by(&middle_key, &root).expect("a certificate");
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("parameters");
        let cert = params.signed_by(&key, &Issuer::new(authority(), middle_key)).expect("a certificate");
        let files = Self { dir, ca };
        files.write("token", &format!("{TOKEN}\n"), 0o600);
        files.write("cert", &format!("{}{}", cert.pem(), middle.pem()), 0o644);
        // As in Debian's directory of keys.
        files.write("key", &key.serialize_pem(), 0o640);
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        std::fs::write(self.path(name), text).expect("written");
        std::fs::set_permissions(self.path(name), Permissions::from_mode(mode)).expect("a mode");
    }

    /// A server's command with these options, whose values are names of files here.
    fn command(&self, listen: &str, options: &[(&str, &str)]) -> Command {
        let mut command = fpprof();
        command.args(["serve", "--listen", listen]);
        for (option, file) in options {
            command.arg(option).arg(self.path(file));
        }
        command.arg(self.path("store"));
        command
    }

    /// Runs a server that must refuse to start.
    fn refused(&self, listen: &str, options: &[(&str, &str)]) -> Ran {
        let refused = ran(&mut self.command(listen, options));
        assert!(!refused.stderr.contains(TOKEN), "{}", refused.stderr);
        refused
    }

    /// A server on all addresses, reached at 127.0.0.1.
    fn everywhere(&self) -> Serving {
        let mut serving = Serving::started(&mut self.command("0.0.0.0:0", &[TOKEN_FILE, CERT, KEY]));
        assert_eq!(serving.scheme, "https");
        serving.address = serving.address.replace("0.0.0.0", "127.0.0.1");
        serving
    }

    /// Connects by TLS, without a request.
    fn connect(&self, serving: &Serving, versions: &[&'static SupportedProtocolVersion]) -> Tls {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let connection = ClientConnection::new(config, "127.0.0.1".try_into().expect("a name")).expect("a client");
        let mut stream = StreamOwned::new(connection, connect(serving));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        }
        stream
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

const TOKEN_FILE: (&str, &str) = ("--token-file", "token");
const CERT: (&str, &str) = ("--tls-cert", "cert");
const KEY: (&str, &str) = ("--tls-key", "key");

fn connect(serving: &Serving) -> TcpStream {
    let stream = TcpStream::connect(&serving.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(100))).expect("a time");
    stream
}

/// Sends bytes; returns all that comes until the server closes the connection.
fn exchange(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    let mut answer = Vec::new();
    // What is sent after the answer is refused, and what the server did not read resets the connection.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert!(![ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()), "{error}");
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// The status of the answer to a request with these headers.
fn status(serving: &Serving, first: &str, headers: &[u8]) -> u16 {
    let request = [first.as_bytes(), b"\r\nHost: fpprof.example\r\n", headers, b"\r\n"].concat();
    let answer = exchange(connect(serving), &request);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{first}: {answer}"))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

/// Check that an address which other machines can reach is served with a token and TLS only, and that the message says
/// what is missing.
#[test]
fn other_machines_need_a_token_and_tls() {
    let files = Files::new();
    let cases: [(&[_], _); 3] = [
        (&[], "give --token-file, --tls-cert and --tls-key as well"),
        (&[TOKEN_FILE], "give --tls-cert and --tls-key as well"),
        (&[CERT, KEY], "give --token-file as well"),
    ];
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7475", "[::ffff:127.0.0.1]:0"] {
        for (options, words) in cases {
            let refused = files.refused(listen, options);
            assert!(refused.status == 2 && refused.stderr.contains(words), "{listen}: {}", refused.stderr);
            assert!(refused.stderr.contains("ssh -L"), "{}", refused.stderr);
        }
    }
    for (one, other) in [(CERT, "--tls-key"), (KEY, "--tls-cert")] {
        let refused = files.refused("127.0.0.1:0", &[one]);
        assert!(refused.status == 2 && refused.stderr.contains(other), "{}", refused.stderr);
    }
}

/// Check that a token which others may know or guess is refused, and so are keys that all users can read and files that
/// are no certificate or key; the message says what to do.
#[test]
fn bad_files_are_refused() {
    let files = Files::new();
    let refused = |options: &[_], words: &str| {
        let refused = files.refused("127.0.0.1:0", options);
        assert!(refused.status == 1 && refused.stderr.contains(words), "{words}: {}", refused.stderr);
    };
    let make = "openssl rand -hex 32";
    let pem = std::fs::read_to_string(files.path("key")).expect("a key");
    for (text, words) in [
        ("", "it is empty"),
        ("\n", "it is empty"),
        ("0123456789abcde\n", "a token of 15 characters"),
        ("0123456789abcdef\n\n", "one line of ASCII"),
        ("0123456789abcdef\r\n", "one line of ASCII"),
        ("0123456789 abcdef", "one line of ASCII"),
        ("0123456789\x1babcdef", "one line of ASCII"),
        ("0123456789äbcdef", "one line of ASCII"),
        (pem.as_str(), "one line of ASCII"),
    ] {
        files.write("token", text, 0o600);
        refused(&[TOKEN_FILE], words);
        refused(&[TOKEN_FILE], make);
    }
    files.write("token", &"0123456789abcdef".repeat(300), 0o600);
    refused(&[TOKEN_FILE], "more than 4096 bytes");
    for (mode, better) in [(0o640, "0600"), (0o604, "0600"), (0o620, "0600"), (0o444, "0400")] {
        files.write("token", TOKEN, mode);
        refused(&[TOKEN_FILE], &format!("(mode {mode:04o}); run `chmod {better} {}", files.path("token").display()));
    }
    refused(&[("--token-file", "none")], "No such file");
    for (mode, better) in [(0o644, "0640"), (0o660, "0640"), (0o602, "0600")] {
        files.write("key", &pem, mode);
        refused(&[CERT, KEY], &format!("(mode {mode:04o}); run `chmod {better} {}", files.path("key").display()));
    }
    let other = KeyPair::generate().expect("a key").serialize_pem();
    for (text, words) in [
        (other.as_str(), "the key is not that of the certificate"),
        ("no key", "no private key in it; give it as PEM without a passphrase"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "without a passphrase"),
    ] {
        files.write("key", text, 0o600);
        refused(&[CERT, KEY], words);
    }
    refused(&[("--tls-cert", "token"), KEY], "no certificate in it");
}

/// Check that no route and no method is answered without the token, that it is understood as bearer token and as
/// password, and that nothing that is like it passes.
#[test]
fn the_token_is_needed_for_everything() {
    let files = Files::new();
    let serving = Serving::started(&mut files.command("127.0.0.1:0", &[TOKEN_FILE]));
    assert_eq!(serving.scheme, "http");
    for first in ["GET / HTTP/1.1", "GET /api/facets HTTP/1.0", "GET /favicon.ico HTTP/1.1", "GET /none HTTP/1.1"] {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "CONNECT", "FPPROF"] {
            assert_eq!(status(&serving, &first.replace("GET", method), b""), 401, "{method} {first}");
        }
    }
    let (_, body, head) = serving.request("GET /", "Host: localhost\r\n");
    let asks = "www-authenticate: Basic realm=\"fpprof\"";
    assert!(head.contains(asks) && head.contains("text/plain") && body.lines().count() == 1, "{head}\n{body}");
    let passes = [bearer(TOKEN), bearer(TOKEN).replace("Bearer", "bearer"), basic("me", TOKEN), basic("", TOKEN)];
    for headers in passes {
        assert_eq!(status(&serving, "GET /api/facets HTTP/1.1", headers.as_bytes()), 200, "{headers}");
        assert_eq!(status(&serving, "GET / HTTP/1.0", headers.as_bytes()), 200, "{headers}");
        assert_eq!(status(&serving, "GET /none HTTP/1.1", headers.as_bytes()), 404, "{headers}");
        for method in ["HEAD", "OPTIONS", "POST"] {
            assert_eq!(status(&serving, &format!("{method} / HTTP/1.1"), headers.as_bytes()), 405, "{headers}");
        }
    }
    let wrong = [
        bearer("0123456789abcdef:tokem"),
        bearer(&TOKEN[1..]),
        bearer(&format!("{TOKEN}0")),
        basic(TOKEN, ""),
        basic("me", "wrong"),
        format!("Authorization: {TOKEN}\r\n"),
        "Authorization: Basic me:***\r\n".to_owned(),
        format!("{}{}", bearer(TOKEN), bearer(TOKEN)),
        format!("{}{}", bearer(TOKEN), basic("me", "wrong")),
        format!("Proxy-{}", bearer(TOKEN)),
    ];
    let wrong = wrong.iter().map(|headers| headers.as_bytes()).chain([&b"Authorization: Bearer \xff\xfe\r\n"[..]]);
    let began = Instant::now();
    let statuses: Vec<_> = std::thread::scope(|scope| {
        let serving = &serving;
        let asked = wrong.map(|headers| scope.spawn(move || status(serving, "GET / HTTP/1.1", headers)));
        asked.collect::<Vec<_>>().into_iter().map(|thread| thread.join().expect("an answer")).collect()
    });
    assert_eq!(statuses, [401; 11]);
    // All but one, of another header.
    let n_guesses = 10_u64;
    assert!(began.elapsed() >= Duration::from_secs(n_guesses.div_ceil(REFUSALS)), "{:?}", began.elapsed());
    for large in [bearer(&"a".repeat(100_000)), "Authorization: Bearer a\r\n".repeat(200)] {
        let answer = exchange(connect(&serving), format!("GET / HTTP/1.1\r\n{large}\r\n").as_bytes());
        // The rest that was not read may reset the connection before the answer is read.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
    // Only one request of a connection is answered, so that none comes in behind one with the token.
    let two = format!("GET /none HTTP/1.1\r\n{}\r\nGET / HTTP/1.1\r\n\r\n", bearer(TOKEN));
    let answer = exchange(connect(&serving), two.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let elsewhere = format!("{}Sec-Fetch-Site: cross-site\r\n", bearer(TOKEN));
    assert_eq!(status(&serving, "GET /api/facets HTTP/1.1", elsewhere.as_bytes()), 403);
}

/// Check that other machines are served over TLS 1.2 and 1.3, with the whole chain of certificates and by a process
/// without capabilities, and that what is no TLS and who trusts no such certificate gets no answer.
#[test]
fn other_machines_are_served_over_tls() {
    let files = Files::new();
    let mut serving = files.everywhere();
    assert_eq!(capabilities(&serving.server), ["0000000000000000"; 2]);
    let url = format!("https://{}/api/facets", serving.address);
    let client = |roots: RootCerts| {
        let tls = TlsConfig::builder().root_certs(roots).build();
        ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false).build().new_agent()
    };
    let trusts = client(RootCerts::from(vec![Certificate::from_der(&files.ca).to_owned()]));
    for (credentials, status) in
        [(None, 401), (Some(bearer("wrong")), 401), (Some(bearer(TOKEN)), 200), (Some(basic("me", TOKEN)), 200)]
    {
        let mut request = trusts.get(&url);
        if let Some(credentials) = &credentials {
            request = request.header("Authorization", credentials.trim_end().trim_start_matches("Authorization: "));
        }
        assert_eq!(request.call().expect("an answer").status(), status, "{credentials:?}");
    }
    let untrusting = client(RootCerts::WebPki).get(&url).call();
    assert!(untrusting.is_err_and(|error| error.to_string().contains("certificate")));
    let request = format!("GET / HTTP/1.1\r\nHost: fpprof.example\r\n{}\r\n", bearer(TOKEN));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let answer = exchange(files.connect(&serving, &[version]), request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{version:?}: {answer}");
        let plain = exchange(connect(&serving), request.as_bytes());
        assert!(!plain.contains("HTTP/"), "{plain}");
    }
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
}

/// Check that SIGHUP has the token and the certificate read again, that they stay as they were if one cannot be used, and that
/// it ends a server without them.
#[test]
fn files_are_read_again() {
    let mut files = Files::new();
    let mut serving = files.everywhere();
    let versions = [&rustls::version::TLS13];
    let is_answered = |files: &Files, serving: &Serving, token: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", bearer(token));
        exchange(files.connect(serving, &versions), request.as_bytes()).starts_with("HTTP/1.1 200 OK")
    };
    assert!(is_answered(&files, &serving, TOKEN));
    // Another authority and token: what this client trusts tells which certificate is used.
    let others = Files::new();
    for name in ["cert", "key"] {
        std::fs::copy(others.path(name), files.path(name)).expect("copied");
    }
    let new = TOKEN.replace('0', "f");
    files.write("token", "short", 0o600);
    serving.signal(Signal::SIGHUP);
    serving.wait_for("token and certificate stay as they were");
    assert!(is_answered(&files, &serving, TOKEN));
    std::fs::remove_file(files.path("token")).expect("removed");
    assert!(Command::new("mkfifo").args(["-m", "600"]).arg(files.path("token")).status().expect("mkfifo").success());
    serving.signal(Signal::SIGHUP);
    serving.wait_for("a pipe cannot be read again");
    std::fs::remove_file(files.path("token")).expect("removed");
    files.write("token", &new, 0o600);
    serving.signal(Signal::SIGHUP);
    serving.wait_for("read the token and the certificate again");
    files.ca = others.ca.clone();
    assert!(is_answered(&files, &serving, &new) && !is_answered(&files, &serving, TOKEN));
    assert_eq!(serving.end(Signal::SIGTERM).code(), Some(0));
    // Without such files it ends with its terminal.
    let mut plain = Serving::start(&files.path("store"));
    assert_eq!(plain.end(Signal::SIGHUP).code(), Some(0));
}

/// Check that clients which connect and say nothing, stop in the middle of a handshake or of a request, or guess the token,
/// keep nobody else out, and are not kept for ever themselves.
#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let files = Files::new();
    let serving = files.everywhere();
    let versions = [&rustls::version::TLS13];
    let request = |credentials: &str| format!("GET /api/facets HTTP/1.1\r\nHost: a\r\n{credentials}\r\n");
    let is_served = || {
        let answer = exchange(files.connect(&serving, &versions), request(&bearer(TOKEN)).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    };
    let mut silent: Vec<_> = (0..300).map(|_| connect(&serving)).collect();
    is_served();
    for stream in &mut silent {
        // The beginning of a handshake; the server may have closed the connection.
        let _ = stream.write_all(&[0x16, 3, 1, 2, 0, 1]);
    }
    is_served();
    let mut slow: Vec<_> = (0..20).map(|_| files.connect(&serving, &versions)).collect();
    for stream in &mut slow {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nX-").and_then(|()| stream.flush()).expect("sent");
    }
    silent.extend((0..100).map(|_| connect(&serving)));
    is_served();
    let mut guesses: Vec<_> = (0..200).map(|_| files.connect(&serving, &versions)).collect();
    for stream in &mut guesses {
        stream.write_all(request(&bearer("wrong")).as_bytes()).and_then(|()| stream.flush()).expect("sent");
    }
    is_served();
    // It did not wait until all of them were refused.
    let last = guesses.last_mut().expect("a guess");
    last.sock.set_nonblocking(true).expect("a mode");
    assert!(last.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    let all: Vec<Box<dyn Read>> = vec![Box::new(slow.remove(0)), Box::new(silent.pop().expect("a connection"))];
    for mut stream in all {
        let mut answer = Vec::new();
        // Closed, in whatever way, but not waiting any more.
        let closed = stream.read_to_end(&mut answer).err().map(|error| error.kind());
        assert!(
            !matches!(closed, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut)) && answer.is_empty(),
            "{answer:?}"
        );
    }
    let descriptors = format!("/proc/{}/fd", serving.server.id());
    drop((silent, slow, guesses));
    wait_until("connections are closed", || {
        std::fs::read_dir(Path::new(&descriptors)).expect("descriptors").count() < 40
    });
}

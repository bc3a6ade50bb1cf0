//! Files that say what clients need: the token, and the certificate with its key.

use super::address::Listen;
use crate::exit::Usage;
use crate::http::{Access, Token};
use anyhow::{Context as _, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// The shortest token, characters: 16 random hexadecimal digits cannot be guessed over a network.
const MIN_TOKEN: usize = 16;
/// The longest token, characters; it has to fit in a header.
const MAX_TOKEN: u64 = 4096;
/// The largest file of certificates or keys, bytes.
const MAX_PEM: u64 = 1 << 20;
/// How to make a token.
const MAKE: &str = "make one, for instance by `openssl rand -hex 32`";

/// What clients need.
#[derive(Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// File with a token that every request must have: as bearer token, or as password with any user name
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Certificate for TLS, in PEM, followed by those that lead to its root
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM and without a passphrase
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl AccessArgs {
    /// Whether there are such files.
    pub(super) fn has_files(&self) -> bool {
        let Self { token_file, tls_cert, tls_key } = self;
        [token_file, tls_cert, tls_key].iter().any(|file| file.is_some())
    }

    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used, or is missing for an address that other machines can reach; the message says what to do.
    pub(crate) fn read(&self, listen: &Listen, pipes: Pipes) -> anyhow::Result<Access> {
        let Self { token_file, tls_cert, tls_key } = self;
        if let Listen::Tcp(address) = listen
            && !address.ip().is_loopback()
        {
            let needed = [("--token-file", token_file.is_some()), ("--tls-cert and --tls-key", tls_cert.is_some())];
            let missing: Vec<_> =
                needed.into_iter().filter_map(|(option, is_given)| (!is_given).then_some(option)).collect();
            if !missing.is_empty() {
                return Err(Usage(format!(
                    "--listen {address}: other machines can reach this address: give {} as well, or listen on 127.0.0.1 and \
                     forward the port (ssh -L {port}:127.0.0.1:{port} HOST)",
                    missing.join(", "),
                    port = address.port()
                ))
                .into());
            }
        }
        let token = token_file.as_deref().map(|file| token(file, pipes)).transpose()?;
        let tls = tls_cert.as_deref().zip(tls_key.as_deref()).map(|(cert, key)| tls(cert, key, pipes)).transpose()?;
        Ok(Access { tls, token })
    }
}

/// Whether a file may be a pipe, as `--token-file <(pass serve)` gives one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pipes {
    Allowed,
    /// Once connections are served, all of them would wait for who writes to it.
    Refused,
}

/// Reads a file of at most `max` bytes, if no permission bit of `forbidden` is set.
fn read(what: &str, path: &Path, pipes: Pipes, forbidden: u32, max: u64) -> anyhow::Result<Vec<u8>> {
    let flags = if pipes == Pipes::Refused { nix::libc::O_NONBLOCK } else { 0 };
    let file = File::options().read(true).custom_flags(flags).open(path).with_context(|| what.to_owned())?;
    // Of the opened file: what the path names may change meanwhile.
    let metadata = file.metadata().with_context(|| what.to_owned())?;
    ensure!(metadata.is_file() || pipes == Pipes::Allowed, "{what}: a pipe cannot be read again");
    let mode = metadata.permissions().mode() & 0o777;
    ensure!(
        mode & forbidden == 0,
        "{what}: other users have access to it (mode {mode:04o}); run `chmod {:04o} {}`",
        mode & !forbidden,
        path.display()
    );
    let mut bytes = Vec::new();
    file.take(max + 1).read_to_end(&mut bytes).with_context(|| what.to_owned())?;
    ensure!(bytes.len() as u64 <= max, "{what}: it has more than {max} bytes");
    Ok(bytes)
}

/// Reads a token. It is the whole file but for a line break: of a file of another kind, such as a key, the first line is
/// no secret.
fn token(path: &Path, pipes: Pipes) -> anyhow::Result<Token> {
    let what = format!("--token-file {}", path.display());
    let bytes = read(&what, path, pipes, 0o077, MAX_TOKEN)?;
    let token = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    ensure!(!token.is_empty(), "{what}: it is empty; write a token into it: {MAKE}");
    let text = str::from_utf8(token).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let text =
        text.with_context(|| format!("{what}: a token is one line of ASCII letters, digits and signs: {MAKE}"))?;
    ensure!(
        text.len() >= MIN_TOKEN,
        "{what}: a token of {} characters may be guessed; it needs {MIN_TOKEN} or more: {MAKE}",
        text.len()
    );
    Ok(Token::new(text.to_owned()))
}

/// TLS 1.2 and 1.3 with this certificate.
fn tls(cert: &Path, key: &Path, pipes: Pipes) -> anyhow::Result<TlsAcceptor> {
    let (of_cert, of_key) = (format!("--tls-cert {}", cert.display()), format!("--tls-key {}", key.display()));
    let pem = read(&of_cert, cert, pipes, 0, MAX_PEM)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.with_context(|| of_cert.clone())?;
    ensure!(!chain.is_empty(), "{of_cert}: no certificate in it; it begins with a line -----BEGIN CERTIFICATE-----");
    // A group may read it, as Debian's `ssl-cert`.
    let pem = read(&of_key, key, pipes, 0o027, MAX_PEM)?;
    let key = PrivateKeyDer::from_pem_slice(&pem);
    let key = key.with_context(|| format!("{of_key}: no private key in it; give it as PEM without a passphrase"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(chain, key);
    let config = config.map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => anyhow::anyhow!("the key is not that of the certificate"),
        other => other.into(),
    });
    let mut config = config.with_context(|| format!("{of_cert} with {of_key}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

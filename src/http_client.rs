//! What all our HTTP clients have in common.

use ureq::config::ConfigBuilder;
use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

/// A client that checks certificates against these, and returns every status as an answer.
pub(crate) fn client(roots: RootCerts) -> ConfigBuilder<AgentScope> {
    fpprof_collector::resolve_without_plugins();
    ureq::Agent::config_builder()
        .tls_config(TlsConfig::builder().root_certs(roots).build())
        .user_agent(concat!("fpprof/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
}

/// The address of a server: by `http` or `https`, with a port that exists if one is given (else a client takes the usual one),
/// and without what would not be sent.
pub(crate) fn server(url: &str) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?;
    let host_and_port = authority.as_str().rsplit('@').next()?;
    let has_port = host_and_port == authority.host() || authority.port_u16().is_some_and(|port| port > 0);
    let is_whole = uri.query().is_none() && !url.contains('#');
    (matches!(uri.scheme_str(), Some("http" | "https")) && has_port && is_whole).then_some(uri)
}

#[cfg(test)]
mod tests {
    /// Check that addresses with ports that do not exist, or with parts that would be dropped, are refused.
    #[test]
    fn addresses_are_used_whole() {
        for url in ["http://a", "https://a:4318/b", "http://[::1]:1", "http://[::1]/b", "https://me:secret@a:65535"] {
            assert!(super::server(url).is_some(), "{url}");
        }
        let wrong =
            ["a:4318", "ftp://a", "/a", "http://a:", "http://a:0", "http://a:65536", "http://a/?b", "http://a/b#c"];
        for url in wrong {
            assert!(super::server(url).is_none(), "{url}");
        }
    }
}

//! What all our HTTP clients have in common.

use ureq::config::ConfigBuilder;
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

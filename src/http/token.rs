//! The token that requests must have, and the answer to those without.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::borrow::Cow;
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::sync::Semaphore;

/// Wrong credentials are refused this many at a time, and each refusal takes this long: four in a second.
const MAX_REFUSALS: usize = 4;
const REFUSAL_TIME: Duration = Duration::from_secs(1);
/// What browsers then ask the user for, and what programs print.
const REFUSED: [(header::HeaderName, &str); 4] = [
    (header::WWW_AUTHENTICATE, "Basic realm=\"fpprof\""),
    (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// A secret that every request must have. It has no `Debug`, so that nothing can print it.
pub(crate) struct Token {
    secret: String,
    /// Held while wrong credentials are refused.
    refusals: Semaphore,
}

impl Token {
    pub(crate) fn new(secret: String) -> Self {
        Self { secret, refusals: Semaphore::new(MAX_REFUSALS) }
    }

    /// The answer to a request without the token, late if it has other credentials; `None` if it has the token.
    ///
    /// Those with the token wait for nobody. So whoever guesses over many connections at once learns from an answer that
    /// is late that the guess was wrong: what makes guessing hopeless is the length of the token.
    pub(super) async fn refusal(&self, headers: &HeaderMap) -> Option<Response> {
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let words = match (given.next(), given.next()) {
            // No guess. A browser asks for the password only after this answer, which must not wait behind those who
            // guess.
            (None, _) => "give the token of this server as bearer token, or as password with any user name\n",
            (Some(credentials), None) if self.is_in(credentials.as_bytes()) => return None,
            _ => {
                // The semaphore is never closed.
                let _slot = self.refusals.acquire().await;
                tokio::time::sleep(REFUSAL_TIME).await;
                "this is not the token of this server\n"
            }
        };
        Some((StatusCode::UNAUTHORIZED, REFUSED, words).into_response())
    }

    /// Whether a header's credentials are the token. The comparison takes as long wherever the two differ; only a token
    /// of another length is refused sooner.
    ///
    /// # Sources
    /// RFC 9110, 11.4 (the name of the scheme in any case); RFC 6750, 2.1 (`Bearer`); RFC 7617, 2 (`Basic`)
    fn is_in(&self, credentials: &[u8]) -> bool {
        let end = credentials.iter().position(|&byte| byte == b' ').unwrap_or(credentials.len());
        let (scheme, value) = credentials.split_at(end);
        let value = value.trim_ascii_start();
        let given = if scheme.eq_ignore_ascii_case(b"bearer") {
            Some(Cow::Borrowed(value))
        } else if scheme.eq_ignore_ascii_case(b"basic") {
            password(value).map(Cow::Owned)
        } else {
            None
        };
        given.is_some_and(|given| given.ct_eq(self.secret.as_bytes()).into())
    }
}

/// The password in the credentials of HTTP Basic: what follows the first colon, as the user's name has none.
fn password(encoded: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = STANDARD.decode(encoded).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    Some(decoded.split_off(colon + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both schemes are understood in any case, and that nothing but the whole token is accepted.
    #[test]
    fn only_the_token_is_accepted() {
        let token = Token::new("0123456789:bcdef".to_owned());
        let basic = |text: &[u8]| format!("Basic {}", STANDARD.encode(text));
        let accepted = ["Bearer 0123456789:bcdef", "bearer   0123456789:bcdef", "BEARER 0123456789:bcdef"];
        let as_password =
            [basic(b"me:0123456789:bcdef"), basic(b":0123456789:bcdef"), basic(b"\xff\xfe:0123456789:bcdef")];
        for credentials in accepted.into_iter().chain(as_password.iter().map(String::as_str)) {
            assert!(token.is_in(credentials.as_bytes()), "{credentials}");
        }
        assert!(token.is_in(as_password[0].replace("Basic", "bASIC").as_bytes()));
        let refused = [
            "",
            " ",
            "Bearer",
            "Bearer ",
            "Basic",
            "Basic =",
            "Basic ====",
            "0123456789:bcdef",
            "Bearer0123456789:bcdef",
            "Bearer 0123456789:bcde",
            "Bearer 0123456789:bcdef0",
            "Bearer 0123456789:bcdeF",
            "Bearer 0123456789:bcdef,",
            "Digest 0123456789:bcdef",
            "Bearer Bearer 0123456789:bcdef",
            "Basic 0123456789:bcdef",
        ];
        let not_password = [basic(b"0123456789:bcdef"), basic(b"me"), basic(b"me:"), basic(b"0123456789:bcdef:me")];
        for credentials in refused.into_iter().chain(not_password.iter().map(String::as_str)) {
            assert!(!token.is_in(credentials.as_bytes()), "{credentials}");
        }
        assert!(!token.is_in(b"Bearer \xff\xfe\0"));
    }
}

//! What requests to backends take from the client's: headers that are passed on, and its token for
//! the backends that get it.
//!
//! A token leaves only here, and only to a backend it is meant for: whoever writes a request
//! without naming the principal sends none.

use std::rc::Rc;

use crate::{
    auth::Principal,
    config::compiled::{Backend, VirtualHost},
    request::Request,
    upstream::{CallFault, request::passed_head},
};

/// For one request.
#[derive(Clone, Copy)]
pub struct FromClient<'a> {
    head: &'a [u8],
    token: Option<Token<'a>>,
}

#[derive(Clone, Copy)]
struct Token<'a> {
    principal: &'a Rc<Principal>,
    /// The whole header value.
    authorization: &'a [u8],
}

/// A head alone: no token is passed on.
impl<'a> From<&'a [u8]> for FromClient<'a> {
    fn from(head: &'a [u8]) -> Self {
        Self { head, token: None }
    }
}

impl<'a> FromClient<'a> {
    /// What a request has, which is `principal`'s.
    pub fn of(request: &'a Request, principal: &'a Rc<Principal>) -> Self {
        let authorization = request.field(request.head.authorization);
        Self {
            head: request.head_bytes(),
            token: authorization.map(|authorization| Token {
                principal,
                authorization,
            }),
        }
    }

    /// The same, to be kept for a while.
    pub fn keep(&self) -> Voice {
        Voice {
            head: self.head.into(),
            token: self
                .token
                .map(|token| (token.principal.clone(), token.authorization.into())),
        }
    }

    /// The head with the headers that may be passed on.
    pub const fn head(&self) -> &'a [u8] {
        self.head
    }

    /// `Authorization` for a backend that gets the caller's token, if the token is meant for it.
    pub fn authorization_for(&self, backend: &Backend) -> Option<&'a [u8]> {
        let resource = backend.caller_resource.as_deref()?;
        let token = self
            .token
            .filter(|token| token.principal.is_meant_for(resource))?;
        Some(token.authorization)
    }
}

impl std::fmt::Debug for FromClient<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FromClient(..)")
    }
}

/// The same, kept for what the gateway sends by itself: in a session, the headers of the request
/// that opened it and the token of the client's last one. Where no backend gets tokens, none is
/// kept.
#[derive(Clone)]
pub struct Voice {
    head: Rc<[u8]>,
    token: Option<(Rc<Principal>, Rc<[u8]>)>,
}

/// It may hold credentials.
impl std::fmt::Debug for Voice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Voice(..)")
    }
}

impl Voice {
    /// What is kept of a request for the backends of `host`.
    pub fn of(request: &Request, principal: &Rc<Principal>, host: &VirtualHost) -> Self {
        let head = passed_head(host.backends.iter(), request.head_bytes());
        let token = None;
        let voice = Self {
            head: head.into(),
            token,
        };
        voice.with_token(request, principal, host)
    }

    /// The same with the token of another request.
    #[must_use]
    pub fn with_token(
        &self,
        request: &Request,
        principal: &Rc<Principal>,
        host: &VirtualHost,
    ) -> Self {
        let value = request.field(request.head.authorization);
        let value = value.filter(|_| host.passes_tokens);
        Self {
            head: self.head.clone(),
            token: value.map(|value| (principal.clone(), value.into())),
        }
    }

    /// Whether the token is the one that proved `principal`.
    pub fn is_of(&self, principal: &Rc<Principal>) -> bool {
        let own = self.token.as_ref();
        own.is_some_and(|(own, _)| Rc::ptr_eq(own, principal))
    }

    /// Whether the backend may be asked with it.
    ///
    /// # Errors
    /// When the backend gets the caller's token, and there is none or it is not meant for it.
    pub fn admit(&self, backend: &Backend) -> Result<(), CallFault> {
        match &self.token {
            Some((principal, _)) => backend.admit(principal),
            None if backend.caller_resource.is_some() => Err(CallFault::NotMeant),
            None => Ok(()),
        }
    }

    /// The head with the headers that are passed on; empty: none are.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// For one request.
    pub fn say(&self) -> FromClient<'_> {
        FromClient {
            head: &self.head,
            token: self.token.as_ref().map(|(principal, authorization)| Token {
                principal,
                authorization,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::{FingerprintKey, Verified},
        config::compiled::CompiledUser,
        mcp::version::Version,
        upstream::{request, target::Targets},
    };

    fn principal(audiences: &[&str]) -> Rc<Principal> {
        let verified = Verified {
            subject: "s".into(),
            audiences: audiences
                .iter()
                .map(|audience| Box::from(*audience))
                .collect(),
            ..Verified::default()
        };
        Rc::new(Principal::from_verified(
            verified,
            &FingerprintKey::new(b"k"),
        ))
    }

    #[test]
    fn a_token_goes_to_the_backend_it_is_meant_for_and_nowhere_else() {
        let config = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"backends":{
                "a":{"url":"https://a.example/mcp","backend_credential_mode":"caller",
                    "backend_resource":"https://a.example/#x",
                    "passthrough_headers":["Authorization","X-One"]},
                "b":{"url":"https://b.example/mcp","backend_credential_mode":"none",
                    "passthrough_headers":["authorization"],
                    "add_headers":{"Authorization":"Bearer own"}},
                "c":{"url":"https://c.example/mcp","backendCredentialMode":"caller",
                    "backendResource":"https://c.example/mcp/"}}}}}"#,
        )
        .unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        let host = user.host("v").unwrap();
        let head = b"POST / HTTP/1.1\r\nAuthorization: Bearer t0k\r\nX-One: 1\r\n\r\n";
        let sent = |audiences: &[&str], index: usize| {
            let principal = principal(audiences);
            let from = FromClient {
                head,
                token: Some(Token {
                    principal: &principal,
                    authorization: b"Bearer t0k",
                }),
            };
            let backend = &host.backends[index];
            let refused = backend.admit(&principal).is_err();
            let mut post = request::post_head(backend, None, Some(Version::LATEST));
            request::finish_head(&mut post, 0, backend, from);
            let get = request::get(backend, None, Version::LATEST, None, from);
            let delete = request::delete(backend, b"s", None, from);
            let texts = [post, get, delete].map(|bytes| String::from_utf8(bytes).unwrap());
            let count = texts.iter().filter(|text| text.contains("t0k")).count();
            assert!(texts.iter().all(|text| !text.contains("Bearer own")));
            assert!(
                texts
                    .iter()
                    .all(|text| text.contains("x-one: 1") == (index == 0))
            );
            (count, refused)
        };
        for (audiences, meant) in [
            (&["https://a.example"][..], true),
            (&["other", "https://a.example"], true),
            (&["https://a.example/"], false),
            (&["https://A.example"], false),
            (&["https://a.example.evil"], false),
            (&["https://c.example/mcp"], false),
            (&[], false),
        ] {
            let expected = if meant { (3, false) } else { (0, true) };
            assert_eq!(sent(audiences, 0), expected, "{audiences:?}");
            assert_eq!(sent(audiences, 1), (0, false), "{audiences:?}");
        }
        assert_eq!(sent(&["https://c.example/mcp"], 2), (3, false));
        // Without a principal there is no proof.
        let mut post = request::post_head(&host.backends[0], None, None);
        request::finish_head(&mut post, 0, &host.backends[0], &head[..]);
        assert!(!String::from_utf8(post).unwrap().contains("t0k"));
    }
}

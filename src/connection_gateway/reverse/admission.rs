//! Who may bring a server, and under which source: by a connect token, or by a token that MCP
//! clients have.

use std::net::SocketAddr;

use super::{Framing, MCP};
use crate::{
    auth::{bearer, gate::authenticate, scope},
    connection_gateway::{
        handshake::Answer,
        json,
        node::Node,
        reverse::contextforge::is_name,
        token::{Claims, TokenFault},
    },
    http::{RequestHead, header_values},
    request::Request,
    session::SessionId,
    shard_state::ShardState,
};

/// The header that names a source, or a part of one.
const SOURCE_HEADER: &str = "x-shardgate-source";

/// What an opening request was let in for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::connection_gateway) enum Admitted {
    /// What comes will say who it is.
    Anybody,
    /// A proxy of this subject.
    Proxy(Box<str>),
    /// A proxy that is not let in: it is told by a Close frame.
    NoProxy,
    /// A server with these claims, one source among them.
    Server(Claims),
}

/// Judges an opening request whose head is at the front of `bytes`.
///
/// # Errors
/// The answer that says no.
pub(in crate::connection_gateway) async fn admit(
    state: &ShardState,
    node: &Node,
    framing: Framing,
    (head, bytes): (&RequestHead, &[u8]),
    peer: SocketAddr,
) -> Result<Admitted, Answer> {
    match framing {
        Framing::Envelopes => Ok(Admitted::Anybody),
        Framing::ContextForge => Ok(match subject(state, head, bytes, peer).await {
            Ok(subject) => Admitted::Proxy(subject),
            Err(_) => Admitted::NoProxy,
        }),
        Framing::Plain => {
            let wanted = header_values(&bytes[..head.len], SOURCE_HEADER).next();
            let wanted = wanted.map(std::str::from_utf8).transpose();
            let wanted = wanted.map_err(|_| Answer::FORBIDDEN)?;
            let token = head.authorization.and_then(|at| bearer(at.slice(bytes)));
            let token = token.and_then(|token| std::str::from_utf8(token).ok());
            match node.verify(token.ok_or(Answer::UNAUTHORIZED)?) {
                Ok(claims) => by_connect_token(claims, wanted).map(Admitted::Server),
                // It may be one of the other kind.
                Err(TokenFault::Invalid) => {
                    let subject = subject(state, head, bytes, peer).await?;
                    let name = wanted.filter(|name| is_name(name));
                    let name = name.ok_or(Answer::FORBIDDEN)?;
                    Ok(Admitted::Server(claims_of(&subject, name)))
                }
                Err(TokenFault::Capability) => Err(Answer::FORBIDDEN),
                Err(TokenFault::Expired | TokenFault::Claims(_)) => Err(Answer::UNAUTHORIZED),
            }
        }
    }
}

/// Whose token it is that MCP clients have.
async fn subject(
    state: &ShardState,
    head: &RequestHead,
    bytes: &[u8],
    peer: SocketAddr,
) -> Result<Box<str>, Answer> {
    let session_id: Option<SessionId> = None;
    let request = Request {
        bytes: bytes[..head.len].to_vec(),
        head: head.clone(),
        body: head.len..head.len,
        peer,
        session_id,
    };
    let principal = authenticate(state, &request).await;
    let principal = principal.map_err(|_| Answer::UNAUTHORIZED)?;
    if principal.anonymous {
        // Nobody in particular has no name to bring a server under.
        return Err(Answer::UNAUTHORIZED);
    }
    scope::admit_server(state, peer.ip(), &principal).map_err(|_| Answer::FORBIDDEN)?;
    Ok(principal.subject.clone())
}

/// A connect token's claims with the one source that is meant: the only one, or the one that is
/// named by itself or by its last part.
fn by_connect_token(mut claims: Claims, wanted: Option<&str>) -> Result<Claims, Answer> {
    let can_serve = claims.capabilities.iter().any(|held| **held == *MCP);
    if *claims.consumer_type != *MCP || !can_serve {
        return Err(Answer::FORBIDDEN);
    }
    let is_it = |source: &str| {
        wanted.is_none_or(|wanted| {
            if wanted.is_empty() {
                return false;
            }
            let rest = source.strip_suffix(wanted);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(':'))
        })
    };
    claims.sources.retain(|source| is_it(source));
    match claims.sources.len() {
        1 => Ok(claims),
        _ => Err(Answer::FORBIDDEN),
    }
}

/// What somebody claims who brings a server by a token that MCP clients have.
pub(in crate::connection_gateway) fn claims_of(subject: &str, name: &str) -> Claims {
    let source = format!("mcp:{subject}:{name}");
    let mut scope = br#"{"userId":"#.to_vec();
    json::write_text(&mut scope, subject);
    scope.extend_from_slice(br#","source":"#);
    json::write_text(&mut scope, &source);
    scope.push(b'}');
    Claims {
        consumer_type: MCP.into(),
        subject: subject.into(),
        scope: String::from_utf8(scope).unwrap_or_default().into(),
        sources: vec![source.into()],
        capabilities: vec!["gateway.bind".into(), MCP.into()],
        expires_at: u64::MAX,
        nonce: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(sources: &[&str]) -> Claims {
        Claims {
            sources: sources.iter().map(|source| Box::from(*source)).collect(),
            ..claims_of("alice", "x")
        }
    }

    fn picked(sources: &[&str], wanted: Option<&str>) -> Option<String> {
        let claims = by_connect_token(claims(sources), wanted).ok()?;
        Some(claims.sources[0].to_string())
    }

    #[test]
    fn one_source_is_meant_or_nobody_comes_in() {
        let two = ["mcp:alice:files", "mcp:alice:git"];
        assert_eq!(picked(&two[..1], None).as_deref(), Some(two[0]));
        assert_eq!(picked(&two, None), None);
        assert_eq!(picked(&two, Some("git")).as_deref(), Some(two[1]));
        assert_eq!(picked(&two, Some(two[0])).as_deref(), Some(two[0]));
        for other in ["", "it", "alice", "mcp:alice:other", "x"] {
            assert_eq!(picked(&two, Some(other)), None, "{other}");
        }
        assert_eq!(picked(&[], None), None);
        let mut other = claims(&two[..1]);
        other.consumer_type = "plugin-debug".into();
        assert_eq!(by_connect_token(other, None), Err(Answer::FORBIDDEN));
        let mut other = claims(&two[..1]);
        other.capabilities.pop();
        assert_eq!(by_connect_token(other, None), Err(Answer::FORBIDDEN));
    }

    #[test]
    fn a_subject_and_a_name_are_a_source() {
        let claims = claims_of("a\"b@example.com", "files");
        assert_eq!(claims.sources, ["mcp:a\"b@example.com:files".into()]);
        let scope: serde_json::Value = serde_json::from_str(&claims.scope).unwrap();
        assert_eq!(scope["userId"], "a\"b@example.com");
    }
}

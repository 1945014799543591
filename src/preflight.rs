//! What is checked of a request before anything is done for it: CORS preflights, content headers,
//! header budgets, protocol revision.

use crate::{
    http::{Method, header_values, headers},
    mcp::{
        classify::{self, Enabled, Header, Marks, Meta, Misfit, Profile},
        envelope::{Envelope, EnvelopeFault},
        json,
        version::{self, STATELESS, Version},
    },
    refusal::Refusal,
    reply::Reply,
    request::{Request, gone_is_fine},
    session::Session,
    settings::{Limits, Protocols},
    stateless::StatelessFault,
};

/// Answers a CORS preflight (market.md S11): without authentication, for allowed origins only.
pub async fn answer(
    protocols: &Protocols,
    request: &Request,
    reply: &mut Reply<'_>,
) -> Result<(), Refusal> {
    if request.head.origin.is_none() || request.head.access_control_request_method.is_none() {
        return Err(not_a_method(protocols, request));
    }
    let mut out = Vec::with_capacity(640);
    reply.head(&mut out, 204);
    out.extend_from_slice(
        b"access-control-allow-methods: GET, POST, DELETE, OPTIONS\r\n\
          access-control-allow-headers: content-type, authorization, accept, \
          mcp-session-id, mcp-protocol-version, last-event-id, mcp-method, mcp-name",
    );
    // Which arguments are mirrored is up to the tools: no list can name them all.
    let requested = request.field(request.head.access_control_request_headers);
    for name in requested.unwrap_or_default().split(|byte| *byte == b',') {
        let name = name.trim_ascii();
        if is_param_header(name) && name.iter().all(u8::is_ascii_graphic) {
            out.extend_from_slice(b", ");
            out.extend_from_slice(name);
        }
    }
    // RFC 9110 section 8.6: no Content-Length in a 204.
    out.extend_from_slice(b"\r\naccess-control-max-age: 600\r\n\r\n");
    gone_is_fine(reply.last(out).await.map(drop))
}

/// Checks the budget of MCP headers (contextforge.md 1.6).
pub fn check_header_budget(limits: &Limits, request: &Request) -> Result<(), Refusal> {
    let (mut count, mut total_bytes) = (0, 0);
    let head = &request.head;
    // Most requests have none but the two we know, which the head's own limit bounds; and a head
    // that is smaller than each budget keeps them, whatever it holds.
    let is_plain = head.mcp_method.is_none() && head.mcp_name.is_none();
    let is_small = head.header_count <= limits.standard_header_count_max
        && head.len <= limits.standard_header_total_bytes_max;
    if (is_plain || is_small) && head.len <= limits.standard_header_value_bytes_max {
        return Ok(());
    }
    for (name, value) in headers(request.head_bytes()) {
        if !is_mcp_header(name) {
            continue;
        }
        count += 1;
        total_bytes += name.len() + value.len();
        if count > limits.standard_header_count_max
            || value.len() > limits.standard_header_value_bytes_max
            || total_bytes > limits.standard_header_total_bytes_max
        {
            return Err(Refusal::HeaderBudget);
        }
    }
    Ok(())
}

fn is_mcp_header(name: &[u8]) -> bool {
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    is("mcp-method")
        || is("mcp-name")
        || is("mcp-protocol-version")
        || is("mcp-session-id")
        || is_param_header(name)
}

fn is_param_header(name: &[u8]) -> bool {
    name.get(..10)
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(b"mcp-param-"))
}

/// Checks `Accept` and `Content-Type` of a POST (mcp.md 1.2). Both types must be named somewhere in
/// `Accept`, in whatever form (contextforge.md 8.2), or `*/*`.
pub fn check_content(request: &Request) -> Result<(), Refusal> {
    let accept = request.field(request.head.accept).unwrap_or(b"");
    if !accepts_both(accept) && !is_accepted_over_lines(request) {
        return Err(Refusal::Accept);
    }
    let content_type = request.field(request.head.content_type).unwrap_or(b"");
    let essence = content_type.get(..16).unwrap_or(b"");
    let is_json = essence.eq_ignore_ascii_case(b"application/json")
        && content_type
            .get(16)
            .is_none_or(|next| matches!(next, b';' | b' ' | b'\t'));
    if is_json {
        Ok(())
    } else {
        Err(Refusal::ContentType)
    }
}

fn accepts_both(accept: &[u8]) -> bool {
    // What nearly all clients send.
    if accept == b"application/json, text/event-stream" {
        return true;
    }
    let names = |media: &[u8]| memchr::memmem::find(accept, media).is_some();
    (names(b"application/json") && names(b"text/event-stream")) || names(b"*/*")
}

/// Whether a POST names event streams before JSON: real servers answer that with a stream.
pub fn prefers_stream(request: &Request) -> bool {
    let accept = request.field(request.head.accept).unwrap_or(b"");
    accept.starts_with(b"text/event-stream")
}

fn is_accepted_over_lines(request: &Request) -> bool {
    if !request.head.accept_repeated {
        return false;
    }
    let joined: Vec<u8> = header_values(request.head_bytes(), "accept")
        .collect::<Vec<_>>()
        .join(&b","[..]);
    accepts_both(&joined)
}

/// Whether a GET accepts event streams.
pub fn accepts_stream(request: &Request) -> bool {
    let accept = request.field(request.head.accept).unwrap_or(b"");
    let names = |media: &[u8]| memchr::memmem::find(accept, media).is_some();
    names(b"text/event-stream") || names(b"*/*")
}

/// The revision the version header of a GET, a DELETE or a batch names: those belong to sessions
/// (mcp.md 1.1).
pub fn session_version(
    protocols: &Protocols,
    request: &Request,
) -> Result<Option<Version>, Refusal> {
    if request.head.repeated_protocol_version {
        return Err(Refusal::RepeatedVersion);
    }
    if names_stateless(request) || !protocols.legacy {
        return Err(match request.head.method {
            Method::Post if !protocols.stateless => {
                Refusal::Stateless(None, protocols.with_sessions())
            }
            Method::Post => Refusal::modern(None, StatelessFault::Envelope(EnvelopeFault::Batch)),
            _ => Refusal::StatelessMethod,
        });
    }
    let header = request.field(request.head.protocol_version);
    let served = protocols.with_sessions();
    let read = |name: &[u8]| Version::from_name(name).filter(|version| served.contains(*version));
    header
        .map(|name| read(name).ok_or(Refusal::Version(served)))
        .transpose()
}

/// Why a request with a method that neither profile has is refused: with what there is of the
/// profile it names.
pub fn not_a_method(protocols: &Protocols, request: &Request) -> Refusal {
    match names_stateless(request) || !protocols.legacy {
        true => Refusal::StatelessMethod,
        false => Refusal::Method,
    }
}

fn names_stateless(request: &Request) -> bool {
    request.field(request.head.protocol_version) == Some(STATELESS.as_bytes())
}

/// Which profile a POST belongs to (dual-profile.md 1.4).
pub fn classify(
    protocols: &Protocols,
    request: &Request,
    message: &Envelope,
    body: &[u8],
) -> Result<Profile, Refusal> {
    let head = &request.head;
    let in_body = message.meta_protocol_version.map(|span| span.slice(body));
    let name = in_body.and_then(json::unescape);
    let marks = Marks {
        header: match request.field(head.protocol_version) {
            Some(_) if head.repeated_protocol_version => Header::Several(
                header_values(request.head_bytes(), "mcp-protocol-version")
                    .any(|value| value == STATELESS.as_bytes()),
            ),
            Some(value) => Header::One(value),
            None => Header::Absent,
        },
        meta: match (&name, in_body) {
            (Some(name), _) => Meta::Text(name),
            (None, Some(_)) => Meta::NotText,
            (None, None) => Meta::Absent,
        },
        kind: message.kind,
        is_initialize: message.method.map(|span| span.slice(body)) == Some(b"initialize"),
        has_session: head.session_id.is_some(),
    };
    let enabled = Enabled {
        stateless: protocols.stateless,
        legacy: protocols.with_sessions(),
    };
    classify::classify(enabled, &marks).map_err(|misfit| {
        let id = message.id.map(|span| span.slice(body));
        let modern = |fault| Refusal::modern(id, fault);
        match misfit {
            Misfit::HeaderTwice | Misfit::HeaderMissing | Misfit::Mismatch => {
                modern(StatelessFault::Header("MCP-Protocol-Version"))
            }
            Misfit::LegacyHeaderTwice => Refusal::RepeatedVersion,
            Misfit::Answer => modern(StatelessFault::Answer),
            Misfit::MetaMissing => modern(StatelessFault::MetaMissing(
                "io.modelcontextprotocol/protocolVersion",
            )),
            Misfit::Unsupported(name) => modern(StatelessFault::Version(
                match head.protocol_version {
                    None => text(message.protocol_version.map(|span| span.slice(body)))
                        .unwrap_or_default()
                        .into(),
                    Some(_) => String::from_utf8_lossy(name).into(),
                },
                version::names(protocols.stateless, protocols.with_sessions()),
            )),
            Misfit::StatelessOff => Refusal::Stateless(id.map(Box::from), enabled.legacy),
            Misfit::LegacyVersion => Refusal::Version(enabled.legacy),
            Misfit::NoSession => Refusal::NoSession,
        }
    })
}

/// Whether a body that could not be read is to be refused in the words of the stateless revision.
pub fn says_stateless(protocols: &Protocols, request: &Request) -> bool {
    protocols.stateless && names_stateless(request)
}

/// The header must name the session's revision, if it is there (mcp.md 1.2).
pub fn check_version(
    protocols: &Protocols,
    header: Option<Version>,
    session: &Session,
) -> Result<(), Refusal> {
    match header {
        Some(version) if version != session.version => {
            Err(Refusal::Version(protocols.with_sessions()))
        }
        _ => Ok(()),
    }
}

/// The text of a string member of the request, decoded.
pub fn text<'a>(raw: Option<&'a [u8]>) -> Option<std::borrow::Cow<'a, str>> {
    raw.and_then(json::unescape)
}

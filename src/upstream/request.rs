//! Requests to backends, written anew: never a byte of the client's head (reliability.md 3).

use crate::{
    config::compiled::Backend,
    http::{Decimal, header_values},
    mcp::{header_schema::ParamHeader, mirror, version::Version},
    upstream::FromClient,
};

/// The part of a POST's head that does not change during a backend session, up to and including
/// `content-length: `.
pub fn post_head(
    backend: &Backend,
    session_id: Option<&[u8]>,
    version: Option<Version>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(384);
    start(&mut out, b"POST", backend, session_id, version);
    out.extend_from_slice(
        b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
          content-length: ",
    );
    out
}

/// A whole DELETE request that ends a backend session (mcp.md 1.2).
pub fn delete<'a>(
    backend: &Backend,
    session_id: &[u8],
    version: Option<Version>,
    client: impl Into<FromClient<'a>>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(384);
    start(&mut out, b"DELETE", backend, Some(session_id), version);
    pass_headers(&mut out, backend, client.into());
    out
}

/// A whole GET request for a backend's own event stream, from after the event `seen` on
/// (mcp.md 1.2). `client` is the request that is the reason.
pub fn get<'a>(
    backend: &Backend,
    session_id: Option<&[u8]>,
    version: Version,
    seen: Option<&[u8]>,
    client: impl Into<FromClient<'a>>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(384);
    start(&mut out, b"GET", backend, session_id, Some(version));
    out.extend_from_slice(b"accept: text/event-stream\r\n");
    if let Some(seen) = seen.filter(|seen| is_field_value(seen)) {
        field(&mut out, b"last-event-id", seen);
    }
    pass_headers(&mut out, backend, client.into());
    out
}

fn start(
    out: &mut Vec<u8>,
    method: &[u8],
    backend: &Backend,
    session_id: Option<&[u8]>,
    version: Option<Version>,
) {
    out.extend_from_slice(method);
    out.push(b' ');
    out.extend_from_slice(backend.path.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    out.extend_from_slice(backend.target.authority.as_bytes());
    // Replies are relayed as they are, so no coding is asked for.
    out.extend_from_slice(b"\r\naccept-encoding: identity\r\nuser-agent: shardgate\r\n");
    if let Some(session_id) = session_id {
        field(out, b"mcp-session-id", session_id);
    }
    // Defined from 2025-06-18 on (mcp.md 1.1).
    if let Some(version) = version.filter(|version| *version >= Version::V2025_06_18) {
        field(out, b"mcp-protocol-version", version.name().as_bytes());
    }
    out.extend_from_slice(&backend.own_lines.0);
    for (name, value) in &backend.add_headers {
        field(out, name.as_bytes(), value.as_bytes());
    }
    if let Some(own) = &backend.credential {
        field(out, own.name.as_bytes(), own.value.bytes());
    }
}

fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Completes a head from [`post_head`]: the length, the caller's passed headers (first value each,
/// contextforge.md 5.11), its token for a backend that gets it, the blank line.
pub fn finish_head<'a>(
    out: &mut Vec<u8>,
    body_bytes: usize,
    backend: &Backend,
    client: impl Into<FromClient<'a>>,
) {
    out.extend_from_slice(Decimal::new(body_bytes as u64).as_bytes());
    out.extend_from_slice(b"\r\n");
    pass_headers(out, backend, client.into());
}

/// The headers that mirror the body of a request to a stateless backend (SEP-2243).
#[derive(Debug, Clone, Copy)]
pub struct Mirror<'a> {
    /// `Mcp-Method`.
    pub method: &'a [u8],
    /// What `Mcp-Name` says: the name as the backend knows it.
    pub name: Option<&'a str>,
    /// Arguments the tool wants mirrored.
    pub params: &'a [ParamHeader],
    /// The call's arguments, raw.
    pub arguments: Option<&'a [u8]>,
}

impl<'a> Mirror<'a> {
    /// That of a request which names nothing.
    pub fn of_method(method: &'a [u8]) -> Self {
        Self {
            method,
            name: None,
            params: &[],
            arguments: None,
        }
    }
}

/// The same as [`finish_head`] for a request to a stateless backend.
pub fn finish_mirrored_head<'a>(
    out: &mut Vec<u8>,
    body_bytes: usize,
    mirror: &Mirror<'_>,
    backend: &Backend,
    client: impl Into<FromClient<'a>>,
) {
    out.extend_from_slice(Decimal::new(body_bytes as u64).as_bytes());
    out.extend_from_slice(b"\r\nmcp-method: ");
    out.extend_from_slice(mirror.method);
    if let Some(name) = mirror.name {
        out.extend_from_slice(b"\r\nmcp-name: ");
        mirror::encode(out, name);
    }
    out.extend_from_slice(b"\r\n");
    mirror::write_params(out, mirror.params, mirror.arguments);
    pass_headers(out, backend, client.into());
}

/// The caller's passed headers, its token, and the blank line.
fn pass_headers(out: &mut Vec<u8>, backend: &Backend, client: FromClient<'_>) {
    for name in &backend.pass_headers {
        if let Some(value) = header_values(client.head(), name).next()
            && is_field_value(value)
        {
            field(out, name.as_bytes(), value);
        }
    }
    if let Some(value) = client.authorization_for(backend)
        && is_field_value(value)
    {
        field(out, b"authorization", value);
    }
    out.extend_from_slice(b"\r\n");
}

fn is_field_value(value: &[u8]) -> bool {
    value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t'))
}

/// A head that holds what the backends of a virtual host pass on of `client_head`, to be kept;
/// empty when they pass nothing on.
pub fn passed_head<'a>(
    backends: impl Iterator<Item = &'a Backend>,
    client_head: &[u8],
) -> Box<[u8]> {
    let mut names: Vec<&str> = backends
        .flat_map(|backend| backend.pass_headers.iter().map(|name| &**name))
        .collect();
    if names.is_empty() {
        return Box::default();
    }
    names.sort_unstable();
    names.dedup();
    let mut head = b"GET / HTTP/1.1\r\n".to_vec();
    let empty = head.len();
    for name in names {
        if let Some(value) = header_values(client_head, name).next() {
            field(&mut head, name.as_bytes(), value);
        }
    }
    if head.len() == empty {
        return Box::default();
    }
    head.extend_from_slice(b"\r\n");
    head.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::compiled::CompiledUser, upstream::target::Targets};

    #[test]
    fn a_post_is_written_anew() {
        let config = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"backends":{"b":{"url":"http://h:81/mcp?q=1",
                "passthrough_headers":["X-Trace","Host","Cookie"],
                "add_headers":{"X-Add":"1","Content-Length":"9","Cookie":"z"},
                "remove_headers":["cookie"]}}}}}"#,
        )
        .unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        let backend = &user.host("v").unwrap().backends[0];
        let mut out = post_head(backend, Some(b"sid"), Some(Version::V2025_11_25));
        let client =
            b"POST / HTTP/1.1\r\nHost: evil\r\nx-trace: t1\r\nX-Trace: t2\r\nCookie: c\r\n\r\n";
        finish_head(&mut out, 12, backend, &client[..]);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "POST /mcp?q=1 HTTP/1.1\r\nhost: h:81\r\naccept-encoding: identity\r\n\
             user-agent: shardgate\r\nmcp-session-id: sid\r\nmcp-protocol-version: 2025-11-25\r\n\
             x-add: 1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: 12\r\n\
             x-trace: t1\r\n\r\n"
        );
    }

    #[test]
    fn what_is_passed_on_can_be_kept() {
        let config = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"backends":{
                "a":{"url":"http://a/","passthrough_headers":["X-One","X-Two"]},
                "b":{"url":"http://b/","passthrough_headers":["X-Two"]},
                "c":{"url":"http://c/"}}}}}"#,
        )
        .unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        let host = user.host("v").unwrap();
        let client = b"POST / HTTP/1.1\r\nHost: h\r\nX-Two: 2\r\nAuthorization: s\r\n\r\n";
        let kept = passed_head(host.backends.iter(), client);
        assert_eq!(&*kept, b"GET / HTTP/1.1\r\nx-two: 2\r\n\r\n");
        let request = delete(&host.backends[1], b"sid", None, &*kept);
        assert!(request.ends_with(b"mcp-session-id: sid\r\nx-two: 2\r\n\r\n"));
        let nothing = passed_head(host.backends[2..].iter(), client);
        assert!(nothing.is_empty());
        let request = get(
            &host.backends[2],
            None,
            Version::LATEST,
            Some(b"e1"),
            &*nothing,
        );
        assert!(request.ends_with(b"accept: text/event-stream\r\nlast-event-id: e1\r\n\r\n"));
    }
}

//! Where an HTTP+SSE server takes messages: the URI of its `endpoint` event (mcp.md 1.3). Pure.

use url::Url;

/// Why an announced endpoint is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointFault {
    /// Neither a relative nor an absolute URI.
    #[error("it announces no valid endpoint")]
    Invalid,
    /// Credentials meant for one server would go to another.
    #[error("it announces an endpoint of another origin")]
    Origin,
}

/// The address that `announced` is, seen from the stream's own.
pub(super) fn resolve(stream: &Url, announced: &[u8]) -> Result<Url, EndpointFault> {
    let text = std::str::from_utf8(announced).map_err(|_| EndpointFault::Invalid)?;
    let text = text.trim();
    if text.is_empty() {
        return Err(EndpointFault::Invalid);
    }
    let mut url = stream.join(text).map_err(|_| EndpointFault::Invalid)?;
    if url.origin() != stream.origin() || !url.origin().is_tuple() {
        return Err(EndpointFault::Origin);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(EndpointFault::Origin);
    }
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn endpoints_are_relative_or_of_the_same_origin() {
        let stream = Url::parse("https://host.example/a/sse?key=1").unwrap();
        for (announced, expected) in [
            (
                "/message?sessionId=1",
                "https://host.example/message?sessionId=1",
            ),
            ("message?x=y#z", "https://host.example/a/message?x=y"),
            ("?s=1", "https://host.example/a/sse?s=1"),
            (" /m \n", "https://host.example/m"),
            ("https://host.example:443/m", "https://host.example/m"),
            ("HTTPS://HOST.example/m", "https://host.example/m"),
            ("//host.example/m", "https://host.example/m"),
        ] {
            let url = resolve(&stream, announced.as_bytes()).unwrap();
            assert_eq!(url.as_str(), expected, "{announced}");
        }
        for (announced, fault) in [
            ("", EndpointFault::Invalid),
            ("http://[", EndpointFault::Invalid),
            ("http://host.example/m", EndpointFault::Origin),
            ("https://host.example:444/m", EndpointFault::Origin),
            ("https://other.example/m", EndpointFault::Origin),
            ("//other.example/m", EndpointFault::Origin),
            ("https://u:p@host.example/m", EndpointFault::Origin),
            ("file:///etc/passwd", EndpointFault::Origin),
            ("javascript:0", EndpointFault::Origin),
        ] {
            assert_eq!(
                resolve(&stream, announced.as_bytes()),
                Err(fault),
                "{announced}"
            );
        }
        assert_eq!(resolve(&stream, b"\xff"), Err(EndpointFault::Invalid));
    }

    proptest! {
        #[test]
        fn nothing_leads_to_another_origin(announced in ".{0,60}") {
            let stream = Url::parse("http://127.0.0.1:8000/sse").unwrap();
            if let Ok(url) = resolve(&stream, announced.as_bytes()) {
                prop_assert_eq!(url.origin(), stream.origin());
            }
        }
    }
}

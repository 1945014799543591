//! The rules of the envelope, spelt out over what serde_json reads: slow, and hard to get wrong.
//!
//! Shared by the fuzz targets and `tests/envelope.rs`.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use shardgate::http::head::Span;
use shardgate::mcp::envelope::{Envelope, Kind};

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_TASK: &str = "io.modelcontextprotocol/related-task";

/// The members of an object as serde_json reads them: keys decoded, values raw, all kept.
pub struct Pairs<'a>(pub Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(All)
    }
}

/// How deep the containers of a valid document nest.
pub fn depth_of(document: &str) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0, 0, false, false);
    for byte in document.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
    }
    deepest
}

/// The one member of this name as a span of `body`; `Err` when there are several.
pub fn only(body: &str, pairs: &Pairs<'_>, name: &str) -> Result<Option<Span>, ()> {
    let mut found = pairs
        .0
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| {
            let start = value.get().as_ptr() as usize - body.as_ptr() as usize;
            Span {
                start: start as u32,
                end: (start + value.get().len()) as u32,
            }
        });
    let first = found.next();
    if found.next().is_some() {
        Err(())
    } else {
        Ok(first)
    }
}

fn has_folded(pairs: &Pairs<'_>, names: &[&str]) -> bool {
    let fold = |key: &str| -> String {
        let folded = key.chars().map(|c| match c {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        });
        folded.collect()
    };
    pairs
        .0
        .iter()
        .filter(|(key, _)| !names.contains(&&**key))
        .any(|(key, _)| names.iter().any(|name| fold(name) == fold(key)))
}

/// The object at a span, read by serde_json.
fn object_at(body: &str, span: Span) -> Result<Pairs<'_>, ()> {
    serde_json::from_str(&body[span.start as usize..span.end as usize]).map_err(|_| ())
}

/// The rules of the envelope, spelt out over what serde_json reads.
pub fn reference(body: &[u8], depth_max: u16) -> Result<Envelope, ()> {
    let body = std::str::from_utf8(body).map_err(|_| ())?;
    let top: Pairs<'_> = serde_json::from_str(body).map_err(|_| ())?;
    if depth_of(body) > usize::from(depth_max)
        || has_folded(
            &top,
            &["jsonrpc", "id", "method", "params", "result", "error"],
        )
    {
        return Err(());
    }
    let text = |span: Span| &body[span.start as usize..span.end as usize];
    let mut envelope = Envelope {
        id: only(body, &top, "id")?,
        method: only(body, &top, "method")?,
        params: only(body, &top, "params")?,
        result: only(body, &top, "result")?,
        error: only(body, &top, "error")?,
        ..Envelope::default()
    };
    if only(body, &top, "jsonrpc")?.map(text) != Some("\"2.0\"") {
        return Err(());
    }
    if let Some(params) = envelope.params {
        let params = object_at(body, params)?;
        if has_folded(
            &params,
            &["name", "uri", "_meta", "arguments", "ref", "taskId"],
        ) {
            return Err(());
        }
        envelope.name = only(body, &params, "name")?;
        envelope.uri = only(body, &params, "uri")?;
        envelope.cursor = only(body, &params, "cursor")?;
        envelope.arguments = only(body, &params, "arguments")?;
        envelope.meta = only(body, &params, "_meta")?;
        envelope.request_id = only(body, &params, "requestId")?;
        envelope.protocol_version = only(body, &params, "protocolVersion")?;
        envelope.capabilities = only(body, &params, "capabilities")?;
        envelope.client_info = only(body, &params, "clientInfo")?;
        envelope.task_id = only(body, &params, "taskId")?;
        envelope.reference = only(body, &params, "ref")?;
    }
    // A reference that is no object is passed on for its backend to refuse.
    if let Some(reference) = envelope.reference.filter(|at| text(*at).starts_with('{')) {
        let reference = object_at(body, reference)?;
        if has_folded(&reference, &["type", "name", "uri"]) {
            return Err(());
        }
        envelope.reference_type = only(body, &reference, "type")?;
        envelope.reference_name = only(body, &reference, "name")?;
        envelope.reference_uri = only(body, &reference, "uri")?;
    }
    if let Some(meta) = envelope.meta {
        let meta = object_at(body, meta)?;
        envelope.progress_token = only(body, &meta, "progressToken")?;
        envelope.meta_protocol_version = only(body, &meta, META_VERSION)?;
        envelope.related_task = only(body, &meta, META_TASK)?;
    }
    for read in [
        envelope.id,
        envelope.name,
        envelope.uri,
        envelope.cursor,
        envelope.request_id,
        envelope.protocol_version,
        envelope.task_id,
        envelope.reference_type,
        envelope.reference_name,
        envelope.reference_uri,
        envelope.progress_token,
        envelope.meta_protocol_version,
    ] {
        if let Some(lexeme) = read.map(text).filter(|lexeme| lexeme.starts_with('"')) {
            serde_json::from_str::<String>(lexeme).map_err(|_| ())?;
        }
    }
    if let Some(id) = envelope.id.map(text) {
        let digits = id.strip_prefix('-').unwrap_or(id);
        let is_integer = digits.chars().all(|c| c.is_ascii_digit()) && id != "-0";
        if !id.starts_with('"') && !is_integer {
            return Err(());
        }
    }
    envelope.kind = match (
        envelope.method,
        envelope.result,
        envelope.error,
        envelope.id,
    ) {
        (Some(_), None, None, Some(_)) => Kind::Request,
        (Some(_), None, None, None) => Kind::Notification,
        (None, Some(_), None, Some(_)) | (None, None, Some(_), _) => Kind::Response,
        _ => return Err(()),
    };
    if let Some(method) = envelope.method {
        if !text(method).starts_with('"') || text(method).contains('\\') {
            return Err(());
        }
        envelope.method = Some(Span {
            start: method.start + 1,
            end: method.end - 1,
        });
    }
    Ok(envelope)
}

//! What a client of an older revision must not get: content blocks its revision does not know
//! (mcp.md 3.1).
//!
//! A link to a resource becomes a text that names it, sound an embedded resource. Only what must
//! change does: members that a block had stay beside the new ones, for every revision allows more
//! members than it knows.
//! Never: takes a block away, or copies the data of one.

use crate::{
    http::Span,
    mcp::{
        blocks::{Block, BlockKind, blocks},
        edits::Edits,
        json::{self, elements_fast, pick, pick_pairs},
        reply_scan::ReplyScan,
        version::Version,
    },
};

/// The URI of an embedded resource that was sound. Nothing can be read by it.
const AUDIO_URI: &str = "shardgate://audio";

/// Fits the response to `method` to a client of revision `version`.
///
/// `edits` holds the other edits of the document already: the text of a link shows the URI as they
/// leave it.
pub fn fit_response(
    version: Version,
    method: &str,
    document: &[u8],
    scan: &ReplyScan,
    edits: &mut Edits,
) {
    let Some(result) = scan.result else { return };
    if version >= Version::V2025_06_18 {
        return;
    }
    let mut fit = Fit {
        version,
        document,
        others: edits,
        sorted: None,
        own: Vec::new(),
    };
    let [content, messages] = pick(document, result, ["content", "messages"]);
    match method {
        "tools/call" => fit.content(content),
        "prompts/get" => {
            for message in messages
                .into_iter()
                .flat_map(|at| elements_fast(document, at))
            {
                let [content] = pick(document, message, ["content"]);
                fit.content(content);
            }
        }
        _ => {}
    }
    for (span, bytes) in fit.own {
        edits.put(span, bytes);
    }
}

/// The blocks of one document being fitted.
struct Fit<'a> {
    version: Version,
    document: &'a [u8],
    others: &'a Edits,
    /// The others in order, once a link needs them.
    sorted: Option<Vec<(Span, &'a [u8])>>,
    own: Vec<(Span, Vec<u8>)>,
}

impl<'a> Fit<'a> {
    fn content(&mut self, content: Option<Span>) {
        for block in content.into_iter().flat_map(|at| blocks(self.document, at)) {
            match block.kind {
                BlockKind::Link => self.link(block),
                BlockKind::Audio if self.version < Version::V2025_03_26 => self.audio(block),
                _ => {}
            }
        }
    }

    /// `"type":"resource_link"` becomes `"type":"text","text":"…"`.
    fn link(&mut self, block: Block) {
        let keys = ["type", "title", "name", "text"];
        let [kind, title, name, text] = pick(self.document, block.at, keys);
        let (Some(kind), Some(uri_at)) = (kind, block.uri) else {
            return;
        };
        let shown = self.edited(uri_at).unwrap_or(uri_at.slice(self.document));
        let Some(uri) = json::unescape(shown) else {
            return;
        };
        let mut labels = [title, name].into_iter().flatten();
        let label = labels.find_map(|at| {
            let label = json::unescape(at.slice(self.document))?;
            (!label.is_empty()).then_some(label)
        });
        let mut said = Vec::new();
        match label {
            Some(label) => json::quote(&mut said, &format!("{label}: {uri}")),
            None => json::quote(&mut said, &uri),
        }
        match text {
            // A link that has one against all revisions must not get two.
            Some(text) => {
                self.own.push((kind, b"\"text\"".to_vec()));
                self.own.push((text, said));
            }
            None => self
                .own
                .push((kind, [b"\"text\",\"text\":", &*said].concat())),
        }
    }

    /// `"type":"audio","data":"…"` becomes `"type":"resource","resource":{…,"blob":"…"}`.
    fn audio(&mut self, block: Block) {
        let keys = ["type", "data", "mimeType", "resource"];
        let [kind, data, mime_type, resource] = pick_pairs(self.document, block.at, keys);
        let (Some((_, kind)), Some((data_key, data)), None) = (kind, data, resource) else {
            return;
        };
        let mut opening = br#""resource":{"uri":"#.to_vec();
        json::quote(&mut opening, AUDIO_URI);
        if let Some((_, at)) = mime_type {
            opening.extend_from_slice(b",\"mimeType\":");
            opening.extend_from_slice(at.slice(self.document));
        }
        opening.extend_from_slice(b",\"blob\":");
        let key_and_colon = Span {
            start: data_key.start,
            end: data.start,
        };
        let after = Span {
            start: data.end,
            end: data.end,
        };
        self.own.push((kind, b"\"resource\"".to_vec()));
        self.own.push((key_and_colon, opening));
        self.own.push((after, b"}".to_vec()));
    }

    /// What another edit puts in place of the value at `span`.
    fn edited(&mut self, span: Span) -> Option<&'a [u8]> {
        let others = self.others;
        let sorted = self
            .sorted
            .get_or_insert_with(|| others.sorted().into_vec());
        let at = sorted.partition_point(|(other, _)| other.start < span.start);
        let (other, bytes) = sorted.get(at)?;
        (*other == span).then_some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::reply_scan::scan_reply;

    fn fitted_with(version: Version, method: &str, document: &str, uri: Option<&str>) -> String {
        let bytes = document.as_bytes();
        let scan = scan_reply(bytes).unwrap();
        let mut edits = Edits::default();
        if let Some(uri) = uri {
            let [content] = pick(bytes, scan.result.unwrap(), ["content"]);
            for block in blocks(bytes, content.unwrap()) {
                edits.put_text(block.uri.unwrap(), uri);
            }
        }
        fit_response(version, method, bytes, &scan, &mut edits);
        let mut out = Vec::new();
        edits.apply(&mut out, bytes);
        String::from_utf8(out).unwrap()
    }

    fn fitted(version: Version, method: &str, content: &str) -> String {
        let before = if method == "prompts/get" {
            r#"{"id":1,"result":{"messages":[{"role":"user","content":"#
        } else {
            r#"{"id":1,"result":{"content":"#
        };
        let after = if method == "prompts/get" {
            "}]}}"
        } else {
            "}}"
        };
        let shown = fitted_with(version, method, &format!("{before}{content}{after}"), None);
        let shown = shown.strip_prefix(before).unwrap();
        shown.strip_suffix(after).unwrap().to_owned()
    }

    const LINK: &str =
        r#"[{"type":"text","text":"a"},{"uri":"x:1","name":"n\"","type":"resource_link"}]"#;
    const AUDIO: &str =
        r#"{"type":"audio", "data" : "AA==","mimeType":"audio/wav","annotations":{}}"#;

    #[test]
    fn links_are_told_in_words_before_2025_06_18() {
        let expected = r#"[{"type":"text","text":"a"},{"uri":"x:1","name":"n\"","type":"text","text":"n\": x:1"}]"#;
        for method in ["tools/call", "prompts/get"] {
            for version in [Version::V2024_11_05, Version::V2025_03_26] {
                assert_eq!(fitted(version, method, LINK), expected);
            }
            for version in [Version::V2025_06_18, Version::V2025_11_25] {
                assert_eq!(fitted(version, method, LINK), LINK);
            }
        }
        assert_eq!(fitted(Version::V2024_11_05, "resources/read", LINK), LINK);
        let titled = |members: &str| {
            let block = format!(r#"{{"type":"resource_link","uri":"x:1",{members}}}"#);
            let shown = fitted(Version::V2024_11_05, "tools/call", &block);
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(shown["type"], "text");
            shown["text"].as_str().unwrap().to_owned()
        };
        assert_eq!(titled(r#""name":"n","title":"T""#), "T: x:1");
        assert_eq!(titled(r#""name":"n","title":"""#), "n: x:1");
        assert_eq!(titled(r#""name":7"#), "x:1");
        assert_eq!(titled(r#""name":"n","text":"t""#), "n: x:1");
    }

    #[test]
    fn a_link_shows_the_uri_that_can_be_read() {
        let document =
            r#"{"id":1,"result":{"content":[{"type":"resource_link","uri":"x","name":"n"}]}}"#;
        let shown = fitted_with(Version::V2025_03_26, "tools/call", document, Some("b-x"));
        assert_eq!(
            shown,
            r#"{"id":1,"result":{"content":[{"type":"text","text":"n: b-x","uri":"b-x","name":"n"}]}}"#
        );
    }

    #[test]
    fn sound_is_embedded_before_2025_03_26() {
        assert_eq!(
            fitted(Version::V2024_11_05, "tools/call", AUDIO),
            concat!(
                r#"{"type":"resource", "resource":{"uri":"shardgate://audio","#,
                r#""mimeType":"audio/wav","blob":"AA=="},"mimeType":"audio/wav","annotations":{}}"#
            )
        );
        assert_eq!(fitted(Version::V2025_03_26, "tools/call", AUDIO), AUDIO);
        let bare = r#"[{"data":"AA==","type":"audio"}]"#;
        assert_eq!(
            fitted(Version::V2024_11_05, "prompts/get", bare),
            r#"[{"resource":{"uri":"shardgate://audio","blob":"AA=="},"type":"resource"}]"#
        );
    }

    #[test]
    fn what_is_malformed_stays() {
        for content in [
            "7",
            r#"{"type":"audio"}"#,
            r#"{"type":"audio","data":"AA==","resource":{}}"#,
            r#"{"type":"resource_link"}"#,
            r#"{"type":"resource_link","uri":7}"#,
            r#"[{"type":"text"},{"type":"image"},{"type":"resource"}]"#,
        ] {
            assert_eq!(fitted(Version::V2024_11_05, "tools/call", content), content);
        }
        let error = r#"{"id":1,"error":{"code":1}}"#;
        let shown = fitted_with(Version::V2024_11_05, "tools/call", error, None);
        assert_eq!(shown, error);
    }
}

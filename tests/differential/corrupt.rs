//! A server with one bad habit for each kind of message: what a walk must notice.

use std::sync::Arc;

use crate::{between, support::find};

/// What the server says, what is made of it (as long), and the step that has to notice.
pub(crate) const HABITS: [(&str, &str, &str); 8] = [
    (r#""Echo: h"#, r#""Echo: H"#, "echo "),
    (
        r#""priority":0.7"#,
        r#""priority":0.8"#,
        "get-annotated-message",
    ),
    (
        r#","structuredContent":{"temp"#,
        r#","StructuredContent":{"temp"#,
        "get-structured-content",
    ),
    (
        r#""progress":3,"total":4"#,
        r#""total":4,"progress":3"#,
        "trigger-long-running-operation",
    ),
    (
        r#""maxTokens":7"#,
        r#""maxTokens":8"#,
        "trigger-sampling-request",
    ),
    (
        r#"Prompt nonesuch not"#,
        r#"prompt nonesuch not"#,
        "no such prompt",
    ),
    (
        r#"{"uri":"demo://resource/static/document/features.md"}"#,
        r#"{"uri":"demo://resource/static/document/Features.md"}"#,
        "toggle-subscriber-updates",
    ),
    (r#""hasMore":false"#, r#""hasMore":null "#, "complete "),
];

/// Starts one in front of the server at this URL; it has its URL.
pub(crate) fn start(url: &str) -> String {
    between::stand(url, Arc::new(|_| {}), Arc::new(corrupt))
}

fn corrupt(bytes: &mut [u8]) {
    for (said, made, _) in HABITS {
        assert_eq!(said.len(), made.len(), "{said}");
        while let Some(at) = find(bytes, said.as_bytes()) {
            bytes[at..at + made.len()].copy_from_slice(made.as_bytes());
        }
    }
}

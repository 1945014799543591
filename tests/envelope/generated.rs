//! The scanners against a slow reader built on serde_json, over generated documents.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngSeed, TestRunner};
use serde_json::value::RawValue;
use shardgate::http::head::Span;
use shardgate::mcp::envelope::{EnvelopeFault, is_id, readable_id, scan};
use shardgate::mcp::json::{self, DEPTH_MAX};
use shardgate::mcp::reply_scan::scan_reply;

use super::documents::{broken_document, document, string_lexeme, value};
use super::slow_reader::{Pairs, depth_of, only, reference};

fn settings() -> ProptestConfig {
    ProptestConfig {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0x5eed),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn scan_agrees_with_a_slow_reader(body in document()) {
        let expected = reference(body.as_bytes(), DEPTH_MAX);
        prop_assert_eq!(scan(body.as_bytes(), DEPTH_MAX).map_err(|_| ()), expected);
    }

    #[test]
    fn scan_agrees_on_broken_documents(body in broken_document()) {
        let expected = reference(&body, DEPTH_MAX);
        prop_assert_eq!(scan(&body, DEPTH_MAX).map_err(|_| ()), expected);
    }

    #[test]
    fn the_grammar_is_the_grammar_of_serde_json(body in broken_document()) {
        let Ok(text) = std::str::from_utf8(&body) else { return Ok(()) };
        let start = json::skip_whitespace(&body, 0);
        let end = json::skip_value(&body, start, DEPTH_MAX);
        let is_whole = end.is_ok_and(|end| json::skip_whitespace(&body, end) == body.len());
        prop_assert_eq!(is_whole, serde_json::from_str::<&RawValue>(text).is_ok());
    }

    #[test]
    fn the_depth_bound_counts_containers(body in value(), depth_max in 0_u16..6) {
        prop_assume!(serde_json::from_str::<&RawValue>(&body).is_ok());
        let is_within = depth_of(&body) <= usize::from(depth_max);
        prop_assert_eq!(json::skip_value(body.as_bytes(), 0, depth_max).is_ok(), is_within);
    }

    #[test]
    fn both_skippers_end_valid_containers_at_the_same_byte(
        items in prop::collection::vec(value(), 0..8),
        before in 0_usize..70,
    ) {
        let body = format!("{}[{}]]]", " ".repeat(before), items.join(","));
        if let Ok(end) = json::skip_value(body.as_bytes(), before, DEPTH_MAX) {
            prop_assert_eq!(json::skip_container_fast(body.as_bytes(), before), Ok(end));
        }
    }

    #[test]
    fn replies_are_found_where_serde_json_finds_them(body in document()) {
        let Ok(pairs) = serde_json::from_str::<Pairs<'_>>(&body) else { return Ok(()) };
        let found = scan_reply(body.as_bytes());
        let names = ["id", "method", "params", "result", "error"];
        let spans = names.into_iter().map(|name| only(&body, &pairs, name));
        let Ok(spans) = spans.collect::<Result<Vec<_>, ()>>() else {
            prop_assert_eq!(found, Err(EnvelopeFault::DuplicateKey));
            return Ok(());
        };
        if let Ok(found) = found {
            let method = found.method.map(|span| Span { start: span.start - 1, end: span.end + 1 });
            prop_assert_eq!(vec![found.id, method, found.params, found.result, found.error], spans);
        } else {
            // What the strict scanner takes from clients, the lenient one takes from backends.
            prop_assert!(scan(body.as_bytes(), DEPTH_MAX).is_err());
        }
    }

    #[test]
    fn strings_decode_as_serde_json_decodes_them(lexeme in string_lexeme()) {
        let expected = serde_json::from_str::<String>(&lexeme).ok();
        let decoded = json::unescape(lexeme.as_bytes()).map(|text| text.into_owned());
        prop_assert_eq!(json::decodes(lexeme.as_bytes()), expected.is_some());
        prop_assert_eq!(decoded, expected);
    }

    #[test]
    fn quoted_text_decodes_to_itself(
        text in any::<String>(),
        control in "[\\x00-\\x1f\"\\\\]{0,40}",
    ) {
        for text in [text, control] {
            let mut quoted = Vec::new();
            json::quote(&mut quoted, &text);
            prop_assert_eq!(serde_json::from_slice::<String>(&quoted).ok(), Some(text.clone()));
            let decoded = json::unescape(&quoted).map(|text| text.into_owned());
            prop_assert_eq!(decoded, Some(text));
        }
    }

    #[test]
    fn no_bytes_make_the_readers_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = scan(&body, DEPTH_MAX);
        let _ = scan_reply(&body);
        let _ = readable_id(&body, DEPTH_MAX);
        let _ = is_id(&body);
        prop_assert!(json::skip_container_fast(&body, 0).unwrap_or(0) <= body.len());
    }
}

#[test]
fn the_generated_documents_meet_both_verdicts() {
    let mut runner = TestRunner::deterministic();
    let strategy = document();
    let (mut taken, mut refused, mut kinds) = (0, 0, Vec::new());
    for _ in 0..256 {
        let body = strategy.new_tree(&mut runner).expect("generates").current();
        match scan(body.as_bytes(), DEPTH_MAX) {
            Ok(envelope) => {
                taken += 1;
                if !kinds.contains(&envelope.kind) {
                    kinds.push(envelope.kind);
                }
            }
            Err(_) => refused += 1,
        }
    }
    assert!(
        taken > 50 && refused > 50,
        "{taken} taken, {refused} refused"
    );
    assert_eq!(kinds.len(), 3);
}

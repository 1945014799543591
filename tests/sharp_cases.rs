//! The sharp cases of MCP gateways (market.md C8), each as a gateway's client sees it. The tests of
//! case N are named `sN_...`.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/support.rs"]
mod support;

#[path = "sharp_cases/s10_asked_by_backends.rs"]
mod s10_asked_by_backends;
#[path = "sharp_cases/s10_get_stream.rs"]
mod s10_get_stream;
#[path = "sharp_cases/s10_resuming.rs"]
mod s10_resuming;
#[path = "sharp_cases/s11_cors.rs"]
mod s11_cors;
#[path = "sharp_cases/s12_modern_headers.rs"]
mod s12_modern_headers;
#[path = "sharp_cases/s1_pagination.rs"]
mod s1_pagination;
#[path = "sharp_cases/s2_duplicate_ids.rs"]
mod s2_duplicate_ids;
#[path = "sharp_cases/s3_session_status.rs"]
mod s3_session_status;
#[path = "sharp_cases/s4_upstream_session_lost.rs"]
mod s4_upstream_session_lost;
#[path = "sharp_cases/s5_sse_dialects.rs"]
mod s5_sse_dialects;
#[path = "sharp_cases/s6_encoded_bodies.rs"]
mod s6_encoded_bodies;
#[path = "sharp_cases/s7_byte_fidelity.rs"]
mod s7_byte_fidelity;
#[path = "sharp_cases/s8_slow_or_dead_backend.rs"]
mod s8_slow_or_dead_backend;
#[path = "sharp_cases/s9_cancellation.rs"]
mod s9_cancellation;

#[path = "sharp_cases/sse_script.rs"]
mod sse_script;

/// The text of the first content block of a call's result.
fn text_of(response: &support::Response) -> String {
    let result = response.result();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

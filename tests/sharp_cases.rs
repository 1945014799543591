//! The sharp cases of MCP gateways (market.md C8), each as a gateway's client sees it. The tests of
//! case N are named `sN_...`.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/support.rs"]
mod support;

#[path = "sharp_cases/s2_duplicate_ids.rs"]
mod s2_duplicate_ids;
#[path = "sharp_cases/s3_session_status.rs"]
mod s3_session_status;

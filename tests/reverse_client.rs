//! `shardgate reverse`, the real binary, between a gateway that the test plays and local servers of
//! every transport.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/certificates.rs"]
mod certificates;
// The small stdio server that this very binary is when it is started again.
#[path = "bridge/child.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod child;
#[path = "support/old.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod old;
#[path = "support/process.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod process;
#[path = "support/support.rs"]
mod support;
#[path = "support/tls.rs"]
mod tls;

#[path = "reverse_client/connecting.rs"]
mod connecting;
#[path = "reverse_client/endings.rs"]
mod endings;
#[path = "reverse_client/http.rs"]
mod http;
#[path = "reverse_client/limits.rs"]
mod limits;
#[path = "reverse_client/sse.rs"]
mod sse;
#[path = "reverse_client/stage.rs"]
mod stage;
#[path = "reverse_client/stdio.rs"]
mod stdio;
#[path = "reverse_client/whole.rs"]
mod whole;

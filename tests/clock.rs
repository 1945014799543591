//! Promise 20: wall clocks may jump. What lasts is measured by the monotonic clock, so no session
//! ends of a jump; tokens, which name moments of the wall clock, hold to the leeway and no further.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/support.rs"]
mod support;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use shards::clock::shift_wall;
use support::{Ask, Backend, Gateway, HOST, LAYOUTS, Layout, McpClient, Plan, eventually};

const DAY_S: i64 = 86_400;
/// What a token may be late or early (contextforge.md 2.2).
const LEEWAY_S: i64 = 60;
const SESSIONS: usize = 6;

/// The wall clock of this process, right again when dropped; one test has it at a time.
struct WallClock(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

impl WallClock {
    fn take() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        Self(ONE.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn jump(&self, by_s: i64) {
        shift_wall(by_s);
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        shift_wall(0);
    }
}

fn now_unix_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

/// A token that holds until this moment.
fn token(gateway: &Gateway, until_unix_s: i64) -> String {
    gateway.token_of("me", &json!({"exp": until_unix_s}))
}

/// Whether a token is taken, asked over a connection of its own.
fn is_taken(gateway: &Gateway, token: &str) -> bool {
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let ask = Ask::post(&format!("/servers/{HOST}/mcp"), ping)
        .header("authorization", &format!("Bearer {token}"));
    let response = gateway.connect().ask(&ask);
    match response.status {
        401 => false,
        // Only who is known is told that the session's id is missing.
        400 => true,
        other => panic!("{other}: {}", response.text()),
    }
}

/// Waits until all shards say so of a token: each gets some of that many connections.
fn until_taken(gateway: &Gateway, token: &str, wanted: bool) {
    eventually("all shards have seen the jump", || {
        (0..10 * gateway.shards)
            .all(|_| is_taken(gateway, token) == wanted)
            .then_some(())
    });
}

fn tool_text(message: &Value) -> &str {
    let text = message["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{message}"))
}

#[test]
fn no_session_ends_when_the_wall_clock_jumps_a_day_either_way() {
    let clock = WallClock::take();
    let is_long = std::env::var_os("SHARDGATE_TEST_LONG").is_some();
    let rounds = if is_long { 50 } else { 5 };
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).with_tokens().start();
        let now = now_unix_s();
        // One that holds whatever the clock says, and two that tell how it has jumped.
        let lasting = token(&gateway, now + 30 * DAY_S);
        let (brief, past) = (token(&gateway, now + 3600), token(&gateway, now - 3600));
        let mut clients: Vec<McpClient> = (0..SESSIONS)
            .map(|_| McpClient::open_on(&gateway, HOST, Some(&lasting)))
            .collect();
        let sessions = gateway.metric("shardgate_sessions");
        let mut calls = 0;
        for by_s in [DAY_S, 0, -DAY_S, 0].repeat(rounds) {
            clock.jump(by_s);
            until_taken(&gateway, &brief, by_s <= 0);
            until_taken(&gateway, &past, by_s < 0);
            for client in &mut clients {
                let message = client.call("1", "one", "{}").message();
                assert_eq!(tool_text(&message), "a one {}");
                calls += 1;
            }
        }
        assert_eq!(gateway.metric("shardgate_sessions"), sessions);
        assert_eq!(backend.seen_rpc("initialize").len(), SESSIONS);
        assert_eq!(gateway.metric("shardgate_panics_total"), 0);
        println!("{layout:?}: {calls} calls over {} jumps", 4 * rounds);
    }
}

#[test]
fn a_token_holds_to_the_leeway_and_no_further_wherever_the_clock_jumps() {
    let clock = WallClock::take();
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .layout(Layout::Two)
        .with_tokens()
        .start();
    // Real time goes on meanwhile: what must still hold has all but a second of the leeway left,
    // what must not hold any more is a second past it, and gets no better.
    for _ in 0..5 {
        let now = now_unix_s();
        let ending = token(&gateway, now + DAY_S);
        clock.jump(DAY_S + 1);
        until_taken(&gateway, &ending, true);
        clock.jump(DAY_S + LEEWAY_S + 1);
        until_taken(&gateway, &ending, false);
        // The cache remembers it as good, from a time that is over.
        clock.jump(0);
        until_taken(&gateway, &ending, true);
    }
    // One that has ended is good again while the clock is a day back, and not remembered so.
    let ended = token(&gateway, now_unix_s() - DAY_S / 2);
    clock.jump(0);
    until_taken(&gateway, &ended, false);
    clock.jump(-DAY_S);
    until_taken(&gateway, &ended, true);
    clock.jump(0);
    until_taken(&gateway, &ended, false);
}

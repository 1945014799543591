//! What makes a request one of the stateless revision, and that nothing else does (CLS-1 to CLS-5).
//! The table itself is tested in `src/mcp/classify/tests.rs`.

use std::time::Duration;

use serde_json::json;
use shardgate::mcp::version::{Version, VersionSet};

use crate::{
    TARGET, assert_no_session, assert_refused, assert_untouched,
    support::{
        Ask, Backend, LAYOUTS, Layout, McpClient, ModernClient, Plan, Response, STATELESS,
        eventually, initialize_body, modern_body, modern_request,
    },
    whole_result,
};

const OLD: &str = "2025-11-25";
/// All that is served, newest first.
const SERVED: [&str; 5] = [STATELESS, OLD, "2025-06-18", "2025-03-26", "2024-11-05"];

#[test]
fn sessions_of_every_revision_are_served_beside_it() {
    for layout in LAYOUTS {
        let backend = Backend::start("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        for version in &SERVED[1..] {
            let mut client = McpClient::open_with(&gateway, version, "{}");
            assert_eq!(client.version, *version);
            let response = client.list();
            assert_eq!(response.status, 200);
            let result = response.result();
            assert_eq!(result["tools"][0]["name"], "one");
            for new in ["resultType", "ttlMs", "cacheScope", "_meta"] {
                assert!(result.get(new).is_none(), "{version}: {result}");
            }
        }
    }
}

#[test]
fn header_and_body_make_a_request_stateless_and_leave_no_session() {
    for layout in LAYOUTS {
        let backend = Backend::modern("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        let mut client = ModernClient::new(&gateway);
        let result = whole_result(&client.list());
        assert_eq!(result["tools"][0]["name"], "one");
        assert_no_session(&gateway);
    }
}

#[test]
fn a_request_without_a_session_id_does_not_become_stateless() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut connection = gateway.connect();
    for (method, params) in [
        ("tools/list", "{}"),
        ("server/discover", "{}"),
        ("ping", "{}"),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        for ask in [
            Ask::post(TARGET, &body),
            Ask::post(TARGET, &body).header("mcp-protocol-version", OLD),
            // Its other headers do not make it one either.
            Ask::post(TARGET, &body).header("mcp-method", method),
        ] {
            let response = connection.ask(&ask);
            assert_eq!((response.status, response.error_code()), (400, -32000));
        }
    }
    assert_untouched(&backend);
    assert_eq!(gateway.metric("shardgate_stateless_requests_total"), 0);
}

/// A session id, be it somebody's or nobody's, is not looked at: the request runs where it came.
#[test]
fn a_session_id_on_a_stateless_request_is_ignored() {
    for layout in [Layout::One, Layout::Spread] {
        let backend = Backend::modern("a", &["one"]);
        let gateway = Plan::one(&backend).layout(layout).start();
        let live: Vec<String> = (0..8).map(|_| McpClient::open(&gateway).session).collect();
        let steered = || {
            ["shardgate_handed_over_total", "shardgate_forwarded_total"]
                .map(|name| gateway.metric(name))
        };
        let before = steered();
        let mut client = ModernClient::new(&gateway);
        let stale = ["no-such-session".to_owned(), format!("{}x", live[0])];
        for session in live.iter().chain(&stale) {
            let ask = client.request("7", "tools/list", "");
            let ask = ask.header("mcp-session-id", session);
            for response in [
                client.connection.ask(&ask),
                client.again().connection.ask(&ask),
            ] {
                whole_result(&response);
                assert_eq!(response.message()["id"], 7);
            }
            let ask = ask.with("mcp-method", "tools/call");
            assert_refused(&client.connection.ask(&ask), 400, Some("7"), -32020);
        }
        assert_eq!(steered(), before);
        let told = backend.seen();
        let has_session = |asked: &crate::support::Asked| asked.header("mcp-session-id").is_some();
        assert!(!told.iter().any(has_session));
    }
}

#[test]
fn a_session_that_only_stateless_requests_name_is_idle() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend)
        .shards(1)
        .settings(|settings| settings.timeouts.session_idle = Duration::from_millis(200))
        .start();
    let session = McpClient::open(&gateway).session;
    let mut client = ModernClient::new(&gateway);
    eventually("the session expires", || {
        let ask = client.request("1", "server/discover", "");
        client
            .connection
            .ask(&ask.header("mcp-session-id", &session));
        (gateway.metric("shardgate_sessions_expired_total") == 1).then_some(())
    });
}

/// The marks of one request: what its headers and its `_meta` say.
fn marked(headers: &[&str], meta: Option<&str>) -> Ask {
    let body = match meta {
        None => r#"{"jsonrpc":"2.0","id":"q","method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}}"#.to_owned(),
        Some(raw) => modern_body("\"q\"", "tools/list", "", "")
            .replace(&format!("\"{STATELESS}\""), raw),
    };
    let ask = Ask::post(TARGET, body).header("mcp-method", "tools/list");
    headers
        .iter()
        .fold(ask, |ask, value| ask.header("mcp-protocol-version", value))
}

fn refused(ask: &Ask, code: i64) -> serde_json::Value {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).shards(1).start();
    let session = McpClient::open(&gateway).session;
    let seen = backend.seen().len();
    let mut data = serde_json::Value::Null;
    // A live session changes nothing of it.
    for ask in [ask.clone(), ask.clone().header("mcp-session-id", &session)] {
        let response = gateway.connect().ask(&ask);
        data = assert_refused(&response, 400, Some("\"q\""), code);
    }
    assert_eq!(backend.seen().len(), seen);
    assert_eq!(gateway.metric("shardgate_stateless_requests_total"), 0);
    data
}

#[test]
fn the_header_alone_lacks_the_body() {
    let data = refused(&marked(&[STATELESS], None), -32602);
    let key = "io.modelcontextprotocol/protocolVersion";
    assert_eq!(data, json!({"missing": [key]}));
    for no_text in ["7", "null", "{}", "[]", "true"] {
        refused(&marked(&[STATELESS], Some(no_text)), -32602);
    }
}

#[test]
fn a_request_without_meta_or_params_lacks_the_body() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    for rest in ["", r#","params":{}"#, r#","params":{"_meta":{}}"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"tools/list"{rest}}}"#);
        let ask = Ask::post(TARGET, body)
            .header("mcp-method", "tools/list")
            .header("mcp-protocol-version", STATELESS);
        assert_refused(&gateway.connect().ask(&ask), 400, Some("0"), -32602);
    }
    let whole = modern_body("0", "tools/list", "", "");
    let capabilities = r#","io.modelcontextprotocol/clientCapabilities":{}"#;
    for (said, what) in [
        ("", "missing"),
        (
            r#","io.modelcontextprotocol/clientCapabilities":[]"#,
            "no object",
        ),
    ] {
        let ask = modern_request(TARGET, &whole.replace(capabilities, said));
        let response = gateway.connect().ask(&ask);
        let data = assert_refused(&response, 400, Some("0"), -32602);
        if what == "missing" {
            let key = "io.modelcontextprotocol/clientCapabilities";
            assert_eq!(data, json!({"missing": [key]}));
        }
    }
    assert_untouched(&backend);
}

#[test]
fn clients_that_do_not_say_who_they_are_are_served_and_those_that_say_it_badly_are_not() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    let mut ask = |key: &str, value: &str| {
        let meta = format!(r#""io.modelcontextprotocol/{key}":{value}"#);
        client.ask_with(&meta, "tools/list", "")
    };
    for good in [
        r#"{"name":"c","version":"1"}"#,
        r#"{"name":"c","version":"1","title":"C"}"#,
    ] {
        whole_result(&ask("clientInfo", good));
    }
    for bad in [
        "1",
        "[]",
        "{}",
        r#"{"name":"c"}"#,
        r#"{"name":"","version":"1"}"#,
    ] {
        assert_refused(&ask("clientInfo", bad), 400, Some("1"), -32602);
    }
    for good in ["debug", "emergency"] {
        whole_result(&ask("logLevel", &format!("\"{good}\"")));
    }
    for bad in ["\"loud\"", "\"INFO\"", "7", "null"] {
        assert_refused(&ask("logLevel", bad), 400, Some("1"), -32602);
    }
}

#[test]
fn the_body_alone_lacks_the_header() {
    refused(&marked(&[], Some(&format!("\"{STATELESS}\""))), -32020);
    refused(&marked(&[], Some("\"2099-01-01\"")), -32020);
}

#[test]
fn header_and_body_that_differ_are_refused() {
    let quoted = |version: &str| format!("\"{version}\"");
    for (header, body) in [
        (OLD, STATELESS),
        (STATELESS, OLD),
        (STATELESS, "2026-07-29"),
        ("2099-01-01", STATELESS),
        ("2026-07-28,2026-07-28", STATELESS),
    ] {
        refused(&marked(&[header], Some(&quoted(body))), -32020);
    }
}

#[test]
fn a_header_that_stands_twice_is_refused() {
    let body = format!("\"{STATELESS}\"");
    for headers in [[STATELESS, STATELESS], [STATELESS, OLD], [OLD, OLD]] {
        refused(&marked(&headers, Some(&body)), -32020);
    }
    refused(&marked(&[STATELESS, OLD], None), -32020);
    // A request of another revision says it in other words.
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let client = McpClient::open(&gateway);
    let twice = client
        .request(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#)
        .header("mcp-protocol-version", OLD);
    let response = gateway.connect().ask(&twice);
    assert_eq!((response.status, response.error_code()), (400, -32600));
}

fn unsupported(response: &Response, requested: &str, supported: &[&str]) {
    let data = assert_refused(response, 400, Some("\"q\""), -32022);
    assert_eq!(
        data,
        json!({"requested": requested, "supported": supported})
    );
}

#[test]
fn a_revision_that_is_not_served_is_answered_with_those_that_are() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    for version in ["2099-01-01", "2026-07-29", OLD, "draft"] {
        let ask = marked(&[version], Some(&format!("\"{version}\"")));
        let response = gateway.connect().ask(&ask);
        unsupported(&response, version, &SERVED);
    }
    // One that only the header names.
    let response = gateway.connect().ask(&marked(&["2099-01-01"], None));
    unsupported(&response, "2099-01-01", &SERVED);
    assert_untouched(&backend);
}

#[test]
fn a_profile_that_is_switched_off_is_not_served() {
    let backend = Backend::modern("a", &["one"]);
    let both = format!("\"{STATELESS}\"");
    let legacy_only = Plan::one(&backend)
        .settings(|settings| settings.protocols.stateless = false)
        .start();
    for ask in [
        marked(&[STATELESS], Some(&both)),
        marked(&[STATELESS], None),
        marked(&[], Some(&both)),
    ] {
        let response = legacy_only.connect().ask(&ask);
        unsupported(&response, STATELESS, &SERVED[1..]);
    }

    let stateless_only = Plan::one(&backend)
        .settings(|settings| settings.protocols.legacy = false)
        .start();
    let mut client = ModernClient::new(&stateless_only);
    let result = whole_result(&client.ask("1", "server/discover", ""));
    assert_eq!(result["supportedVersions"], json!([STATELESS]));
    for version in ["2099-01-01", OLD] {
        let ask = marked(&[version], Some(&format!("\"{version}\"")));
        unsupported(&stateless_only.connect().ask(&ask), version, &[STATELESS]);
    }
    let response = stateless_only
        .connect()
        .ask(&Ask::post(TARGET, initialize_body("\"q\"", OLD)));
    unsupported(&response, OLD, &[STATELESS]);
    let response = stateless_only.connect().ask(&marked(&[OLD], None));
    unsupported(&response, OLD, &[STATELESS]);
    assert_no_session(&stateless_only);
}

#[test]
fn only_the_listed_revisions_with_sessions_are_served() {
    let backend = Backend::modern("a", &["one"]);
    let listed = VersionSet::NONE
        .with(Version::V2025_06_18)
        .with(Version::V2025_03_26);
    let gateway = Plan::one(&backend)
        .settings(move |settings| settings.protocols.legacy_versions = listed)
        .start();
    let served = [STATELESS, "2025-06-18", "2025-03-26"];
    let mut client = ModernClient::new(&gateway);
    let result = whole_result(&client.ask("1", "server/discover", ""));
    assert_eq!(result["supportedVersions"], json!(served));
    for (asked, agreed) in [
        (OLD, "2025-06-18"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2024-11-05", "2025-06-18"),
    ] {
        let opening = gateway
            .connect()
            .ask(&Ask::post(TARGET, initialize_body("\"q\"", asked)));
        assert_eq!(opening.result()["protocolVersion"], agreed, "{asked}");
        let session = opening.header("mcp-session-id").unwrap();
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        for (version, status) in [(agreed, 200), (OLD, 400)] {
            let ask = Ask::post(TARGET, list)
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", version);
            let response = gateway.connect().ask(&ask);
            assert_eq!(response.status, status, "{asked} {version}");
            if status == 400 {
                let text = response.text();
                assert!(text.contains("versions: 2025-03-26, 2025-06-18)"), "{text}");
            }
        }
    }
    unsupported(&gateway.connect().ask(&marked(&[OLD], None)), OLD, &served);
}

/// What one request says, part by part.
#[derive(Debug, Clone, Copy)]
struct Said<'a> {
    token: Option<&'a str>,
    session: Option<&'a str>,
    versions: &'a [&'a str],
    meta: Option<&'a str>,
    method: &'a [&'a str],
    name: &'a [&'a str],
}

impl Said<'_> {
    fn ask(self) -> Ask {
        let body = modern_body("1", "tools/call", r#""name":"one""#, "");
        let body = match self.meta {
            Some(raw) => body.replace(&format!("\"{STATELESS}\""), raw),
            None => r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one"}}"#
                .to_owned(),
        };
        let own =
            |name: &'static str, value: Option<&str>| value.map(|value| (name, value.to_owned()));
        let token = self.token.map(|token| format!("Bearer {token}"));
        let all = own("authorization", token.as_deref())
            .into_iter()
            .chain(own("mcp-session-id", self.session))
            .chain(
                self.versions
                    .iter()
                    .filter_map(|one| own("mcp-protocol-version", Some(one))),
            )
            .chain(
                self.method
                    .iter()
                    .filter_map(|one| own("mcp-method", Some(one))),
            )
            .chain(
                self.name
                    .iter()
                    .filter_map(|one| own("mcp-name", Some(one))),
            );
        all.fold(Ask::post(TARGET, body), |ask, (name, value)| {
            ask.header(name, &value)
        })
    }
}

/// Every combination of what headers and body can say: a backend hears of a request when all of it
/// is right, in one profile or the other, and never before.
#[test]
fn a_backend_hears_nothing_of_a_request_that_is_not_right_in_every_part() {
    let backend = Backend::modern("a", &["one"]);
    let host = json!({"virtual_hosts": {"main": {"backends": {"a": {"name": "a", "url": backend.url()}}}}});
    let gateway = Plan::document(json!({"users": {"alice": host}}))
        .layout(Layout::One)
        .with_tokens()
        .start();
    let token = gateway.token("alice");
    let live = McpClient::open_on(&gateway, "main", Some(&token)).session;
    let stateless = format!("\"{STATELESS}\"");
    let old = format!("\"{OLD}\"");
    let mut connection = gateway.connect();
    let (mut calls, mut count) = (0, 0);
    for token in [None, Some("x.y.z"), Some(&*token)] {
        for session in [None, Some("stale"), Some(&*live)] {
            for versions in [
                &[][..],
                &[OLD],
                &[STATELESS],
                &["2099-01-01"],
                &[STATELESS, STATELESS],
            ] {
                for meta in [None, Some("7"), Some(&*old), Some(&*stateless)] {
                    for method in [
                        &[][..],
                        &["tools/call"],
                        &["tools/list"],
                        &["tools/call", "tools/call"],
                    ] {
                        for name in [&[][..], &["one"], &["two"], &["one", "one"]] {
                            let said = Said {
                                token,
                                session,
                                versions,
                                meta,
                                method,
                                name,
                            };
                            let may = token.is_some_and(|token| token.len() > 5);
                            let is_stateless = versions == [STATELESS] && meta == Some(&*stateless);
                            let is_right = match is_stateless {
                                true => method == ["tools/call"] && name == ["one"],
                                // Sessions do not know the other headers.
                                false => {
                                    meta.is_none()
                                        && session == Some(&*live)
                                        && matches!(versions, [] | [OLD])
                                }
                            };
                            let response = connection.ask(&said.ask());
                            calls += usize::from(may && is_right);
                            count += 1;
                            assert_eq!(backend.seen_rpc("tools/call").len(), calls, "{said:?}");
                            assert_eq!(response.status == 200, may && is_right, "{said:?}");
                        }
                    }
                }
            }
        }
    }
    assert_eq!((count, calls), (2880, 3 + 2 * 16));
}

/// Numbers and texts come back as they were written, 0 and the empty text too.
#[test]
fn ids_are_echoed_with_their_type() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = ModernClient::new(&gateway);
    let ids = [
        "0",
        "1",
        "-1",
        "9007199254740993",
        "\"\"",
        "\"0\"",
        "\"listen:0\"",
        r#""é""#,
    ];
    for id in ids {
        for response in [
            client.list_as(id),
            client.call(id, "one", "{}"),
            client.ask(id, "server/discover", ""),
            client.ask(id, "foo/bar", ""),
            client.call(id, "none", "{}"),
        ] {
            let raw = format!("\"id\":{id}");
            assert!(response.raw_message().contains(&raw), "{}", response.text());
        }
    }
    for bad in ["null", "1.5", "true", "{}", "[1]"] {
        let response = client.list_as(bad);
        assert_refused(&response, 400, None, -32600);
    }
}

impl ModernClient {
    fn list_as(&mut self, id: &str) -> Response {
        self.ask(id, "tools/list", "")
    }
}

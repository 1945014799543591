//! Headers that mirror arguments: how values are written, and that they must agree (HDR-2, HDR-3).
//! Every rule of the coding itself is in the unit tests of `src/mcp/mirror.rs`.

use crate::{
    assert_refused,
    support::{Ask, Backend, Gateway, Layout, ModernClient, Plan, Response},
    text_of,
};

const TOOL: &str = r#"{"name":"t","inputSchema":{"type":"object","properties":{
    "region":{"type":"string","x-mcp-header":"Region"},
    "n":{"type":"integer","x-mcp-header":"Count"},
    "on":{"type":"boolean","x-mcp-header":"On"},
    "deep":{"type":"object","properties":{"er":{"type":"string","x-mcp-header":"Deep-Er"}}},
    "free":{"type":"string"}}}}"#;

struct House {
    backend: Backend,
    gateway: Gateway,
}

impl House {
    fn new() -> Self {
        let backend = Backend::modern("a", &[TOOL]);
        let gateway = Plan::one(&backend).layout(Layout::One).start();
        Self { backend, gateway }
    }

    fn client(&self) -> ModernClient {
        ModernClient::new(&self.gateway)
    }

    fn ask(&self, arguments: &str, headers: &[(&str, &str)]) -> Response {
        let mut client = self.client();
        let ask = client.call_request("\"c\"", "t", arguments);
        let add = |ask: Ask, (name, value): &(&str, &str)| ask.header(name, value);
        let ask = headers.iter().fold(ask, add);
        client.connection.ask(&ask)
    }

    fn accepts(&self, arguments: &str, headers: &[(&str, &str)]) {
        let before = self.calls();
        text_of(&self.ask(arguments, headers));
        assert_eq!(self.calls(), before + 1);
    }

    /// Refused, and the backend is not asked.
    fn refuses(&self, arguments: &str, headers: &[(&str, &str)]) {
        let before = self.calls();
        let response = self.ask(arguments, headers);
        assert_refused(&response, 400, Some("\"c\""), -32020);
        assert_eq!(self.calls(), before, "{arguments} {headers:?}");
    }

    fn calls(&self) -> usize {
        self.backend.seen_rpc("tools/call").len()
    }
}

#[test]
fn values_travel_as_they_are_or_coded() {
    let house = House::new();
    let region = |text: &str, header: &str| {
        house.accepts(
            &format!(r#"{{"region":"{text}"}}"#),
            &[("Mcp-Param-Region", header)],
        );
    };
    region("us-west1", "us-west1");
    // Whoever codes what needs no coding says the same.
    region("us-west1", "=?base64?dXMtd2VzdDE=?=");
    region("Grüße", "=?base64?R3LDvMOfZQ==?=");
    region(" padded ", "=?base64?IHBhZGRlZCA=?=");
    region(r"a\nb", "=?base64?YQpi?=");
    region("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?=");
    // Without prefix and suffix it is a text like others.
    region("=?base64?SGVsbG8=", "=?base64?SGVsbG8=");
    region("SGVsbG8=?=", "SGVsbG8=?=");
    region("=?BASE64?YQ==?=", "=?BASE64?YQ==?=");
    region("", "");
    region("", "=?base64??=");
    region("blanks around", "  blanks around \t");
}

#[test]
fn what_is_coded_badly_is_refused() {
    let house = House::new();
    for bad in [
        "=?base64?YQ?=",
        "=?base64?YQ=?=",
        "=?base64?Y!==?=",
        "=?base64?_-8=?=",
        "=?base64?/w==?=",
        "=?base64? YQ==?=",
    ] {
        house.refuses(r#"{"region":"a"}"#, &[("Mcp-Param-Region", bad)]);
        let literal = format!(r#"{{"region":"{bad}"}}"#);
        house.refuses(&literal, &[("Mcp-Param-Region", bad)]);
    }
}

#[test]
fn what_is_there_is_mirrored_and_what_is_not_is_not() {
    let house = House::new();
    for arguments in [
        "{}",
        r#"{"region":null}"#,
        r#"{"deep":{}}"#,
        r#"{"deep":null,"n":null}"#,
    ] {
        house.accepts(arguments, &[]);
        for header in ["Mcp-Param-Region", "mcp-param-count", "MCP-PARAM-DEEP-ER"] {
            house.refuses(arguments, &[(header, "x")]);
        }
    }
    house.refuses(r#"{"region":"eu"}"#, &[]);
    house.refuses(r#"{"region":"eu","n":1}"#, &[("Mcp-Param-Region", "eu")]);
    house.accepts(
        r#"{"region":"eu","n":1,"on":true,"deep":{"er":"x"},"free":"y"}"#,
        &[
            ("mcp-param-region", "eu"),
            ("Mcp-Param-Count", "1"),
            ("MCP-Param-On", "true"),
            ("Mcp-Param-Deep-Er", "x"),
        ],
    );
    // Headers nobody asked for are nobody's business.
    house.accepts(
        "{}",
        &[
            ("Mcp-Param-Free", "y"),
            ("Mcp-Param-Other", "=?base64?bad?="),
        ],
    );
}

#[test]
fn values_are_compared_by_their_kind() {
    let house = House::new();
    for same in ["42", "042", "42.0"] {
        house.accepts(r#"{"n":42}"#, &[("Mcp-Param-Count", same)]);
    }
    house.accepts(r#"{"n":-7}"#, &[("Mcp-Param-Count", "-7")]);
    for other in ["43", "4.2e1", "0x2a", "", "42 42", "NaN", "fourty-two"] {
        house.refuses(r#"{"n":42}"#, &[("Mcp-Param-Count", other)]);
    }
    house.accepts(r#"{"on":false}"#, &[("Mcp-Param-On", "false")]);
    for other in ["true", "False", "0", ""] {
        house.refuses(r#"{"on":false}"#, &[("Mcp-Param-On", other)]);
    }
    for other in ["EU", "eu2", "\"eu\""] {
        house.refuses(r#"{"region":"eu"}"#, &[("Mcp-Param-Region", other)]);
    }
}

#[test]
fn a_header_that_stands_twice_is_refused() {
    let house = House::new();
    for second in ["eu", "us"] {
        house.refuses(
            r#"{"region":"eu"}"#,
            &[("Mcp-Param-Region", "eu"), ("mcp-param-region", second)],
        );
    }
    let mut client = house.client();
    for name in ["mcp-name", "mcp-method"] {
        let ask = client.call_request("1", "t", "{}");
        let value = if name == "mcp-name" {
            "t"
        } else {
            "tools/call"
        };
        let response = client.connection.ask(&ask.header(name, value));
        assert_refused(&response, 400, Some("1"), -32020);
    }
    assert_eq!(house.calls(), 0);
}

#[test]
fn methods_without_a_name_do_not_look_at_one() {
    let house = House::new();
    let mut client = house.client();
    let ask = client.request("1", "tools/list", "");
    let ask = ask
        .header("mcp-name", "anything")
        .header("mcp-param-region", "eu");
    assert_eq!(client.connection.ask(&ask).status, 200);
}

#[test]
fn a_call_that_names_nothing_is_refused_for_that() {
    let house = House::new();
    let mut client = house.client();
    for params in [
        r#""arguments":{}"#,
        r#""name":7"#,
        r#""name":null"#,
        r#""name":"t","arguments":[]"#,
    ] {
        let response = client.ask("1", "tools/call", params);
        assert_refused(&response, 400, Some("1"), -32602);
    }
    let response = client.ask("1", "resources/read", "");
    assert_refused(&response, 400, Some("1"), -32602);
    assert_eq!(house.calls(), 0);
}

/// The backend gets headers that were made from the body it gets, whatever came in.
#[test]
fn the_next_hop_gets_headers_of_its_own() {
    let house = House::new();
    house.accepts(
        r#"{"region":"us-west1","n":42,"deep":{"er":" é"}}"#,
        &[
            ("Mcp-Param-Region", "=?base64?dXMtd2VzdDE=?="),
            ("Mcp-Param-Count", "042"),
            ("Mcp-Param-Deep-Er", "=?base64?IMOp?="),
            ("Mcp-Param-Other", "smuggled"),
        ],
    );
    let seen = house.backend.seen_rpc("tools/call").remove(0);
    assert_eq!(seen.header("mcp-param-region"), Some("us-west1"));
    assert_eq!(seen.header("mcp-param-count"), Some("42"));
    assert_eq!(seen.header("mcp-param-deep-er"), Some("=?base64?IMOp?="));
    assert_eq!(seen.header("mcp-param-other"), None);
    assert_eq!(seen.header("mcp-method"), Some("tools/call"));
    assert_eq!(seen.header("mcp-name"), Some("t"));
}

/// A backend whose tools have changed refuses headers of old marks: its list is read once more and
/// the call made once more (mcp.md 2.2).
#[test]
fn marks_that_have_changed_are_read_again() {
    let backend = Backend::modern_scripted("a", &["t"], |asked, wire| {
        let is_lacking = asked.tool().is_some() && asked.header("mcp-param-region").is_none();
        is_lacking.then(|| wire.refuse(asked, 400, -32020, "null"))
    });
    let gateway = Plan::one(&backend).layout(Layout::One).start();
    // A client with a session mirrors nothing; the gateway does it for it.
    let mut client = crate::support::McpClient::open(&gateway);
    let arguments = r#"{"region":"eu"}"#;
    assert_eq!(client.call("1", "t", arguments).error_code(), -32603);
    backend.set_pages(&[&[TOOL]]);
    let result = client.call("2", "t", arguments).result();
    assert_eq!(result["content"][0]["text"], r#"a t {"region":"eu"}"#);
    let calls = backend.seen_rpc("tools/call");
    let told: Vec<Option<&str>> = calls
        .iter()
        .map(|call| call.header("mcp-param-region"))
        .collect();
    assert_eq!(told.last(), Some(&Some("eu")));
    assert!(calls.len() <= 4, "{}", calls.len());
}

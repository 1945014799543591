//! S12: the headers of a stateless request say what its body says, or it is refused and goes
//! nowhere.

use crate::{
    support::{Ask, Backend, Gateway, LAYOUTS, Layout, ModernClient, Plan, Response},
    text_of,
};

struct House {
    backend: Backend,
    gateway: Gateway,
}

impl House {
    fn new(layout: Layout) -> Self {
        let backend = Backend::modern("a", &["été", "y", "=?BASE64?w6l0w6k=?=", "base64?w6l0w6k="]);
        let gateway = Plan::one(&backend).layout(layout).start();
        Self { backend, gateway }
    }

    /// A call of this tool; `change` makes its headers say something else.
    fn call(&self, tool: &str, change: impl FnOnce(Ask) -> Ask) -> Response {
        let mut client = ModernClient::new(&self.gateway);
        let ask = client.call_request("12", tool, "{}");
        client.connection.ask(&change(ask))
    }

    fn refuses(&self, tool: &str, code: i64, change: impl FnOnce(Ask) -> Ask) -> Response {
        let before = self.backend.seen_rpc("tools/call").len();
        let response = self.call(tool, change);
        assert_eq!(response.status, 400, "{}", response.text());
        assert_eq!(response.error_code(), code);
        assert_eq!(response.message()["id"], 12);
        assert_eq!(self.backend.seen_rpc("tools/call").len(), before);
        response
    }
}

#[test]
fn s12_a_coded_name_says_its_name() {
    for layout in LAYOUTS {
        let house = House::new(layout);
        let response = house.call("été", |ask| ask.with("mcp-name", "=?base64?w6l0w6k=?="));
        assert_eq!(response.status, 200);
        assert_eq!(text_of(&response), "a été {}");
        let told = house.backend.seen_rpc("tools/call").remove(0);
        assert_eq!(told.header("mcp-name"), Some("=?base64?w6l0w6k=?="));
    }
}

#[test]
fn s12_headers_that_say_something_else_are_refused() {
    for layout in LAYOUTS {
        let house = House::new(layout);
        for name in ["x", "Y", "", "y,y", "=?base64?eA==?="] {
            house.refuses("y", -32020, |ask| ask.with("mcp-name", name));
        }
        for method in [
            "Tools/Call",
            "tools/list",
            "",
            "=?base64?dG9vbHMvY2FsbA==?=",
        ] {
            house.refuses("y", -32020, |ask| ask.with("mcp-method", method));
        }
        house.refuses("y", -32020, |ask| ask.without("mcp-name"));
        house.refuses("y", -32020, |ask| ask.without("mcp-method"));
        house.refuses("y", -32020, |ask| ask.header("mcp-name", "y"));
        house.refuses("y", -32020, |ask| ask.header("mcp-method", "tools/call"));
    }
}

#[test]
fn s12_only_the_exact_marks_make_a_coded_value() {
    let house = House::new(Layout::Two);
    house.refuses("été", -32020, |ask| {
        ask.with("mcp-name", "=?BASE64?w6l0w6k=?=")
    });
    for bad in [
        "=?base64?w6l0w6k?=",
        "=?base64?w6l0w6k==?=",
        "=?base64?w6l0w6k=",
        "=?base64?w6l0w6k*?=",
        "w6l0w6k=",
    ] {
        house.refuses("été", -32020, |ask| ask.with("mcp-name", bad));
    }
    // What only looks like it is a name like others.
    for literal in ["=?BASE64?w6l0w6k=?=", "base64?w6l0w6k="] {
        let response = house.call(literal, |ask| ask);
        assert_eq!(text_of(&response), format!("a {literal} {{}}"));
    }
}

#[test]
fn s12_revisions_must_agree_and_be_served() {
    let house = House::new(Layout::Two);
    let version = "mcp-protocol-version";
    for other in ["2025-11-25", "2099-01-01"] {
        house.refuses("y", -32020, |ask| ask.with(version, other));
    }
    house.refuses("y", -32020, |ask| ask.without(version));
    let unknown = house.refuses("y", -32022, |ask| {
        let body = String::from_utf8(ask.body.clone().unwrap()).unwrap();
        let body = body.replace("2026-07-28", "2099-01-01").into_bytes();
        Ask {
            body: Some(body),
            ..ask.with(version, "2099-01-01")
        }
    });
    let data = &unknown.message()["error"]["data"];
    assert_eq!(data["requested"], "2099-01-01");
    let supported = data["supported"].as_array().unwrap();
    assert_eq!(supported[0], "2026-07-28");
    // The same list as `server/discover` has.
    let mut client = ModernClient::new(&house.gateway);
    let discovered = client.ask("1", "server/discover", "").result();
    assert_eq!(discovered["supportedVersions"].as_array(), Some(supported));
}

//! Where clients without a token learn where to get one (RFC 9728).

use serde_json::json;

use crate::support::{Ask, Backend, Gateway, McpClient, Plan};

const PUBLIC: &str = "https://gateway.example";
const ISSUERS: [&str; 2] = ["https://issuer.example/realms/a", "https://other.example"];

fn gateway(backend: &Backend) -> Gateway {
    Plan::one(backend)
        .with_tokens()
        .settings(|settings| {
            settings.access.public_url = Some(PUBLIC.to_owned());
            settings.access.authorization_servers = ISSUERS.map(str::to_owned).to_vec();
        })
        .start()
}

#[test]
fn a_401_points_to_the_document_of_its_endpoint() {
    let backend = Backend::start("a", &["one"]);
    let gateway = gateway(&backend);
    for path in [
        "/mcp",
        "/servers/main/mcp",
        "/contextforge-rs/servers/no-such/mcp",
    ] {
        let url = format!("{PUBLIC}/.well-known/oauth-protected-resource{path}");
        let ask = McpClient::initialize(path);
        let answer = gateway.connect().ask(&ask);
        assert_eq!(answer.status, 401);
        let expected = format!("Bearer resource_metadata=\"{url}\"");
        assert_eq!(answer.header("www-authenticate"), Some(&*expected));
        let answer = gateway
            .connect()
            .ask(&ask.header("authorization", "Bearer x.y.z"));
        assert_eq!(answer.status, 401);
        let expected = format!("Bearer error=\"invalid_token\", resource_metadata=\"{url}\"");
        assert_eq!(answer.header("www-authenticate"), Some(&*expected));

        // What it points to is there for everyone, pages of any origin included.
        let ask = Ask::new("GET", url.strip_prefix(PUBLIC).unwrap())
            .header("origin", "https://somewhere.example");
        let answer = gateway.connect().ask(&ask);
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let expected = json!({
            "resource": format!("{PUBLIC}{path}"),
            "authorization_servers": ISSUERS,
            "bearer_methods_supported": ["header"],
            "resource_name": "shardgate",
        });
        assert_eq!(answer.json(), expected);
    }
    let token = gateway.token("someone");
    let mut client = McpClient::open_on(&gateway, "main", Some(&token));
    assert_eq!(client.tool_names(), ["one"]);
}

#[test]
fn the_root_has_a_document_and_pages_may_ask_before_they_ask() {
    let backend = Backend::start("a", &["one"]);
    let gateway = gateway(&backend);
    let path = "/.well-known/oauth-protected-resource";
    let answer = gateway.connect().ask(&Ask::new("GET", path));
    assert_eq!(answer.json()["resource"], PUBLIC);
    let preflight = Ask::new("OPTIONS", path)
        .header("origin", "https://somewhere.example")
        .header("access-control-request-method", "GET");
    let answer = gateway.connect().ask(&preflight);
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    let answer = gateway.connect().ask(&Ask::new("HEAD", path));
    assert_eq!((answer.status, answer.body.len()), (200, 0));
    assert_eq!(gateway.connect().ask(&Ask::post(path, "{}")).status, 405);
}

#[test]
fn nothing_else_is_well_known() {
    let backend = Backend::start("a", &["one"]);
    let paths = [
        "/.well-known/oauth-protected-resource/nowhere",
        "/.well-known/oauth-protected-resource/servers/a/b/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration/mcp",
        "/mcp/.well-known/openid-configuration",
        "/servers/main/mcp/.well-known/openid-configuration",
    ];
    let with = gateway(&backend);
    let without = Plan::one(&backend).with_tokens().start();
    for gateway in [&with, &without] {
        for path in paths {
            let answer = gateway.connect().ask(&Ask::new("GET", path));
            assert_eq!((answer.status, answer.body.len()), (404, 0), "{path}");
        }
    }
    let path = "/.well-known/oauth-protected-resource/mcp";
    assert_eq!(without.connect().ask(&Ask::new("GET", path)).status, 404);
    let answer = without.connect().ask(&McpClient::initialize("/mcp"));
    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
}

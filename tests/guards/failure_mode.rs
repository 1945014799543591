//! What happens when some backends fail, said by each virtual host for itself.

use serde_json::{Value, json};
use shardgate::settings::FailMode;

use crate::support::{Backend, McpClient, Plan, Refusing};

fn hosts(backends: &Value) -> Plan {
    let host = |mode: Value| json!({"backends": backends, "failure_mode": mode});
    Plan::document(json!({"virtual_hosts": {
        "lenient": host(json!("open")),
        "strict": host(json!("closed")),
        "usual": {"backends": backends},
    }}))
}

#[test]
fn a_virtual_host_decides_for_itself_and_the_setting_for_the_rest() {
    let a = Backend::start("a", &["one"]);
    let gone = Refusing::new();
    let backends = json!({"a": {"url": a.url()}, "b": {"url": gone.url()}});
    for (setting, is_usual_strict) in [(FailMode::Open, false), (FailMode::Closed, true)] {
        let gateway = hosts(&backends)
            .settings(move |settings| settings.upstream.fail_mode = setting)
            .start();
        for (host, is_strict) in [
            ("lenient", false),
            ("strict", true),
            ("usual", is_usual_strict),
        ] {
            let ask = McpClient::initialize(&format!("/servers/{host}/mcp"));
            let response = gateway.connect().ask(&ask);
            assert_eq!(response.status, 200);
            let has_failed = response.message()["error"]["code"] == -32603;
            assert_eq!(has_failed, is_strict, "{host} with {setting:?}");
        }
    }
}

#[test]
fn a_list_is_refused_by_a_strict_virtual_host_only() {
    let a = Backend::start("a", &["one"]);
    let b = Backend::start("b", &["two"]);
    let gateway = hosts(&json!({"a": {"url": a.url()}, "b": {"url": b.url()}})).start();
    let [mut lenient, mut strict] =
        ["lenient", "strict"].map(|host| McpClient::open_on(&gateway, host, None));
    drop(b);
    assert_eq!(lenient.tool_names(), ["a-one"]);
    assert_eq!(strict.list().error_code(), -32603);
}

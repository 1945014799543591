//! A configuration that cannot be used changes nothing and tells nobody (RLD-1).

use crate::{
    process::{Folder, Process},
    support::{Backend, ModernClient, eventually},
};

fn document(backend: &Backend, allowed: &str) -> String {
    format!(
        r#"{{"virtual_hosts":{{"default":{{"backends":{{"a":{{"name":"a","url":"{}","allowed_tool_names":{allowed}}}}}}}}}}}"#,
        backend.url()
    )
}

#[test]
fn a_bad_configuration_keeps_the_last_good_one_and_listeners_hear_nothing() {
    let backend = Backend::modern("a", &["one", "two", "three"]);
    let home = Folder::new();
    let file = home.write("users.json", &document(&backend, r#"["one"]"#));
    let arguments = [
        "--config-file",
        &file,
        "--allow-anonymous",
        "--upstream-connection-mode",
        "plain-text-or-tls",
    ];
    let mut process = Process::serve(&home, &arguments);
    let mut client = ModernClient::at(process.address(), "/mcp", None);
    assert_eq!(client.tool_names(), ["one"]);
    let mut stream = client.listen("\"l\"", r#"{"toolsListChanged":true}"#);
    assert_eq!(
        stream.next_message()["method"],
        "notifications/subscriptions/acknowledged"
    );

    let stays = |count: usize| {
        eventually("that is logged", || {
            let found = process.stderr().matches("stay as they were").count();
            (found >= count).then_some(())
        });
    };
    home.write("users.json", "{\"virtual_hosts\": oh no");
    stays(1);
    assert_eq!(client.tool_names(), ["one"]);
    home.write(
        "users.json",
        r#"{"virtual_hosts":{"default":{"backends":7}}}"#,
    );
    stays(2);
    assert_eq!(client.tool_names(), ["one"]);
    // Nor is it news for a listener that another virtual host has come.
    let same = document(&backend, r#"["one"]"#);
    let other = r#"{"virtual_hosts":{"other":{"backends":{}},"#;
    home.write("users.json", &same.replace(r#"{"virtual_hosts":{"#, other));
    let mut elsewhere = ModernClient::at(process.address(), "/servers/other/mcp", None);
    eventually("the other virtual host", || {
        (elsewhere.list().text().contains("-32601")).then_some(())
    });
    assert_eq!(client.tool_names(), ["one"]);

    for tool in ["two", "three"] {
        home.write("users.json", &document(&backend, &format!("[\"{tool}\"]")));
        assert_eq!(
            stream.next_message()["method"],
            "notifications/tools/list_changed"
        );
        // What is heard is true by then.
        eventually("the new list", || {
            (client.tool_names() == [tool]).then_some(())
        });
    }
    process.signal("TERM");
    let rest = stream.rest();
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert!(rest[0].contains(r#""id":"l","result""#), "{rest:?}");
    assert_eq!(process.exit_code(), 0);
}

//! All that the FastMCP server of the tests can do.

use crate::walk::{Part, Walker};

/// The one part.
pub(crate) const PARTS: &[Part] = &[all];

fn all(walker: &mut Walker) {
    walker.greeting();
    walker.step("tools/list", "tools/list", "", &[]);
    for _ in 0..3 {
        walker.call("increment", "{}", &[]);
    }
    walker.call(
        "echo",
        r#"{"text":"h\u00e9llo \ud83d\ude00 \\ \" / <&>"}"#,
        &[],
    );
    walker.call("add", r#"{"a":2,"b":-40}"#, &[]);
    walker.call("add", r#"{"a":"two"}"#, &[]);
    walker.call("links", "{}", &[]);
    walker.step("resources/list", "resources/list", "", &[]);
    walker.read("note://fixed");
    walker.read("ui://panel/main");
    walker.step("templates", "resources/templates/list", "", &[]);
    walker.used.push("template note://by/{author}".to_owned());
    walker.read("note://by/n%C3%B6body");
    walker.read("note://nonesuch/a/b");
    walker.step("prompts/list", "prompts/list", "", &[]);
    walker.prompt("greet", r#"{"name":"Z\u00fcrich"}"#);
    walker.prompt("greet", "{}");
    walker.prompt("nonesuch", "");
    walker.complete(
        r#"{"type":"ref/prompt","name":"greet"}"#,
        r#"{"name":"name","value":"Z"}"#,
        "",
    );
    walker.step("level", "logging/setLevel", r#"{"level":"debug"}"#, &[]);
    walker.step(
        "no such tool",
        "tools/call",
        r#"{"name":"nonesuch","arguments":{}}"#,
        &[],
    );
    walker.step("no such method", "nonesuch/method", "{}", &[]);
    walker.step("ping", "ping", "", &[]);
}

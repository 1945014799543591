//! The whole debug flow, as the real CLI and the real plugin server exchange it: bind, list by
//! metadata, invoke with a stream, an unknown plugin, hot reload, parallel calls, a second CLI with
//! the same key, revoke.

use serde_json::{Value, json};

use crate::{
    stage::{Client, Node, SHARDS, Session, chunk, end, lines, token_of},
    support::eventually,
};

const SOURCE: &str = "debug:tmbId:tmb_1";

/// The metadata of the CLI: one plugin of this description.
fn metadata(description: &str) -> Value {
    json!({"pluginDebug": {"targets": [{
        "source": SOURCE, "pluginId": "getTime", "version": "1.0.0", "name": {"en": "getTime"},
        "description": {"en": description}, "toolDescription": "td", "tags": ["tools"],
        "permissions": [], "secretSchema": null, "isToolSet": false, "tools": [],
    }]}})
}

/// The plugin server's request to run a plugin; an invocation id may be left out.
fn run(session: &Session, plugin: &str, invocation_id: Option<&str>) -> Value {
    let mut envelope = session.envelope(
        "request",
        "r",
        json!({
            "kind": "plugin-debug.run", "eventName": "run",
            "payload": {
                "input": {}, "secrets": {}, "childId": "", "pluginId": plugin, "source": SOURCE,
                "systemVar": {"app": {"id": "a", "name": "b"}, "chat": {"chatId": "c", "uid": "u"},
                    "invokeToken": "t", "time": "now"},
            },
        }),
    );
    match invocation_id {
        Some(id) => envelope["requestId"] = id.into(),
        None => {
            envelope.as_object_mut().unwrap().remove("requestId");
        }
    }
    json!({"timeoutMs": 120_000, "envelope": envelope})
}

/// What the CLI does with one request (contract 7.5).
fn serve(client: &mut Client, session: &Session, value: &str) {
    let request = client.envelope();
    let request_id = request["requestId"].as_str().unwrap();
    let run = &request["payload"]["payload"];
    // The CLI needs all of these.
    assert!(run["input"].is_object() && run["systemVar"]["chat"]["chatId"].is_string());
    let mut say = |kind: &str, payload: Value| {
        client.send_envelope(session.envelope(kind, request_id, payload));
    };
    if run["pluginId"] != "getTime" {
        let message = format!(
            "Gateway debug target not found: {SOURCE} {}",
            run["pluginId"].as_str().unwrap()
        );
        say(
            "stream",
            json!({"kind": "plugin-debug.stream", "event": "error", "message": message}),
        );
        return;
    }
    say("response", json!({"kind": "plugin-debug.accepted"}));
    say(
        "stream",
        chunk(json!({"type": "stream", "data": {"type": "answer", "content": "hé"}})),
    );
    say(
        "stream",
        chunk(json!({"type": "response", "data": {"value": value}})),
    );
    say("stream", end());
}

/// What the plugin server makes of a stream (contract 7.6): its data, or the failure's text.
fn outcome(lines: &[Value]) -> Result<Vec<Value>, String> {
    let mut data = Vec::new();
    for line in lines {
        let payload = &line["payload"];
        match (line["type"].as_str().unwrap(), payload["event"].as_str()) {
            ("stream", Some("chunk")) => data.push(payload["data"].clone()),
            ("stream", Some("error")) => return Err(payload["message"].as_str().unwrap().into()),
            _ => {}
        }
    }
    Ok(data)
}

#[test]
fn the_whole_debug_flow() {
    for shards in SHARDS {
        let node = Node::start(shards);
        // Nobody is there: the plugin server shows the source as not connected.
        assert_eq!(node.by_source(SOURCE).status, 404);
        let mut client = node.client();
        let session = client.bind(&token_of("tmb_1"), &metadata("one"));
        let view = node.by_source(SOURCE).json()["data"].take();
        let targets = &view["session"]["metadata"]["pluginDebug"]["targets"];
        assert_eq!(targets[0]["pluginId"], "getTime");
        assert_eq!(
            (&view["ownerAlive"], &view["mailboxLag"]),
            (&json!(true), &json!(0))
        );

        let wanted = |value: &str| {
            vec![
                json!({"type": "stream", "data": {"type": "answer", "content": "hé"}}),
                json!({"type": "response", "data": {"value": value}}),
            ]
        };
        for invocation_id in [Some("inv-1"), None] {
            let mut caller =
                node.open_stream(session.id(), &run(&session, "getTime", invocation_id));
            serve(&mut client, &session, "one");
            let lines = lines(&mut caller);
            assert_eq!(lines[0]["payload"]["kind"], "plugin-debug.accepted");
            assert_eq!(outcome(&lines), Ok(wanted("one")));
        }
        let mut caller = node.open_stream(session.id(), &run(&session, "nope", Some("inv-2")));
        serve(&mut client, &session, "one");
        let unknown = format!("Gateway debug target not found: {SOURCE} nope");
        assert_eq!(outcome(&lines(&mut caller)), Err(unknown));

        // Hot reload.
        client.send(json!({"type": "metadata", "metadata": metadata("two")}));
        client.is_served();
        let view = node.by_source(SOURCE).json()["data"].take();
        let targets = &view["session"]["metadata"]["pluginDebug"]["targets"];
        assert_eq!(targets[0]["description"]["en"], "two");
        let mut callers: Vec<_> = (0..10)
            .map(|number| {
                let id = format!("par-{number}");
                node.open_stream(session.id(), &run(&session, "getTime", Some(&id)))
            })
            .collect();
        for _ in 0..10 {
            serve(&mut client, &session, "two");
        }
        for caller in &mut callers {
            assert_eq!(outcome(&lines(caller)), Ok(wanted("two")));
        }

        // A new exchange of the key: whoever holds the source is deleted, then the next one binds.
        assert_eq!(node.delete(session.id()).status, 200);
        client.ends_with(None);
        let (mut second, second_session) = eventually("the second CLI is bound", || {
            let mut second = node.client();
            second.send_bind(&token_of("tmb_1"), &metadata("three"));
            let mut message = second.message();
            (message["type"] == "bound").then(|| (second, Session(message["session"].take())))
        });
        assert_ne!(second_session.id(), session.id());
        second.is_served();

        // Revoke: the source is looked up, and its session deleted.
        let found = node.by_source(SOURCE).json()["data"]["session"]["id"].take();
        assert_eq!(node.delete(found.as_str().unwrap()).status, 200);
        second.ends_with(None);
        eventually("nobody is shown", || {
            (node.by_source(SOURCE).status == 404).then_some(())
        });
    }
}

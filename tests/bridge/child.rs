//! A small stdio MCP server: this very test binary, started again with a variable set.
//!
//! What the test harness prints around it is no message, as with servers that greet on their
//! standard output.

use std::{
    io::{BufRead, Write},
    process::Command,
};

use serde_json::{Value, json};

/// Set in the child alone; its value is what the tool `env` gives back.
const MARK: &str = "SHARDGATE_TEST_CHILD";

/// An entry of a client's server list that starts it, with more members.
pub(crate) fn entry(more: Value) -> Value {
    let mut entry = json!({
        "command": std::env::current_exe().unwrap(),
        "args": ["--exact", "child::as_a_server", "--nocapture", "--test-threads", "1"],
        "env": {MARK: "from the configuration"},
    });
    let members = entry.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    entry
}

/// A document with these servers, keys and more members of each.
pub(crate) fn document(servers: &[(&str, Value)]) -> Value {
    let servers: serde_json::Map<String, Value> = servers
        .iter()
        .map(|(key, more)| ((*key).to_owned(), entry(more.clone())))
        .collect();
    json!({"mcpServers": servers})
}

#[test]
fn as_a_server() {
    // A test without the variable: nothing to do.
    if std::env::var_os(MARK).is_some() {
        serve();
    }
}

fn say(message: &Value) {
    let mut out = std::io::stdout().lock();
    // Whoever started it may be gone.
    if writeln!(out, "{message}")
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(0);
    }
}

fn serve() {
    // Ends the line that the harness has begun.
    say(&json!("hello"));
    eprintln!("child {} is up", std::process::id());
    let mut state = State::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        state.take(&serde_json::from_str(&line).unwrap());
    }
    if state.is_stubborn {
        loop {
            std::thread::park();
        }
    }
    std::process::exit(0);
}

#[derive(Default)]
struct State {
    is_stubborn: bool,
    initialize_count: u32,
    initialized_count: u32,
    /// Id and token of a call that waits for the client's answer.
    asking: Option<Value>,
    /// A call that is answered only when it is cancelled.
    held: Option<Value>,
}

impl State {
    fn take(&mut self, message: &Value) {
        let id = &message["id"];
        match message["method"].as_str() {
            Some("initialize") => {
                self.initialize_count += 1;
                result(
                    id,
                    json!({
                        "protocolVersion": message["params"]["protocolVersion"],
                        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
                        "serverInfo": {"name": "child", "version": "1"},
                    }),
                );
            }
            Some("notifications/initialized") => self.initialized_count += 1,
            Some("notifications/cancelled") => {
                if self.held.as_ref() == Some(&message["params"]["requestId"]) {
                    text(&self.held.take().unwrap(), "cancelled");
                }
            }
            Some("tools/list") => result(
                id,
                json!({"tools": [
                    {"name": "echo", "inputSchema": {"type": "object"}},
                    {"name": "pid", "inputSchema": {"type": "object"}},
                ]}),
            ),
            Some("tools/call") => self.call(message),
            Some("logging/setLevel") => result(id, json!({})),
            Some(_) if message.get("id").is_some() => {
                say(&json!({"jsonrpc": "2.0", "id": id,
                    "error": {"code": -32601, "message": "Method not found"}}));
            }
            Some(_) => {}
            None => {
                if let Some(asking) = self.asking.take() {
                    text(&asking, &message["error"]["code"].to_string());
                }
            }
        }
    }

    fn call(&mut self, message: &Value) {
        let id = &message["id"];
        let arguments = &message["params"]["arguments"];
        match message["params"]["name"].as_str().unwrap() {
            "echo" => text(id, arguments["text"].as_str().unwrap()),
            "pid" => text(id, &std::process::id().to_string()),
            "counts" => text(
                id,
                &format!("{} {}", self.initialize_count, self.initialized_count),
            ),
            "env" => {
                let value = std::env::var(arguments["name"].as_str().unwrap());
                text(id, value.as_deref().unwrap_or("(none)"));
            }
            "cwd" => text(id, std::env::current_dir().unwrap().to_str().unwrap()),
            "descriptors" => {
                let mut links: Vec<String> = std::fs::read_dir("/proc/self/fd")
                    .unwrap()
                    .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
                    .map(|path| path.display().to_string())
                    .filter(|path| path.starts_with("socket:"))
                    .collect();
                links.sort();
                text(id, &links.join(" "));
            }
            "crash" => std::process::exit(3),
            "stubborn" => {
                self.is_stubborn = true;
                text(id, "ok");
            }
            "descendant" => {
                let mut command = Command::new("sleep");
                command.arg("1000");
                text(id, &command.spawn().unwrap().id().to_string());
            }
            "complain" => {
                eprintln!("{}", arguments["text"].as_str().unwrap());
                text(id, "ok");
            }
            "progress" => {
                let token = &message["params"]["_meta"]["progressToken"];
                for progress in 1..=3 {
                    say(
                        &json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": progress}}),
                    );
                }
                text(id, "done");
            }
            "sample" => {
                self.asking = Some(id.clone());
                say(
                    &json!({"jsonrpc": "2.0", "id": 0, "method": "sampling/createMessage",
                    "params": {"messages": [], "maxTokens": 1}}),
                );
            }
            "ping" => {
                self.asking = Some(id.clone());
                say(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
            }
            "hold" => self.held = Some(id.clone()),
            "release" => {
                text(&self.held.take().unwrap(), "released");
                text(id, "ok");
            }
            "announce" => {
                say(&json!({"jsonrpc": "2.0", "method": "notifications/message",
                    "params": {"level": "info", "data": "heard"}}));
                say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                text(id, "ok");
            }
            "long" => {
                let size = arguments["bytes"].as_u64().unwrap();
                text(id, &"x".repeat(usize::try_from(size).unwrap()));
            }
            other => text(id, &format!("no tool {other}")),
        }
    }
}

fn result(id: &Value, result: Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn text(id: &Value, text: &str) {
    result(id, json!({"content": [{"type": "text", "text": text}]}));
}

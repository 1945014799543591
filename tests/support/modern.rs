//! Revision 2026-07-28 on both sides of the gateway: what a scripted server of it says by itself,
//! and a client of it.
//!
//! The server is strict where the revision is: what its requests must say in `_meta` and in headers
//! they must say, or it refuses them as real servers do.

use std::net::{SocketAddr, TcpListener};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::{
    Asked, Backend, EventStream, Gateway, Wire,
    client::{Ask, Connection, Response},
    gateway::HOST,
};

/// The revision without sessions.
pub const STATELESS: &str = "2026-07-28";
/// How long the server lets its lists be kept, unless it is told otherwise, ms.
const TTL_MS: u64 = 3_600_000;

impl Backend {
    /// A server of the stateless revision; its tools answer as those of [`Self::start`].
    pub fn modern(name: &str, tools: &[&str]) -> Self {
        Self::modern_scripted(name, tools, |_, _| None)
    }

    /// The same, where `script` comes first.
    pub fn modern_scripted(
        name: &str,
        tools: &[&str],
        script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self::modern_scripted_on(listener, name, tools, script)
    }

    /// The same on a listener of the test's choice.
    pub fn modern_scripted_on(
        listener: TcpListener,
        name: &str,
        tools: &[&str],
        script: impl Fn(&Asked, &mut Wire<'_>) -> Option<()> + Send + Sync + 'static,
    ) -> Self {
        let backend = Self::start_on(listener, name, tools, true, script);
        backend.set_ttl_ms(TTL_MS);
        backend
    }
}

impl Wire<'_> {
    /// Answers a request of the stateless revision with these raw members of a whole result.
    pub fn complete(&mut self, asked: &Asked, members: &str) {
        let name = self.shared.state.lock().unwrap().name.clone();
        let comma = if members.is_empty() { "" } else { "," };
        self.result(
            asked,
            &format!(
                r#"{{"resultType":"complete"{comma}{members},"_meta":{{"io.modelcontextprotocol/serverInfo":{{"name":"{name}","version":"1"}}}}}}"#
            ),
        );
    }

    /// Answers with a JSON-RPC error and the HTTP status that belongs to it.
    pub fn refuse(&mut self, asked: &Asked, status: u16, code: i64, data: &str) {
        let id = asked.id();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"refused","data":{data}}}}}"#
        );
        self.answer(status, "content-type: application/json\r\n", body);
    }

    /// What a server of the stateless revision says when the test wants nothing else.
    pub(super) fn modern(&mut self, asked: &Asked) {
        if asked.method != "POST" {
            return self.answer(405, "allow: POST\r\n", "");
        }
        let Some(method) = asked.rpc_method().filter(|_| asked.id() != "null") else {
            return self.answer(202, "", "");
        };
        let meta = asked.json()["params"]["_meta"].clone();
        let in_body = &meta["io.modelcontextprotocol/protocolVersion"];
        if in_body != STATELESS {
            let data = format!(r#"{{"supported":["{STATELESS}"],"requested":"other"}}"#);
            return self.refuse(asked, 400, -32022, &data);
        }
        if !meta["io.modelcontextprotocol/clientCapabilities"].is_object() {
            return self.refuse(asked, 400, -32602, "null");
        }
        if let Some(header) = disagreeing(asked, &method) {
            return self.refuse(asked, 400, -32020, &Value::from(header).to_string());
        }
        let (capabilities, ttl_ms) = {
            let state = self.shared.state.lock().unwrap();
            (state.capabilities.clone(), state.ttl_ms)
        };
        let kept = format!(r#""ttlMs":{ttl_ms},"cacheScope":"public""#);
        match &*method {
            "server/discover" => self.complete(
                asked,
                &format!(
                    r#""supportedVersions":["{STATELESS}"],"capabilities":{capabilities},{kept}"#
                ),
            ),
            "tools/list" => {
                if let Some(members) = self.page(asked) {
                    self.complete(asked, &format!("{members},{kept}"));
                }
            }
            "tools/call" => {
                let text = Value::from(self.echo(asked));
                self.complete(
                    asked,
                    &format!(r#""content":[{{"type":"text","text":{text}}}]"#),
                );
            }
            _ => self.refuse(asked, 404, -32601, "null"),
        }
    }
}

/// The header of a request that does not say what its body says.
fn disagreeing(asked: &Asked, method: &str) -> Option<&'static str> {
    let params = &asked.json()["params"];
    let named = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        _ => None,
    };
    if asked.header("mcp-protocol-version") != Some(STATELESS) {
        return Some("MCP-Protocol-Version");
    }
    if asked.header("mcp-method") != Some(method) {
        return Some("Mcp-Method");
    }
    let name = asked.header("mcp-name").map(decoded);
    (name.as_deref() != named).then_some("Mcp-Name")
}

fn decoded(value: &str) -> String {
    let coded = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    match coded {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).unwrap()).unwrap(),
        None => value.to_owned(),
    }
}

fn encoded(name: &str) -> String {
    match name.is_ascii() {
        true => name.to_owned(),
        false => format!("=?base64?{}?=", STANDARD.encode(name)),
    }
}

/// The body of a request: raw id, method, raw members of `params`, raw members of `_meta` beside
/// what it must say.
pub fn modern_body(id: &str, method: &str, params: &str, meta: &str) -> String {
    let comma = |text: &str| if text.is_empty() { "" } else { "," };
    let (before_params, before_meta) = (comma(params), comma(meta));
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{STATELESS}","io.modelcontextprotocol/clientCapabilities":{{}}{before_meta}{meta}}}{before_params}{params}}}}}"#
    )
}

/// A POST with this body, and the headers that say what it says.
pub fn modern_request(target: &str, body: &str) -> Ask {
    let json: Value = serde_json::from_str(body).unwrap();
    let method = json["method"].as_str().unwrap();
    let params = &json["params"];
    let named = match method {
        "tools/call" | "prompts/get" => params["name"].as_str(),
        "resources/read" => params["uri"].as_str(),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params["taskId"].as_str(),
        _ => None,
    };
    let ask = Ask::post(target, body)
        .header("mcp-protocol-version", STATELESS)
        .header("mcp-method", method);
    match named {
        Some(name) => ask.header("mcp-name", &encoded(name)),
        None => ask,
    }
}

/// A client of the stateless revision with one kept connection.
pub struct ModernClient {
    /// Where the gateway is.
    pub address: SocketAddr,
    /// Request target.
    pub target: String,
    /// Bearer token.
    pub token: Option<String>,
    /// Its connection.
    pub connection: Connection,
}

impl ModernClient {
    /// One of the virtual host `main`, without a token.
    pub fn new(gateway: &Gateway) -> Self {
        Self::of(gateway, HOST, None)
    }

    /// One of this virtual host.
    pub fn of(gateway: &Gateway, host: &str, token: Option<&str>) -> Self {
        Self::at(gateway.address, &format!("/servers/{host}/mcp"), token)
    }

    /// One at an address.
    pub fn at(address: SocketAddr, target: &str, token: Option<&str>) -> Self {
        Self {
            address,
            target: target.to_owned(),
            token: token.map(str::to_owned),
            connection: Connection::open(address),
        }
    }

    /// The same on a connection of its own.
    pub fn again(&self) -> Self {
        Self::at(self.address, &self.target, self.token.as_deref())
    }

    /// A request with this body, to be changed or sent.
    pub fn request_of(&self, body: &str) -> Ask {
        let ask = modern_request(&self.target, body);
        match &self.token {
            Some(token) => ask.header("authorization", &format!("Bearer {token}")),
            None => ask,
        }
    }

    /// A request: raw id, method, raw members of `params`.
    pub fn request(&self, id: &str, method: &str, params: &str) -> Ask {
        self.request_of(&modern_body(id, method, params, ""))
    }

    /// Sends a request and reads the answer.
    pub fn ask(&mut self, id: &str, method: &str, params: &str) -> Response {
        let ask = self.request(id, method, params);
        self.connection.ask(&ask)
    }

    /// The same with raw members of `_meta`.
    pub fn ask_with(&mut self, meta: &str, method: &str, params: &str) -> Response {
        let ask = self.request_of(&modern_body("1", method, params, meta));
        self.connection.ask(&ask)
    }

    /// A `tools/call`, to be changed or sent.
    pub fn call_request(&self, id: &str, name: &str, arguments: &str) -> Ask {
        let params = format!(r#""name":"{name}","arguments":{arguments}"#);
        self.request(id, "tools/call", &params)
    }

    /// `tools/call` with a raw id and raw arguments.
    pub fn call(&mut self, id: &str, name: &str, arguments: &str) -> Response {
        let ask = self.call_request(id, name, arguments);
        self.connection.ask(&ask)
    }

    /// `tools/list`.
    pub fn list(&mut self) -> Response {
        self.ask("\"list\"", "tools/list", "")
    }

    /// The names `tools/list` shows, in order.
    pub fn tool_names(&mut self) -> Vec<String> {
        let result = self.list().result();
        let tools = result["tools"].as_array().unwrap();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    /// A `subscriptions/listen` with a raw id and a raw filter, to be changed or sent.
    pub fn listen_request(&self, id: &str, filter: &str) -> Ask {
        let params = format!(r#""notifications":{filter}"#);
        self.request(id, "subscriptions/listen", &params)
    }

    /// Listens, on a connection of its own.
    pub fn listen(&self, id: &str, filter: &str) -> EventStream {
        let mut connection = Connection::open(self.address);
        connection.send(self.listen_request(id, filter).bytes());
        EventStream::begun(connection)
    }
}

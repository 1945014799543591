//! Servers behind NAT that connect themselves, through a client nobody here wrote (ContextForge's
//! protocol) and through `shardgate reverse`, merged with servers that are reached over HTTP;
//! visited by clients nobody here wrote.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::json;
use shardgate::settings::ConnectionGateway;

use crate::{
    peers::{Client, Server, drive_well, program},
    process::{Folder, Process},
    stage::Stage,
    support::{Gateway, HOST, McpClient, Plan, eventually},
};

/// The Python package `mcp-reverse-proxy-client` with one stdio server; a signal ends both.
struct Proxy {
    child: Child,
    /// What it registered its server as: it adds a part of its own to a name, new with each start.
    name: String,
    _home: Folder,
}

impl Proxy {
    fn start(url: &str, token: &str, name: &str) -> Self {
        let home = Folder::new();
        let server = json!({"command": "mcp-server-everything", "args": ["stdio"]});
        let config = json!({"mcpServers": {name: server}}).to_string();
        let config = home.write("mcp.json", &config);
        let (file, path) = program("mcp-reverse-proxy-client");
        let mut child = Command::new(file)
            .env("PATH", path)
            .env("REVERSE_PROXY_GATEWAY", url)
            .env("REVERSE_PROXY_TOKEN", token)
            .args(["--config", &config])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let session = said.by_ref().find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("tunnel up (session ")?;
            Some(rest.trim_end_matches(')').to_owned())
        });
        // Whatever it says later must not fill the pipe.
        std::thread::spawn(move || said.for_each(drop));
        Self {
            child,
            name: format!("{name}-{}", session.unwrap()),
            _home: home,
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = self.child.wait();
    }
}

/// `shardgate reverse` with the same server.
fn reverse(url: &str, token: &str, name: &str) -> (Process, Folder) {
    let home = Folder::new();
    let file = home.write("token", token);
    let (_, path) = program("mcp-server-everything");
    let arguments = [
        "reverse",
        "--to",
        url,
        "--token-file",
        &file,
        "--source",
        name,
        "--",
        "mcp-server-everything",
        "stdio",
    ];
    (
        Process::start_with(&home, &[("PATH", &path)], &arguments),
        home,
    )
}

fn websocket(gateway: &Gateway) -> String {
    let at = gateway.inner().connection_gateway.as_ref().unwrap();
    format!("ws://{}", at.websocket)
}

#[test]
fn servers_that_connect_themselves_are_merged_with_servers_over_http() {
    let http = Server::everything();
    let modern = fixture::Running::start().unwrap();
    let document = |proxied: &str| {
        json!({"virtual_hosts": {HOST: {"backends": {
            "cf": {"url": format!("reverse:mcp:alice:{proxied}")},
            "own": {"url": "reverse:mcp:alice:desk"},
            "l": {"url": http.url},
            "m": {"url": modern.url},
        }}}})
    };
    let plan = Plan::document(document("laptop"))
        .with_tokens()
        .settings(|settings| settings.connection_gateway = Some(ConnectionGateway::testing()));
    let stage = Stage::start(plan);
    let (url, alice) = (websocket(&stage.gateway), stage.gateway.token("alice"));
    let caller = stage.gateway.token("caller");
    let mut client = McpClient::open_on(&stage.gateway, HOST, Some(&caller));
    let are_merged = |client: &mut McpClient, wanted: &[&str]| {
        let names = client.tool_names();
        let prefixes = ["cf-", "own-", "l-", "m-"];
        let seen = prefixes.into_iter();
        let seen: Vec<_> = seen
            .filter(|prefix| names.iter().any(|name| name.starts_with(prefix)))
            .collect();
        (seen == wanted).then_some(())
    };
    eventually("the others are there alone", || {
        are_merged(&mut client, &["l-", "m-"])
    });
    let proxy = Proxy::start(&url, &alice, "laptop");
    let path = stage.gateway.config_path();
    std::fs::write(path, document(&proxy.name).to_string()).unwrap();
    let (mut own, _home) = reverse(&url, &alice, "desk");
    eventually("all four are merged", || {
        are_merged(&mut client, &["cf-", "own-", "l-", "m-"])
    });
    let target = format!("http://{}/servers/{HOST}/mcp", stage.address());
    let at = "everything=cf-,everything=own-,everything=l-,fixture=m-";
    let options = [
        "--mode",
        "visit",
        "--era",
        "legacy",
        "--at",
        at,
        "--sessions",
        "2",
        "--calls",
        "1",
    ];
    for visitor in [Client::Client2, Client::Python] {
        drive_well(visitor, &target, Some(&caller), &options);
    }
    drop(proxy);
    own.signal("TERM");
    assert_eq!(own.exit_code(), 0);
    eventually("the others are alone again", || {
        are_merged(&mut client, &["l-", "m-"])
    });
    stage.end();
}

//! A stateless request runs wherever it arrives: on any shard, in any process (SCA-1).

use std::net::SocketAddr;

use crate::{
    assert_no_session,
    process::{Folder, Process},
    support::{Ask, Backend, Connection, Layout, McpClient, ModernClient, Plan, Response},
    text_of, whole_result,
};

#[test]
fn requests_of_one_client_alternate_over_four_shards() {
    let a = Backend::modern("a", &["one"]);
    let b = Backend::modern("b", &["two"]);
    let gateway = Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .shards(4)
        .start();
    let served = || gateway.metric_by_shard("shardgate_stateless_requests_total");
    let mut list = Vec::new();
    let mut connections = 0;
    // The kernel deals connections out; there will be one of each shard.
    while served().contains(&0) {
        connections += 1;
        assert!(connections < 1000, "{:?}", served());
        let mut client = ModernClient::new(&gateway);
        let said = client.list();
        whole_result(&said);
        list.push(said.body);
        let number = connections.to_string();
        let text = text_of(&client.call(&number, "b-two", &format!(r#"{{"n":{number}}}"#)));
        assert_eq!(text, format!("b two {{\"n\":{number}}}"));
    }
    assert!(list.iter().all(|said| *said == list[0]));
    assert_eq!(served().iter().sum::<u64>(), 2 * connections);
    assert_no_session(&gateway);
    assert_eq!(b.seen_rpc("tools/call").len() as u64, connections);
}

/// Even with the id of a session that lives elsewhere.
#[test]
fn a_stateless_request_is_not_steered() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).shards(4).start();
    let sessions: Vec<McpClient> = (0..16).map(|_| McpClient::open(&gateway)).collect();
    let steered = || {
        [
            "shardgate_handed_over_total",
            "shardgate_forwarded_total",
            "shardgate_served_total",
        ]
        .map(|name| gateway.metric(name))
    };
    let before = steered();
    let mut client = ModernClient::new(&gateway);
    for (number, session) in sessions.iter().enumerate() {
        let ask = client
            .call_request(&number.to_string(), "one", "{}")
            .header("mcp-session-id", &session.session);
        text_of(&client.connection.ask(&ask));
    }
    assert_eq!(steered(), before);
    let served = gateway.metric_by_shard("shardgate_stateless_requests_total");
    // One connection, one shard.
    assert_eq!(served.iter().filter(|count| **count > 0).count(), 1);
    assert_eq!(served.iter().sum::<u64>(), 16);
}

/// Sessions do have an owner, whom their requests reach from everywhere.
#[test]
fn sessions_beside_it_are_forwarded() {
    let backend = Backend::modern("a", &["one"]);
    let gateway = Plan::one(&backend).layout(Layout::Spread).start();
    let mut session = McpClient::open(&gateway);
    let before = gateway.metric("shardgate_forwarded_total");
    session.call("1", "one", "{}").result();
    assert_eq!(gateway.metric("shardgate_forwarded_total"), before + 1);
}

/// The sum of a metric's values on an admin listener's page.
fn metric(admin: SocketAddr, name: &str) -> u64 {
    let page: Response = Connection::open(admin).ask(&Ask::new("GET", "/metrics"));
    let values = page
        .text()
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']))
        .map(|rest| rest.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    values.sum()
}

#[test]
fn requests_of_one_client_alternate_over_two_processes() {
    let backend = Backend::modern("a", &["one", "two"]);
    // Each has a folder, keys and a configuration of its own: they share nothing.
    let homes = [Folder::new(), Folder::new()];
    let processes: Vec<Process> = homes
        .iter()
        .map(|home| {
            let document = format!(r#"{{"mcpServers":{{"a":{{"url":"{}"}}}}}}"#, backend.url());
            let document = home.write("servers.json", &document);
            let arguments = [
                "--config-file",
                &document,
                "--allow-anonymous",
                "--upstream-connection-mode",
                "plain-text-or-tls",
            ];
            Process::serve(home, &arguments)
        })
        .collect();
    let mut clients: Vec<ModernClient> = processes
        .iter()
        .map(|process| ModernClient::at(process.address(), "/mcp", None))
        .collect();
    let mut said = Vec::new();
    for number in 0..40 {
        let client = &mut clients[number % 2];
        let list = client.list();
        whole_result(&list);
        said.push(list.body);
        let discovered = client.ask("1", "server/discover", "");
        whole_result(&discovered);
        let response = client.call(&number.to_string(), "two", &format!(r#"{{"n":{number}}}"#));
        assert_eq!(response.message()["id"], number);
        assert_eq!(text_of(&response), format!("a two {{\"n\":{number}}}"));
    }
    assert!(said.iter().all(|list| *list == said[0]));
    for process in &processes {
        let admin = process.admin_address();
        assert_eq!(metric(admin, "shardgate_stateless_requests_total"), 60);
        for name in [
            "shardgate_sessions",
            "shardgate_sessions_opened_total",
            "shardgate_backend_sessions_opened_total",
            "shardgate_handed_over_total",
            "shardgate_forwarded_total",
        ] {
            assert_eq!(metric(admin, name), 0, "{name}");
        }
    }
    assert_eq!(backend.seen_rpc("tools/call").len(), 40);
}

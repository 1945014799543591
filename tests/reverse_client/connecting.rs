//! How the client comes in: tokens, refusals, TLS, and gateways that are none.

use serde_json::json;
use shardgate::websocket::frame;

use crate::{
    certificates::{Authority, VERSIONS},
    process::{Folder, run},
    stage::{Client, Door, frame_of},
    tls::Terminator,
};

#[test]
fn a_refused_token_ends_the_client_with_a_reason() {
    for (status, reason) in [(401, "does not accept the token"), (403, "does not allow")] {
        let door = Door::open();
        let mut client = Client::stdio(&door, &[]);
        door.knock().refuse(status, "");
        assert_eq!(client.process.exit_code(), 1);
        let said = client.process.stderr();
        assert!(said.contains(reason), "{said}");
        assert!(door.is_quiet());
    }
}

#[test]
fn a_token_file_is_read_again() {
    let door = Door::open();
    let home = Folder::new();
    let file = home.write("token", "first\n");
    let command = crate::stage::command();
    let mut more = vec!["--token-file", &file, "--"];
    more.extend(command.iter().map(String::as_str));
    let mut client = Client::start_in(home, &door.url(), &more);
    let knock = door.knock();
    assert_eq!(knock.header("authorization"), Some("Bearer first"));
    client.home.write("token", "second");
    knock.refuse(401, "");
    let knock = door.knock();
    assert_eq!(knock.header("authorization"), Some("Bearer second"));
    let mut socket = knock.take_in();
    socket.initialize();
    // Accepted, so what comes later is a new refusal: once more, and then no more.
    drop(socket);
    for _ in 0..2 {
        door.knock().refuse(401, "");
    }
    assert_eq!(client.process.exit_code(), 1);
}

#[test]
fn a_source_that_is_taken_and_a_gateway_without_room_are_asked_again() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    door.knock().refuse(409, "");
    client.process.logged("connected already");
    door.knock().refuse(503, "retry-after: 1\r\n");
    let line = client.process.logged("no room");
    let (_, pause) = line.split_once("trying again in ").unwrap();
    let seconds: f64 = pause.trim_end_matches(" s").parse().unwrap();
    assert!((1.0..2.0).contains(&seconds), "{line}");
    door.knock().refuse(404, "");
    client.process.logged("nothing for reverse connections");
    let mut socket = door.enter();
    socket.initialize();
    client.process.logged("connected to ws://127.0.0.1:");
}

#[test]
fn what_is_no_websocket_is_asked_again() {
    let door = Door::open();
    let client = Client::stdio(&door, &[]);
    door.knock().answer(b"SSH-2.0-x\r\n");
    client.process.logged("something else than a WebSocket");
    let wrong = "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n";
    door.knock().answer(wrong.as_bytes());
    door.enter().initialize();
}

#[test]
fn a_gateway_that_is_away_is_waited_for() {
    let door = Door::open();
    let (address, url) = (door.address, door.url());
    drop(door);
    let command = crate::stage::command();
    let mut more = vec!["--"];
    more.extend(command.iter().map(String::as_str));
    let client = Client::start(&url, &more);
    client.process.logged("cannot be connected to");
    let door = Door::open_at(address);
    door.enter().initialize();
}

#[test]
fn what_comes_right_behind_the_handshake_is_heard() {
    let door = Door::open();
    let _client = Client::stdio(&door, &[]);
    let ping = json!({"jsonrpc": "2.0", "id": "early", "method": "nothing"});
    let bytes = frame_of(frame::TEXT, ping.to_string().as_bytes());
    let mut socket = door.knock().take_in_with(&bytes);
    assert_eq!(socket.message()["id"], "early");
}

#[test]
fn tls_is_spoken_to_who_is_trusted_and_to_nobody_else() {
    let authority = Authority::new("of the test");
    let identity = authority.issue(&["localhost"]);
    let door = Door::open();
    let inner = format!("http://{}/mcp", door.address);
    let terminator = Terminator::start(identity.server(&VERSIONS), &inner);
    let url = format!("wss://localhost:{}/reverse/v1", terminator.port());
    let command = crate::stage::command();
    let home = Folder::new();
    let ca = home.write("ca.pem", &authority.pem());
    let mut more = vec!["--ca", &ca, "--"];
    more.extend(command.iter().map(String::as_str));
    let _trusting = Client::start_in(home, &url, &more);
    let mut socket = door.enter();
    socket.initialize();
    let text = "x".repeat(1 << 20);
    assert_eq!(socket.call("echo", json!({"text": text})), text);
    let distrusting = Client::start(&url, &more[2..]);
    distrusting.process.logged("no TLS session");
    assert!(door.is_quiet());
}

#[test]
fn a_command_line_that_cannot_be_used_ends_with_2() {
    let home = Folder::new();
    for (line, reason) in [
        ("--to wss://gw -- x", "no token"),
        ("--to http://gw --token t -- x", "--to"),
        ("--to wss://gw --token t", "required"),
        (
            "--to wss://gw --token t --ca /nonexistent -- x",
            "/nonexistent",
        ),
    ] {
        let words: Vec<&str> = std::iter::once("reverse").chain(line.split(' ')).collect();
        let finished = run(&home, &words, "");
        assert_eq!(finished.code, 2, "{line}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(reason),
            "{line}: {}",
            finished.stderr
        );
    }
    let help = run(&home, &["reverse", "--help"], "");
    assert_eq!(help.code, 0);
    for word in [
        "--token-file",
        "SHARDGATE_REVERSE_TOKEN",
        "Examples:",
        "-- npx",
    ] {
        assert!(help.stdout.contains(word), "{word}");
    }
}

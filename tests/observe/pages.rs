//! `/debug/shards`, `/debug/hdr`, the metrics they share, and `shardgate top`.

use hdrhistogram::{Histogram, serialization::Deserializer};
use serde_json::Value;

use crate::{
    process::{Folder, run},
    support::{Ask, Backend, Connection, Gateway, McpClient, Plan, eventually},
};

fn page(gateway: &Gateway, path: &str) -> String {
    let answer = Connection::open(gateway.admin_address.unwrap()).ask(&Ask::new("GET", path));
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).unwrap()
}

fn shards(gateway: &Gateway) -> Vec<Value> {
    let page: Value = serde_json::from_str(&page(gateway, "/debug/shards")).unwrap();
    assert_eq!(page["format"], 1);
    page["shards"].as_array().unwrap().clone()
}

fn sum(shards: &[Value], name: &str) -> u64 {
    let numbers = shards.iter().map(|shard| shard[name].as_u64().unwrap());
    numbers.sum()
}

fn calls(shards: &[Value]) -> u64 {
    let counts = shards
        .iter()
        .map(|shard| shard["call_us"]["count"].as_u64().unwrap());
    counts.sum()
}

#[test]
fn each_read_tells_of_the_time_since_the_last() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    shards(&gateway);
    for id in 0..5 {
        client.call(&id.to_string(), "one", "{}");
    }
    // The reply is with the client before the shard has written the call down.
    let mut seen = 0;
    eventually("five calls are told", || {
        let page = shards(&gateway);
        seen += calls(&page);
        assert_eq!(page.len(), 2);
        assert!(page.iter().all(|shard| shard["answers"] == true));
        assert_eq!(sum(&page, "sessions"), 1);
        (seen == 5).then_some(())
    });
    let page = shards(&gateway);
    assert_eq!(calls(&page), 0);
    assert!(sum(&page, "calls") >= 5);
    assert_eq!(sum(&page, "ring_full"), 0);
    let requests = sum(&page, "requests");
    assert_eq!(
        sum(&page, "local") + sum(&page, "served_for_others"),
        requests
    );
    for shard in &page {
        let busy = shard["busy"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&busy), "{shard}");
        assert!(shard["cpu_s"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn the_interval_log_is_read_by_histogram_tools() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let mut client = McpClient::open(&gateway);
    for id in 0..3 {
        client.call(&id.to_string(), "one", "{}");
    }
    let mut seen = 0;
    eventually("three calls are in the log", || {
        let log = page(&gateway, "/debug/hdr");
        assert!(log.starts_with("#[Histogram log format version 1.3]\n"));
        let line = log
            .lines()
            .find(|line| line.starts_with("Tag=total,"))
            .unwrap();
        let encoded = line.rsplit(',').next().unwrap();
        let engine = &base64::engine::general_purpose::STANDARD;
        let bytes = base64::Engine::decode(engine, encoded).unwrap();
        let mut reader = bytes.as_slice();
        let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut reader).unwrap();
        seen += histogram.len();
        (seen == 3).then_some(())
    });
}

#[test]
fn metrics_count_the_shards_time_and_their_rings() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let text = page(&gateway, "/metrics");
    for shard in 0..2 {
        let value = |name: &str| {
            let start = format!("{name}{{shard=\"{shard}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&start));
            line.unwrap_or_else(|| panic!("{name}"))
                .parse::<f64>()
                .unwrap()
        };
        assert!(value("shardgate_shard_cpu_seconds_total") > 0.0);
        assert!(value("shardgate_ring_depth") >= 0.0);
    }
}

#[test]
fn top_prints_a_row_for_each_shard_and_says_when_nobody_answers() {
    let backend = Backend::start("a", &["one"]);
    let gateway = Plan::one(&backend).start();
    let admin = gateway.admin_address.unwrap().to_string();
    let seen = run(
        &Folder::new(),
        &["top", "--once", "--interval", "0.05", "--admin", &admin],
        "",
    );
    assert_eq!(seen.code, 0, "{seen:?}");
    assert!(seen.stdout.contains("serving, 2 shards"), "{seen:?}");
    let rows: Vec<&str> = seen
        .stdout
        .lines()
        .skip(1)
        .filter(|line| !line.is_empty())
        .collect();
    assert_eq!(rows.len(), 3, "{seen:?}");
    assert!(rows[0].contains("busy") && rows[0].contains("p99.9 ms"));
    // A listener of somebody else.
    let client_side = gateway.address.to_string();
    for address in [client_side.as_str(), "127.0.0.1:1"] {
        let seen = run(&Folder::new(), &["top", "--once", "--admin", address], "");
        assert_eq!(seen.code, 2, "{seen:?}");
    }
}

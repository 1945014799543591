//! `shardgate top`: the shards of a running gateway, looked at again and again.

use std::{
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    process::ExitCode,
    time::Duration,
};

use serde_json::Value;
use tuning::scrape;

use crate::command::complain;

/// Nobody answers, or somebody else.
const EXIT_UNREACHABLE: u8 = 2;
const PAGE: &str = "/debug/shards";

/// Prints tables until it is ended; with `once`, one.
pub(crate) fn run(admin: SocketAddr, once: bool, interval: Duration) -> ExitCode {
    // The first read only starts the interval.
    let mut last = match read(admin) {
        Ok(page) => page,
        Err(error) => return unreachable(admin, &error),
    };
    let clears = io::stdout().is_terminal() && !once;
    loop {
        std::thread::sleep(interval);
        let page = match read(admin) {
            Ok(page) => page,
            Err(error) => return unreachable(admin, &error),
        };
        // Home, then clear below: the old table does not flash away first.
        let home = if clears { "\x1b[H\x1b[J" } else { "" };
        let shown = writeln!(io::stdout(), "{home}{}", table(&page, &last));
        // A reader that has gone has seen enough.
        if once || shown.is_err() {
            return ExitCode::SUCCESS;
        }
        last = page;
    }
}

fn unreachable(admin: SocketAddr, error: &io::Error) -> ExitCode {
    complain(format_args!("error: {admin}: {error}"));
    ExitCode::from(EXIT_UNREACHABLE)
}

fn read(admin: SocketAddr) -> io::Result<Value> {
    let text = scrape::get(admin, PAGE)?;
    let page: Value = serde_json::from_str(&text)?;
    match &page["shards"] {
        Value::Array(_) => Ok(page),
        _ => Err(io::Error::other("this is no admin listener of shardgate")),
    }
}

/// Header and cells of a column: a name, and how it is made of a shard's page and its last one.
type Column = (&'static str, fn(&Value, &Value, f64) -> String);

const COLUMNS: [Column; 13] = [
    ("shard", |now, _, _| now["shard"].to_string()),
    ("busy", |now, _, _| match now["busy"].as_f64() {
        Some(busy) => format!("{:.0} %", busy * 100.0),
        None => "-".to_owned(),
    }),
    ("req/s", |now, _, _| {
        format!("{:.0}", now["requests_per_s"].as_f64().unwrap_or(0.0))
    }),
    ("local/s", |now, last, s| per_s("local", now, last, s)),
    ("forwarded/s", |now, last, s| {
        per_s("forwarded", now, last, s)
    }),
    ("steered/s", |now, last, s| {
        per_s("steered_away", now, last, s)
    }),
    ("ring", |now, _, _| plain(&now["ring_depth"])),
    ("full", |now, _, _| plain(&now["ring_full"])),
    ("sessions", |now, _, _| plain(&now["sessions"])),
    ("conns", |now, _, _| plain(&now["connections"])),
    ("p50 ms", |now, _, _| ms(now, "p50")),
    ("p99 ms", |now, _, _| ms(now, "p99")),
    ("p99.9 ms", |now, _, _| ms(now, "p999")),
];

fn per_s(name: &str, now: &Value, last: &Value, seconds: f64) -> String {
    let of = |page: &Value| page[name].as_u64().unwrap_or(0);
    format!("{:.0}", of(now).saturating_sub(of(last)) as f64 / seconds)
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        value => value.to_string(),
    }
}

fn ms(now: &Value, name: &str) -> String {
    let calls = &now["call_us"];
    match (calls["count"].as_u64(), calls[name].as_f64()) {
        (Some(1..), Some(us)) => format!("{:.3}", us / 1000.0),
        _ => "-".to_owned(),
    }
}

fn table(page: &Value, last: &Value) -> String {
    let none = Vec::new();
    let rows = |page: &Value| page["shards"].as_array().unwrap_or(&none).clone();
    let (shards, before) = (rows(page), rows(last));
    let seconds = page["interval_s"].as_f64().unwrap_or(1.0).max(1e-3);
    let mut cells: Vec<Vec<String>> =
        vec![COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect()];
    for (index, now) in shards.iter().enumerate() {
        let last = before.get(index).unwrap_or(&Value::Null);
        let row = COLUMNS.iter().map(|(_, cell)| cell(now, last, seconds));
        cells.push(row.collect());
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|column| cells.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let state = if page["is_draining"] == true {
        "draining"
    } else {
        "serving"
    };
    let mut text = format!(
        "{state}, {} shards on {}, over {seconds:.1} s\n",
        shards.len(),
        page["driver"].as_str().unwrap_or("?")
    );
    for row in &cells {
        let line: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        text += &format!("\n{}", line.join("  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rates_come_from_two_pages_and_what_is_unknown_is_a_dash() {
        let page = |local: u64, count: u64| {
            json!({"interval_s": 2.0, "driver": "epoll", "is_draining": false, "shards": [{
                "shard": 0, "busy": 0.256, "requests_per_s": 50.0, "local": local,
                "forwarded": 4, "steered_away": 0, "ring_depth": null, "ring_full": 0,
                "sessions": 3, "connections": 2,
                "call_us": {"count": count, "p50": 120, "p99": 900, "p999": 1500},
            }]})
        };
        let text = table(&page(300, 9), &page(100, 9));
        let row: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(
            row,
            [
                "0", "26", "%", "50", "100", "0", "0", "-", "0", "3", "2", "0.120", "0.900",
                "1.500"
            ]
        );
        assert!(table(&page(0, 0), &page(0, 0)).ends_with('-'));
    }
}

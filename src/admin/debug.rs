//! `/debug/shards` and `/debug/hdr`: how each shard does, and what calls took since the last read.
//!
//! Both tell of the time since somebody last read them, so one reader at a time sees every
//! interval. They cost the shards a copy of their histograms and nothing between reads.

use std::{
    fmt::Write,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router, extract::State, http::header::CONTENT_TYPE, response::IntoResponse, routing::get,
};
use hdrhistogram::{
    Histogram,
    serialization::{Serializer, V2DeflateSerializer},
};
use serde_json::{Value, json};

use crate::{
    control::{Snapshot, View},
    telemetry::Latency,
};

/// The two pages.
pub(super) fn routes(view: View) -> Router {
    let debug = Arc::new(Debug {
        view,
        shards: Mutex::new(Reading::now()),
        hdr: Mutex::new(Reading::now()),
    });
    Router::new()
        .route("/debug/shards", get(shards))
        .route("/debug/hdr", get(hdr))
        .with_state(debug)
}

/// The same figures for `/metrics`.
pub(super) fn metrics(out: &mut String, view: &View, snapshots: &[Snapshot]) {
    // Writing to a String cannot fail.
    let mut family = |name: &str, kind: &str, help: &str, values: &[(usize, f64)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (shard, value) in values {
            let _ = writeln!(out, "{name}{{shard=\"{shard}\"}} {value}");
        }
    };
    let cpu: Vec<(usize, f64)> = (0..view.engine.len())
        .filter_map(|shard| Some((shard, view.cpu_time(shard)?.as_secs_f64())))
        .collect();
    family(
        "shardgate_shard_cpu_seconds_total",
        "counter",
        "CPU time of the shard's thread: its rate is the busy share of its core.",
        &cpu,
    );
    let depths: Vec<(usize, f64)> = snapshots
        .iter()
        .map(|snapshot| (usize::from(snapshot.shard), snapshot.ring_depth as f64))
        .collect();
    family(
        "shardgate_ring_depth",
        "gauge",
        "Messages of other shards not taken in yet.",
        &depths,
    );
}

struct Debug {
    view: View,
    shards: Mutex<Reading>,
    hdr: Mutex<Reading>,
}

/// What was there at the last read, by shard.
struct Reading {
    at: Instant,
    unix: Duration,
    shards: Vec<Shard>,
}

#[derive(Clone, Default)]
struct Shard {
    latency: Latency,
    cpu: Option<Duration>,
    requests: u64,
}

impl Reading {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            unix: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
            shards: Vec::new(),
        }
    }

    fn shard(&self, index: usize) -> Shard {
        self.shards.get(index).cloned().unwrap_or_default()
    }
}

async fn shards(State(debug): State<Arc<Debug>>) -> impl IntoResponse {
    let text = tokio::task::spawn_blocking(move || format!("{:#}\n", debug.shards()))
        .await
        .unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], text)
}

async fn hdr(State(debug): State<Arc<Debug>>) -> impl IntoResponse {
    let text = tokio::task::spawn_blocking(move || debug.hdr())
        .await
        .unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], text)
}

impl Debug {
    fn shards(&self) -> Value {
        let snapshots = self.view.snapshots();
        let mut now = Reading::now();
        now.shards = (0..self.view.engine.len())
            .map(|index| Shard {
                latency: snapshots
                    .iter()
                    .find(|snapshot| usize::from(snapshot.shard) == index)
                    .map_or_else(Latency::new, |snapshot| snapshot.latency.clone()),
                cpu: self.view.cpu_time(index),
                requests: self.view.numbers[index].requests.value(),
            })
            .collect();
        // A reader that panicked left a whole reading behind.
        let mut last = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let interval = now.at.saturating_duration_since(last.at);
        let shards: Vec<Value> = (0..now.shards.len())
            .map(|index| {
                let snapshot = snapshots
                    .iter()
                    .find(|snapshot| usize::from(snapshot.shard) == index);
                self.shard(
                    index,
                    snapshot,
                    &now.shard(index),
                    &last.shard(index),
                    interval,
                )
            })
            .collect();
        let unix_s = now.unix.as_secs_f64();
        *last = now;
        json!({
            "format": 1,
            "at_unix_s": unix_s,
            "interval_s": interval.as_secs_f64(),
            "driver": self.view.driver,
            "is_draining": self.view.is_draining(),
            "shards": shards,
        })
    }

    fn shard(
        &self,
        index: usize,
        snapshot: Option<&Snapshot>,
        now: &Shard,
        last: &Shard,
        interval: Duration,
    ) -> Value {
        let (engine, numbers) = (&self.view.engine[index], &self.view.numbers[index]);
        let seconds = interval.as_secs_f64().max(1e-3);
        let busy = now.cpu.map(|cpu| {
            cpu.saturating_sub(last.cpu.unwrap_or_default())
                .as_secs_f64()
                / seconds
        });
        let served = engine.served.value();
        let calls = since(&now.latency.total, &last.latency.total);
        json!({
            "shard": index,
            "answers": snapshot.is_some(),
            // Reading takes time as well: slightly more than all of it is all of it.
            "busy": busy.map(|busy| busy.min(1.0)),
            "cpu_s": now.cpu.map(|cpu| cpu.as_secs_f64()),
            "connections": engine.open.value(),
            "sessions": snapshot.map(|snapshot| snapshot.sessions),
            "requests": now.requests,
            "requests_per_s": now.requests.saturating_sub(last.requests) as f64 / seconds,
            "local": now.requests.saturating_sub(served),
            "served_for_others": served,
            "forwarded": engine.forwarded.value(),
            "steered_away": engine.handed_over.value(),
            "steered_here": engine.received.value(),
            "ring_depth": snapshot.map(|snapshot| snapshot.ring_depth),
            "ring_full": engine.ring_full.value(),
            "calls": numbers.calls.value(),
            "calls_failed": numbers.calls_failed.value(),
            "upstream_idle": snapshot.map(|snapshot| snapshot.upstream_connections.0),
            "call_us": {
                "count": calls.len(),
                "p50": calls.value_at_quantile(0.5),
                "p99": calls.value_at_quantile(0.99),
                "p999": calls.value_at_quantile(0.999),
                "max": if calls.is_empty() { 0 } else { calls.max() },
            },
        })
    }

    /// An HdrHistogram interval log, version 1.3, with one line a tag: values are microseconds, the
    /// maximum is in milliseconds, as the tools that read such logs have it.
    fn hdr(&self) -> String {
        let mut merged = Latency::new();
        for snapshot in self.view.snapshots() {
            merged.add(&snapshot.latency);
        }
        let mut now = Reading::now();
        now.shards = vec![Shard {
            latency: merged,
            ..Shard::default()
        }];
        let mut last = self.hdr.lock().unwrap_or_else(PoisonError::into_inner);
        let text = log(&now, &last);
        *last = now;
        text
    }
}

/// What came into a histogram after an earlier copy of it; all of it when the copy is no part.
fn since(now: &Histogram<u32>, last: &Histogram<u32>) -> Histogram<u32> {
    let mut delta = now.clone();
    if delta.subtract(last).is_err() {
        delta.clone_from(now);
    }
    delta
}

fn log(now: &Reading, last: &Reading) -> String {
    let (start, end) = (last.unix.as_secs_f64(), now.unix.as_secs_f64());
    let mut text = format!(
        "#[Histogram log format version 1.3]\n#[StartTime: {start:.3} (seconds since epoch)]\n\
         \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
         \"Interval_Compressed_Histogram\"\n"
    );
    let (now_shard, last_shard) = (now.shard(0).latency, last.shard(0).latency);
    for (tag, now, last) in [
        ("total", &now_shard.total, &last_shard.total),
        ("upstream", &now_shard.upstream, &last_shard.upstream),
        ("overhead", &now_shard.overhead, &last_shard.overhead),
    ] {
        let delta = since(now, last);
        let mut bytes = Vec::new();
        // Into memory, and with counts that were read from memory: nothing to fail.
        if V2DeflateSerializer::new()
            .serialize(&delta, &mut bytes)
            .is_err()
        {
            continue;
        }
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
        let max_ms = if delta.is_empty() {
            0.0
        } else {
            delta.max() as f64 / 1e3
        };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "Tag={tag},{start:.3},{:.3},{max_ms:.3},{encoded}",
            (end - start).max(0.0)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::Deserializer;

    fn reading(unix_s: u64, calls: &[u64]) -> Reading {
        let mut latency = Latency::new();
        for us in calls {
            latency.record(*us, us / 2);
        }
        Reading {
            unix: Duration::from_secs(unix_s),
            shards: vec![Shard {
                latency,
                ..Shard::default()
            }],
            ..Reading::now()
        }
    }

    #[test]
    fn the_log_holds_what_came_since_the_last_read() {
        let text = log(&reading(107, &[100, 200, 900]), &reading(100, &[100]));
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Tag=total,"))
            .unwrap();
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!(fields[..3], ["100.000", "7.000", "0.900"]);
        let engine = &base64::engine::general_purpose::STANDARD;
        let bytes = base64::Engine::decode(engine, fields[3]).unwrap();
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert_eq!((read.len(), read.max(), read.min()), (2, 900, 200));
        assert_eq!(text.lines().count(), 6);
    }

    #[test]
    fn a_shard_that_began_anew_is_read_from_its_beginning() {
        let delta = since(
            &reading(0, &[5]).shards[0].latency.total,
            &reading(0, &[7, 7]).shards[0].latency.total,
        );
        assert_eq!((delta.len(), delta.max()), (1, 5));
    }
}

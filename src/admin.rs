//! The admin listener: liveness, readiness, metrics. Loopback unless the operator says otherwise;
//! nothing here changes anything.

mod debug;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::{
    control::{IssuerNumbers, View},
    log,
    upstream::{breaker::State as Breaker, health::BackendHealth},
};

/// Serves until the runtime ends.
pub async fn serve(view: View, listener: std::net::TcpListener) {
    let served = async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        axum::serve(listener, routes(view)).await
    };
    if let Err(error) = served.await {
        log::error(|| format!("the admin listener ended: {error}"));
    }
}

fn routes(view: View) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/backends", get(backends))
        .route("/status", get(status))
        .with_state(view.clone())
        .merge(debug::routes(view))
}

async fn ready(State(view): State<View>) -> impl IntoResponse {
    let is_ready = tokio::task::spawn_blocking(move || view.is_ready())
        .await
        .unwrap_or(false);
    if is_ready {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn metrics(State(view): State<View>) -> impl IntoResponse {
    let text = tokio::task::spawn_blocking(move || text(&view))
        .await
        .unwrap_or_default();
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
}

async fn backends(State(view): State<View>) -> impl IntoResponse {
    json(move || json!({"backends": view.backends()})).await
}

async fn status(State(view): State<View>) -> impl IntoResponse {
    json(move || view.status()).await
}

/// A JSON document that takes waiting for shards to make.
async fn json(make: impl FnOnce() -> Value + Send + 'static) -> impl IntoResponse {
    let document = tokio::task::spawn_blocking(make).await.unwrap_or_default();
    (
        [(CONTENT_TYPE, "application/json")],
        format!("{document}\n"),
    )
}

impl View {
    /// How the whole process is: what `shardgate status` shows.
    pub fn status(&self) -> Value {
        let snapshots = self.snapshots();
        let backends = self.backends();
        let is_ready = self.is_ready_by(&snapshots);
        let are_asked = backends
            .iter()
            .all(|backend| backend.breaker == Breaker::Closed);
        let shards: Vec<Value> = snapshots
            .iter()
            .map(|snapshot| {
                json!({
                    "shard": snapshot.shard,
                    "sessions": snapshot.sessions,
                    "connections": self.engine[usize::from(snapshot.shard)].open.value(),
                    "is_store_ready": snapshot.is_store_ready,
                })
            })
            .collect();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "driver": self.driver,
            "is_healthy": is_ready && are_asked,
            "is_ready": is_ready,
            "is_draining": self.is_draining.load(Ordering::Relaxed),
            "shard_count": self.handles.len(),
            "shards": shards,
            "backends": backends,
        })
    }
}

/// Backends named in metrics; the others are told together.
const BACKENDS_NAMED_MAX: usize = 100;

/// A label's value.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

fn backend_metrics(out: &mut String, backends: &[BackendHealth]) {
    use std::fmt::Write;
    let (named, others) = backends.split_at(backends.len().min(BACKENDS_NAMED_MAX));
    let mut family =
        |name: &str, kind: &str, help: &str, value: fn(&BackendHealth) -> u64, is_sum| {
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for backend in named {
                let _ = writeln!(
                    out,
                    "{name}{{backend=\"{}\"}} {}",
                    escaped(&backend.name),
                    value(backend)
                );
            }
            let values = others.iter().map(value);
            let rest = if is_sum {
                values.sum()
            } else {
                values.max().unwrap_or(0)
            };
            if !others.is_empty() {
                let _ = writeln!(out, "{name}{{backend=\"_other\"}} {rest}");
            }
        };
    family(
        "shardgate_backend_breaker_state",
        "gauge",
        "The worst of the shards' circuit breakers: 0 closed, 1 half open, 2 open.",
        |backend| backend.breaker as u64,
        false,
    );
    family(
        "shardgate_backend_in_flight",
        "gauge",
        "Requests under way to a backend.",
        |backend| backend.in_flight,
        true,
    );
    family(
        "shardgate_backend_failures_total",
        "counter",
        "Requests to a backend that failed; begins anew when a backend was not in use.",
        |backend| backend.failures,
        true,
    );
}

fn refusal_metrics(out: &mut String, view: &View) {
    use std::fmt::Write;
    let name = "shardgate_refused_total";
    let _ = writeln!(
        out,
        "# HELP {name} Requests refused, by reason.\n# TYPE {name} counter"
    );
    for (shard, numbers) in view.numbers.iter().enumerate() {
        for (reason, count) in numbers.refused.all() {
            let _ = writeln!(
                out,
                "{name}{{shard=\"{shard}\",reason=\"{reason}\"}} {count}"
            );
        }
    }
}

fn reload_metrics(out: &mut String, view: &View) {
    use std::fmt::Write;
    let name = "shardgate_reloads_refused_total";
    let _ = writeln!(
        out,
        "# HELP {name} Changed files that could not be used, so those before stay in force.\n\
         # TYPE {name} counter"
    );
    let refused = &*view.reloads_refused;
    for (what, count) in [
        ("documents", &refused.documents),
        ("certificates", &refused.certificates),
    ] {
        let count = count.load(Ordering::Relaxed);
        let _ = writeln!(out, "{name}{{what=\"{what}\"}} {count}");
    }
}

fn issuer_metrics(out: &mut String, view: &View) {
    use std::fmt::Write;
    let mut family =
        |name: &str, kind: &str, help: &str, pick: fn(&IssuerNumbers) -> &AtomicU64| {
            if view.issuers.is_empty() {
                return;
            }
            // Writing to a String cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for issuer in &*view.issuers {
                let (label, value) = (
                    escaped(&issuer.issuer),
                    pick(issuer).load(Ordering::Relaxed),
                );
                let _ = writeln!(out, "{name}{{issuer=\"{label}\"}} {value}");
            }
        };
    family(
        "shardgate_jwks_keys",
        "gauge",
        "Keys of a trusted issuer in use; 0: its tokens are refused.",
        |issuer| &issuer.keys,
    );
    family(
        "shardgate_jwks_fetched_timestamp_seconds",
        "gauge",
        "When the keys were fetched; 0: never.",
        |issuer| &issuer.fetched_unix_s,
    );
    family(
        "shardgate_jwks_fetches_total",
        "counter",
        "Times the keys were fetched.",
        |issuer| &issuer.fetched,
    );
    family(
        "shardgate_jwks_failures_total",
        "counter",
        "Times the keys could not be fetched.",
        |issuer| &issuer.failed,
    );
    family(
        "shardgate_jwks_unanswered_total",
        "counter",
        "Unknown keys that were not looked for, because that was done too often.",
        |issuer| &issuer.unanswered,
    );
}

/// All metrics in the Prometheus text format 0.0.4.
pub fn text(view: &View) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let mut family = |name: &str, kind: &str, help: &str, values: &[u64]| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (shard, value) in values.iter().enumerate() {
            let _ = writeln!(out, "{name}{{shard=\"{shard}\"}} {value}");
        }
    };
    let all: Vec<_> = view.numbers.iter().map(|numbers| numbers.all()).collect();
    if let Some(first) = all.first() {
        for (index, (name, help, _)) in first.iter().enumerate() {
            let values: Vec<u64> = all.iter().map(|numbers| numbers[index].2).collect();
            family(name, "counter", help, &values);
        }
    }
    let engine = |pick: fn(&shards::EngineCounters) -> u64| -> Vec<u64> {
        view.engine.iter().map(|counters| pick(counters)).collect()
    };
    family(
        "shardgate_accepted_total",
        "counter",
        "Connections accepted.",
        &engine(|c| c.accepted.value()),
    );
    family(
        "shardgate_connections",
        "gauge",
        "Client connections open.",
        &engine(|c| c.open.value()),
    );
    family(
        "shardgate_handed_over_total",
        "counter",
        "Connections sent to their owner.",
        &engine(|c| c.handed_over.value()),
    );
    family(
        "shardgate_received_total",
        "counter",
        "Connections received from another shard.",
        &engine(|c| c.received.value()),
    );
    family(
        "shardgate_forwarded_total",
        "counter",
        "Requests sent over a ring.",
        &engine(|c| c.forwarded.value()),
    );
    family(
        "shardgate_served_total",
        "counter",
        "Requests served for another shard.",
        &engine(|c| c.served.value()),
    );
    family(
        "shardgate_ring_full_total",
        "counter",
        "Messages a full ring refused.",
        &engine(|c| c.ring_full.value()),
    );
    family(
        "shardgate_doorbells_total",
        "counter",
        "Times another shard was woken.",
        &engine(|c| c.doorbells.value()),
    );
    family(
        "shardgate_accept_errors_total",
        "counter",
        "Failed accepts.",
        &engine(|c| c.accept_errors.value()),
    );
    family(
        "shardgate_deadlines_passed_total",
        "counter",
        "Connections ended by a time limit.",
        &engine(|c| c.deadlines_passed.value()),
    );
    family(
        "shardgate_allocations_total",
        "counter",
        "Times a shard asked the heap for memory.",
        &engine(|c| c.allocations.value()),
    );
    let snapshots = view.snapshots();
    let sessions: Vec<u64> = snapshots
        .iter()
        .map(|snapshot| snapshot.sessions as u64)
        .collect();
    family("shardgate_sessions", "gauge", "Live sessions.", &sessions);
    let opened: Vec<u64> = snapshots.iter().map(|s| s.upstream_connections.1).collect();
    family(
        "shardgate_upstream_connections_opened_total",
        "counter",
        "Backend connections opened.",
        &opened,
    );
    let idle: Vec<u64> = snapshots
        .iter()
        .map(|s| s.upstream_connections.0 as u64)
        .collect();
    family(
        "shardgate_upstream_connections_idle",
        "gauge",
        "Idle backend connections.",
        &idle,
    );
    refusal_metrics(&mut out, view);
    reload_metrics(&mut out, view);
    issuer_metrics(&mut out, view);
    backend_metrics(&mut out, &view.backends());
    if let Some(numbers) = &view.connection_gateway {
        out.push_str(&crate::connection_gateway::numbers::as_text(numbers));
    }
    if let Some(numbers) = &view.reverse {
        out.push_str(&numbers.as_text());
    }
    debug::metrics(&mut out, view, &snapshots);
    let mut merged = crate::telemetry::Latency::new();
    for snapshot in &snapshots {
        merged.add(&snapshot.latency);
    }
    for (name, help, histogram) in [
        (
            "shardgate_call_seconds",
            "tools/call, request to reply.",
            &merged.total,
        ),
        (
            "shardgate_upstream_seconds",
            "tools/call, the backend's part.",
            &merged.upstream,
        ),
        (
            "shardgate_overhead_seconds",
            "tools/call without the backend's part.",
            &merged.overhead,
        ),
    ] {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} summary");
        for quantile in [0.5, 0.9, 0.99, 0.999] {
            let seconds = histogram.value_at_quantile(quantile) as f64 / 1e6;
            let _ = writeln!(out, "{name}{{quantile=\"{quantile}\"}} {seconds}");
        }
        let sum = histogram.mean() * histogram.len() as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {}", histogram.len());
    }
    let _ = writeln!(
        out,
        "# HELP shardgate_build_info Version and I/O driver.\n# TYPE shardgate_build_info gauge\n\
         shardgate_build_info{{version=\"{}\",driver=\"{}\"}} 1",
        env!("CARGO_PKG_VERSION"),
        view.driver
    );
    out
}

//! What the connection gateway counts, shard by shard, and how it shows it: the contract's JSON and
//! Prometheus text.

use std::{fmt::Write, sync::Arc};

use serde_json::{Value, json};
use shards::counters::Counter;

use crate::settings::ConnectionGateway;

/// Upper bounds of the histogram of exchanges, seconds.
const BOUNDS_S: [f64; 10] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

macro_rules! numbers {
    ($($(#[doc = $doc:literal])* $name:ident => $metric:literal $kind:literal),+ $(,)?) => {
        /// Counters of one shard.
        #[derive(Debug, Default)]
        pub struct GatewayNumbers {
            $($(#[doc = $doc])* pub $name: Counter,)+
            /// Exchanges that ended, by how long they took: a bound each, and the rest.
            exchanges: [Counter; BOUNDS_S.len() + 1],
            /// Milliseconds they took together.
            exchange_ms: Counter,
        }

        impl GatewayNumbers {
            fn all(&self) -> Vec<(&'static str, &'static str, &'static str, u64)> {
                vec![$(($metric, $kind, concat!($($doc),*).trim_ascii(), self.$name.value()),)+]
            }
        }
    };
}

numbers! {
    /// WebSockets that are open.
    connections => "connections" "gauge",
    /// Sessions whose client is there.
    sessions => "sessions" "gauge",
    /// Streamed requests whose answer is outstanding.
    in_flight => "in_flight_requests" "gauge",
    /// Bytes of answers that wait for callers.
    stream_buffer_bytes => "stream_buffer_bytes" "gauge",
    /// Envelopes that wait for clients.
    mailbox_lag => "mailbox_envelopes" "gauge",
    /// Clients that were cut off because they read too slowly.
    slow_consumers => "slow_consumers_total" "counter",
    /// Sessions that ended because nothing was heard of their client.
    lease_expiries => "owner_lease_expiries_total" "counter",
    /// Sessions bound.
    binds => "binds_total" "counter",
    /// Binds refused.
    binds_refused => "binds_refused_total" "counter",
    /// WebSockets refused at the handshake for a limit.
    connections_refused => "connections_refused_total" "counter",
    /// Envelopes published to clients.
    published => "envelopes_published_total" "counter",
    /// Envelopes of clients handed to callers.
    replies => "envelopes_delivered_total" "counter",
    /// Envelopes of clients that nobody waited for.
    late_replies => "envelopes_late_total" "counter",
    /// Envelopes of clients refused with an error.
    envelopes_refused => "envelopes_refused_total" "counter",
    /// Streamed requests that ended with a line of the gateway's own.
    exchanges_failed => "exchanges_failed_total" "counter",
    /// Streamed requests whose caller left.
    exchanges_cancelled => "exchanges_cancelled_total" "counter",
    /// What Redis took for the last script, ms.
    redis_round_trip_ms => "redis_round_trip_ms" "gauge",
}

impl GatewayNumbers {
    /// Keeps what Redis took.
    pub(super) fn saw_round_trip(&self, ms: u64) {
        let before = self.redis_round_trip_ms.value();
        self.redis_round_trip_ms.add(ms.wrapping_sub(before));
    }

    /// Counts an exchange that ended.
    pub(super) fn exchange_took(&self, ms: u64) {
        let is_within = |bound: &f64| ms as f64 <= bound * 1000.0;
        let place = BOUNDS_S
            .iter()
            .position(is_within)
            .unwrap_or(BOUNDS_S.len());
        self.exchanges[place].add(1);
        self.exchange_ms.add(ms);
    }
}

/// The counters of all shards.
pub type AllNumbers = Arc<[Arc<GatewayNumbers>]>;

/// The sum of one counter over all shards.
pub(super) fn sum(all: &AllNumbers, of: impl Fn(&GatewayNumbers) -> &Counter) -> u64 {
    all.iter().map(|numbers| of(numbers).value()).sum()
}

/// The contract's JSON (3.4).
pub(super) fn as_json(all: &AllNumbers, node_id: &str, settings: &ConnectionGateway) -> Value {
    json!({
        "nodeId": node_id,
        "activeConnections": sum(all, |numbers| &numbers.connections),
        "activeSessions": sum(all, |numbers| &numbers.sessions),
        "inFlightRequests": sum(all, |numbers| &numbers.in_flight),
        "streamBufferBytes": sum(all, |numbers| &numbers.stream_buffer_bytes),
        "slowConsumers": sum(all, |numbers| &numbers.slow_consumers),
        "ownerLeaseExpiries": sum(all, |numbers| &numbers.lease_expiries),
        "mailbox": {
            "lag": sum(all, |numbers| &numbers.mailbox_lag),
            // The slowest shard's: they ask the same Redis.
            "redisRoundTripMs": all
                .iter()
                .map(|numbers| numbers.redis_round_trip_ms.value())
                .max()
                .unwrap_or(0),
        },
        "limits": {
            "maxConnections": settings.connections_max,
            "maxSessionsPerSubject": settings.sessions_per_subject_max,
            "maxInFlightPerSession": settings.in_flight_max,
            "maxEnvelopeBytes": settings.envelope_bytes_max,
        },
    })
}

/// Prometheus text, a sample for each shard.
pub fn as_text(all: &AllNumbers) -> String {
    const PREFIX: &str = "shardgate_connection_gateway";
    let mut out = String::new();
    let by_shard: Vec<_> = all.iter().map(|numbers| numbers.all()).collect();
    let Some(first) = by_shard.first() else {
        return out;
    };
    // Writing to a text cannot fail.
    for (index, (name, kind, help, _)) in first.iter().enumerate() {
        let _ = writeln!(
            out,
            "# HELP {PREFIX}_{name} {help}\n# TYPE {PREFIX}_{name} {kind}"
        );
        for (shard, numbers) in by_shard.iter().enumerate() {
            let value = numbers[index].3;
            let _ = writeln!(out, "{PREFIX}_{name}{{shard=\"{shard}\"}} {value}");
        }
    }
    let name = format!("{PREFIX}_exchange_seconds");
    let help = "Streamed requests, from their publication to the last line.";
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
    for (shard, numbers) in all.iter().enumerate() {
        let mut count = 0;
        let bounds = BOUNDS_S.iter().map(ToString::to_string);
        for (bound, counter) in bounds.chain(["+Inf".to_owned()]).zip(&numbers.exchanges) {
            count += counter.value();
            let _ = writeln!(
                out,
                "{name}_bucket{{shard=\"{shard}\",le=\"{bound}\"}} {count}"
            );
        }
        let seconds = numbers.exchange_ms.value() as f64 / 1000.0;
        let _ = writeln!(out, "{name}_sum{{shard=\"{shard}\"}} {seconds}");
        let _ = writeln!(out, "{name}_count{{shard=\"{shard}\"}} {count}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_upwards_and_in_all() {
        let all: AllNumbers = Arc::new([Arc::default(), Arc::default()]);
        for ms in [0, 1, 2, 200_000] {
            all[1].exchange_took(ms);
        }
        all[0].binds.add(3);
        let text = as_text(&all);
        for line in [
            "shardgate_connection_gateway_binds_total{shard=\"0\"} 3",
            "shardgate_connection_gateway_exchange_seconds_bucket{shard=\"1\",le=\"0.001\"} 2",
            "shardgate_connection_gateway_exchange_seconds_bucket{shard=\"1\",le=\"120\"} 3",
            "shardgate_connection_gateway_exchange_seconds_bucket{shard=\"1\",le=\"+Inf\"} 4",
            "shardgate_connection_gateway_exchange_seconds_sum{shard=\"1\"} 200.003",
            "shardgate_connection_gateway_exchange_seconds_count{shard=\"1\"} 4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}

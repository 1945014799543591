//! The gateway's counters of one shard. One writer, no locked instruction ([`shards::counters`]).

use shards::counters::Counter;

use super::Refused;

macro_rules! numbers {
    ($($(#[doc = $doc:literal])* $name:ident => $metric:literal),+ $(,)?) => {
        /// Counters of one shard, as the gateway sees them.
        #[derive(Debug, Default)]
        pub struct Numbers {
            $($(#[doc = $doc])* pub $name: Counter,)+
            /// Requests refused, by reason.
            pub refused: Refused,
        }

        impl Numbers {
            /// Every counter with its metric name and help text.
            pub fn all(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$(($metric, concat!($($doc),*).trim_ascii(), self.$name.value()),)+]
            }
        }
    };
}

numbers! {
    /// Requests that got an answer, of whatever kind.
    requests => "shardgate_requests_total",
    /// Requests of the stateless revision that passed its checks.
    stateless => "shardgate_stateless_requests_total",
    /// Stateless requests bridged to a backend with sessions.
    bridged => "shardgate_stateless_bridged_total",
    /// Calls held while their client, which has no session, is asked something.
    calls_held => "shardgate_calls_held_total",
    /// Lists answered from what a shard remembered.
    lists_cached => "shardgate_lists_cached_total",
    /// Tools left out of a list because of an invalid x-mcp-header.
    tools_invalid => "shardgate_tools_invalid_total",
    /// tools/call requests sent to a backend.
    calls => "shardgate_calls_total",
    /// tools/call requests that ended without a backend's answer.
    calls_failed => "shardgate_calls_failed_total",
    /// Calls of declared tools.
    declared_calls => "shardgate_declared_calls_total",
    /// Calls of declared tools that access rules denied.
    declared_denied => "shardgate_declared_denied_total",
    /// Calls of declared tools that were tried again.
    declared_retries => "shardgate_declared_retries_total",
    /// Calls whose arguments did not conform to the tool's inputSchema.
    arguments_invalid => "shardgate_arguments_invalid_total",
    /// Results that did not conform to the tool's outputSchema.
    results_invalid => "shardgate_results_invalid_total",
    /// Schema validations done off the shards.
    schema_pooled => "shardgate_schema_validations_pooled_total",
    /// Schema validations refused because too many were waiting, or given up.
    schema_exhausted => "shardgate_schema_validations_exhausted_total",
    /// Schema validations that failed themselves.
    schema_failed => "shardgate_schema_validations_failed_total",
    /// Schema validations that took longer than 50 ms.
    schema_slow => "shardgate_schema_validations_slow_total",
    /// Requests without a valid token.
    unauthorized => "shardgate_unauthorized_total",
    /// Tokens whose signature was verified, not found in the cache.
    tokens_verified => "shardgate_tokens_verified_total",
    /// Requests with a token that was revoked.
    tokens_revoked => "shardgate_tokens_revoked_total",
    /// Sessions opened.
    sessions_opened => "shardgate_sessions_opened_total",
    /// Sessions ended by their client.
    sessions_deleted => "shardgate_sessions_deleted_total",
    /// Sessions ended by a time limit.
    sessions_expired => "shardgate_sessions_expired_total",
    /// Backend sessions opened.
    backend_opened => "shardgate_backend_sessions_opened_total",
    /// Backend sessions that could not be opened.
    backend_open_failed => "shardgate_backend_sessions_failed_total",
    /// Backend sessions found lost and opened again.
    backend_reopened => "shardgate_backend_sessions_reopened_total",
    /// Backend sessions whose DELETE failed.
    backend_end_failed => "shardgate_backend_deletes_failed_total",
    /// Answers and notifications that a backend did not take.
    backend_answers_failed => "shardgate_backend_answers_failed_total",
    /// Requests of backends passed on to clients.
    client_asked => "shardgate_client_requests_total",
    /// Requests of backends that their client did not answer in time.
    client_answers_late => "shardgate_client_answers_late_total",
    /// Answers of clients that nobody waited for.
    client_answers_unknown => "shardgate_client_answers_unknown_total",
    /// Requests their client cancelled.
    calls_cancelled => "shardgate_calls_cancelled_total",
    /// Event streams of clients gone on with by Last-Event-ID.
    streams_resumed => "shardgate_streams_resumed_total",
    /// Backends left out of a merged list.
    lists_partial => "shardgate_lists_partial_total",
    /// Backends' lists cut short because a cursor came back.
    lists_cyclic => "shardgate_lists_cyclic_total",
    /// Exposed names that two backends share, counted per list.
    name_collisions => "shardgate_name_collisions_total",
    /// User configurations loaded from the store.
    configs_loaded => "shardgate_configs_loaded_total",
    /// User configurations that could not be read.
    configs_bad => "shardgate_configs_bad_total",
    /// Requests served with a configuration the store could not confirm.
    configs_stale => "shardgate_configs_stale_total",
    /// Requests that panicked.
    panics => "shardgate_panics_total",
}

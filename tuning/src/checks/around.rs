//! Checks 25 to 27: what stands around the gateway. Redis is asked, backends are asked, and what
//! reading the configuration found is repeated.

use std::time::Duration;

use crate::{
    around::{self, Answer, Asked, RedisFacts},
    host::Host,
    row::{Draft, Row, Scope, Subject},
};

static REDIS: Subject = Subject {
    number: 25,
    name: "Redis",
    wanted: "p99 < 2 ms, noeviction, clocks within 1 s",
    why: "a user's first call waits for Redis, and an evicted user configuration is a user who \
          cannot call any more",
    scope: Scope::Process,
};

const REDIS_P99_MAX: Duration = Duration::from_millis(2);
const CLOCK_SKEW_MAX_MS: u64 = 1_000;

/// 25: the store of user configurations.
pub(super) fn redis(host: &Host) -> Row {
    let mut draft = Draft::new(&REDIS);
    match &host.redis {
        None => draft.unseen("not asked: --redis HOST:PORT names it"),
        Some(address) => match around::ask_redis(address) {
            Err(fault) => draft.fatal(
                format!("{address}: {fault}"),
                "start it, or let this host through to it",
            ),
            Ok(facts) => judge_redis(&mut draft, &facts),
        },
    }
    draft.finish(&host.place)
}

fn judge_redis(draft: &mut Draft, facts: &RedisFacts) {
    let found = format!(
        "PING p50 {} us, p99 {} us of {}",
        facts.p50.as_micros(),
        facts.p99.as_micros(),
        facts.pings
    );
    if facts.p99 < REDIS_P99_MAX {
        draft.ok(found);
    } else {
        draft.warn(
            found,
            "a Redis nearer to the gateway, or one with less to do",
        );
    }
    match &facts.version {
        Some(version) => draft.ok(format!("version {version}")),
        None => draft.unseen("its version (INFO was refused)"),
    }
    match facts.eviction.as_deref() {
        Some(policy @ "noeviction") => draft.ok(policy),
        Some(policy) => draft.warn(
            format!("maxmemory-policy {policy}"),
            "CONFIG SET maxmemory-policy noeviction, or a Redis for configurations alone",
        ),
        None => draft.unseen("maxmemory-policy (CONFIG GET was refused)"),
    }
    match facts.clock_skew_ms {
        Some(skew) if skew <= CLOCK_SKEW_MAX_MS => draft.ok(format!("clocks {skew} ms apart")),
        Some(skew) => draft.warn(
            format!("clocks {skew} ms apart"),
            "time synchronisation (chrony, systemd-timesyncd) on both hosts",
        ),
        None => draft.unseen("its clock (TIME was refused)"),
    }
}

static BACKENDS: Subject = Subject {
    number: 26,
    name: "backends",
    wanted: "all answer initialize",
    why: "a backend that cannot be reached is missing from every list, and its tools fail",
    scope: Scope::Process,
};

/// 26: the backends of the documents.
pub(super) fn backends(host: &Host) -> Row {
    let mut draft = Draft::new(&BACKENDS);
    let Some(documents) = &host.documents else {
        draft.unseen("not asked: --config-file names their document");
        return draft.finish(&host.place);
    };
    if documents.backends.is_empty() {
        draft.unseen("no backend in the documents");
    }
    for Asked { name, answer } in around::ask_backends(&documents.backends) {
        match answer {
            Answer::Speaks { server, took } => {
                draft.ok(format!("{name} {server} in {} ms", took.as_millis()));
            }
            Answer::Connects { took } => draft.info(format!(
                "{name} takes connections ({} ms), TLS not tried",
                took.as_millis()
            )),
            Answer::Refuses { status } if status == 401 || status == 403 => {
                draft.info(format!("{name} asks for credentials ({status})"));
            }
            Answer::Refuses { status } => draft.warn(
                format!("{name} answers initialize with {status}"),
                format!("see that the path of {name} is its MCP endpoint"),
            ),
            Answer::Fails(fault) => draft.warn(
                format!("{name}: {fault}"),
                format!("start {name}, or let this host through to it"),
            ),
        }
    }
    draft.finish(&host.place)
}

static CONFIGURATION: Subject = Subject {
    number: 27,
    name: "configuration",
    wanted: "no findings, secrets readable by their owner alone",
    why: "what is wrong in a document is found now, or by the user it concerns",
    scope: Scope::Process,
};

/// Findings that are told one by one; more are counted.
const FINDINGS_TOLD: usize = 5;

/// 27: findings of the documents, and who may read the files.
pub(super) fn configuration(host: &Host) -> Row {
    let mut draft = Draft::new(&CONFIGURATION);
    let Some(documents) = &host.documents else {
        draft.unseen("not read: --config-file names the document");
        return draft.finish(&host.place);
    };
    for fault in documents.faults.iter().take(FINDINGS_TOLD) {
        draft.fatal(fault, "see `shardgate config check`");
    }
    for finding in documents.findings.iter().take(FINDINGS_TOLD) {
        draft.warn(finding, "see `shardgate config check`");
    }
    let more = (documents.faults.len().saturating_sub(FINDINGS_TOLD))
        + documents.findings.len().saturating_sub(FINDINGS_TOLD);
    if more > 0 {
        draft.info(format!("{more} more"));
    }
    for path in &documents.open_to_others {
        draft.warn(
            format!("{path} may be read by everyone"),
            format!("chmod o-rwx {path}"),
        );
    }
    if documents.faults.is_empty() && documents.findings.is_empty() {
        draft.ok(format!(
            "{} backends, no findings",
            documents.backends.len()
        ));
    }
    draft.finish(&host.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{place::Place, row::Severity};

    fn facts() -> RedisFacts {
        RedisFacts {
            pings: 100,
            p50: Duration::from_micros(80),
            p99: Duration::from_micros(190),
            version: Some("7.0.15".to_owned()),
            eviction: Some("noeviction".to_owned()),
            clock_skew_ms: Some(3),
        }
    }

    #[test]
    fn each_fact_about_redis_is_judged() {
        let judged = |facts: RedisFacts| {
            let mut draft = Draft::new(&REDIS);
            judge_redis(&mut draft, &facts);
            draft.finish(&Place::default())
        };
        assert_eq!(judged(facts()).severity, Severity::Ok);
        let late = RedisFacts {
            p99: REDIS_P99_MAX,
            ..facts()
        };
        assert_eq!(judged(late).severity, Severity::Warn);
        let evicts = RedisFacts {
            eviction: Some("allkeys-lru".to_owned()),
            ..facts()
        };
        assert!(judged(evicts).fix.contains("noeviction"));
        let skewed = RedisFacts {
            clock_skew_ms: Some(1_001),
            ..facts()
        };
        assert_eq!(judged(skewed).severity, Severity::Warn);
        let silent = RedisFacts {
            version: None,
            eviction: None,
            clock_skew_ms: None,
            ..facts()
        };
        let row = judged(silent);
        assert_eq!((row.severity, row.unseen.len()), (Severity::Ok, 3));
    }
}

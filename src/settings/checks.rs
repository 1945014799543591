//! What must hold between settings, and between settings and this host.
//!
//! Every rule that needs more than one value stands here, once, with the reason beside it. Rules
//! only report; they never change a value, except for a bound that another bound already implies.

use super::issuer::ISSUERS_MAX;
use super::reader::Reader;
use super::{Purpose, Settings, StoreSource, UpstreamMode};
use crate::auth::{Audience, IssuerRules};
use std::fs::{File, Metadata};
use std::net::SocketAddr;
use std::path::Path;

/// Settings whose feature this version does not have, and what is missing. They are checked like
/// all others, but switching one on is refused: an operator must not believe in it.
const NOT_YET: [(&str, &str); 4] = [
    ("enable-open-telemetry", "export traces"),
    (
        "enable-otel-metrics",
        "export metrics; scrape /metrics on --admin-address instead",
    ),
    ("runtime-plugins-enabled", "run plugins"),
    ("log-name", "write log files; logs go to standard error"),
];

/// Applies every rule.
pub(super) fn check(settings: &mut Settings, reader: &mut Reader<'_>, purpose: Purpose) {
    session_bounds(settings, reader);
    profiles(settings, reader);
    upstream_files(settings, reader);
    if purpose == Purpose::Serve {
        sockets(settings, reader);
        open_doors(settings, reader);
        missing_features(settings, reader);
        ignored(settings, reader);
    }
}

/// Whether a file can be opened for reading; a pipe is taken on trust, opening would consume it.
pub(super) fn readable(path: &Path) -> Result<(), String> {
    let opened = std::fs::metadata(path).and_then(|metadata| {
        if metadata.is_file() {
            File::open(path).map(|_| metadata)
        } else {
            Ok(metadata)
        }
    });
    match opened {
        Ok(metadata) if metadata.is_dir() => Err("is a folder, not a file".into()),
        Ok(_) => Ok(()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// Whether a file can be opened or a folder can be listed.
pub(super) fn readable_tree(path: &Path) -> Result<(), String> {
    if std::fs::metadata(path).as_ref().is_ok_and(Metadata::is_dir) {
        return match std::fs::read_dir(path) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("cannot be listed: {error}")),
        };
    }
    readable(path)
}

/// Whether a folder exists or could be made: nothing else may stand in its place.
pub(super) fn folder(path: &Path) -> Result<(), String> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_dir() => Err("is not a folder".into()),
        _ => Ok(()),
    }
}

/// Whether only this host can reach an address.
fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Whether two listeners would compete for connections: SO_REUSEPORT lets both bind.
fn overlap(left: SocketAddr, right: SocketAddr) -> bool {
    let everywhere = |address: SocketAddr| address.ip().is_unspecified();
    // A wildcard of IPv6 also takes IPv4 connections, a wildcard of IPv4 no IPv6 ones.
    let covers = |wide: SocketAddr, other: SocketAddr| {
        everywhere(wide) && (wide.is_ipv6() || other.is_ipv4())
    };
    left.port() != 0
        && left.port() == right.port()
        && (left.ip() == right.ip() || covers(left, right) || covers(right, left))
}

/// A gateway that speaks nothing serves nobody (contract dual-profile 7).
fn profiles(settings: &Settings, reader: &mut Reader<'_>) {
    let protocols = &settings.protocols;
    if !protocols.stateless && !protocols.legacy {
        reader.fault(
            "stateless-enabled",
            "no protocol revision is left: switch this or --legacy-enabled on",
        );
    }
}

fn sockets(settings: &Settings, reader: &mut Reader<'_>) {
    let listen = &settings.listen;
    let named = [
        ("address", listen.plain),
        ("tls-address", listen.tls.as_ref().map(|tls| tls.address)),
        ("admin-address", listen.admin),
    ];
    for (index, (flag, address)) in named.iter().enumerate() {
        for (other_flag, other) in &named[..index] {
            if let (Some(address), Some(other)) = (*address, *other)
                && overlap(address, other)
            {
                let problem = format!("{address} is the same socket as {other} of --{other_flag}");
                reader.fault(flag, problem);
            }
        }
    }
    if let Some(admin) = listen.admin
        && !is_loopback(admin)
    {
        let text = format!("{admin} is not loopback and the admin pages ask for no token");
        reader.note("admin-address", text);
    }
}

/// Who can come in without a token, and from where.
fn open_doors(settings: &Settings, reader: &mut Reader<'_>) {
    let (access, auth) = (&settings.access, &settings.auth);
    let has_key = auth.public_key.is_some() || auth.secret.is_some();
    // A key that was said but is faulty has its own fault already.
    let key_said = reader.is_said("token-verification-public-key")
        || reader.is_said("token-verification-secret")
        || reader.is_said("trusted-issuer");
    if !access.allow_anonymous {
        if !has_key && !key_said {
            reader.fault(
                "token-verification-secret",
                "no key to check tokens with: give --token-verification-secret, \
                 --token-verification-public-key or --trusted-issuer, or serve everyone with \
                 --allow-anonymous",
            );
        }
        if access.allow_anonymous_remote {
            reader.note(
                "allow-anonymous-remote",
                "has no effect without --allow-anonymous",
            );
        }
    }
    for address in settings.listen.addresses() {
        if access.allow_anonymous && !access.allow_anonymous_remote && !is_loopback(address) {
            let problem = format!(
                "would serve everyone who reaches {address}: listen on a loopback address, or say \
                 --allow-anonymous-remote when that is meant"
            );
            reader.fault("allow-anonymous", problem);
        }
    }
    public_url(settings, reader);
    issuers(settings, reader, has_key);
    for address in settings.listen.addresses().chain(settings.listen.admin) {
        if access.bootstrap_helpers && !is_loopback(address) {
            let problem = format!(
                "hands out tokens, so all listeners must be on loopback addresses; {address} is not"
            );
            reader.fault("bootstrap-helpers", problem);
        }
    }
    if access.bootstrap_helpers && auth.audience_is_resource {
        let text = "its tokens name --token-audience, which --resource-audience does not take";
        reader.note("bootstrap-helpers", text);
    }
    if access.bootstrap_helpers && auth.secret.is_none() && auth.signing_key.is_none() {
        let text = "neither a secret nor a private key is given, so no token can be signed";
        reader.note("bootstrap-helpers", text);
    }
}

/// What needs the address clients know the gateway by, and what that is good for.
fn public_url(settings: &Settings, reader: &mut Reader<'_>) {
    let (access, auth) = (&settings.access, &settings.auth);
    let wants_resource = |rules: &IssuerRules| rules.audience == Audience::Resource;
    let by_issuer = auth.trusted_issuers.iter().any(wants_resource);
    if !reader.is_said("public-url") {
        if !access.authorization_servers.is_empty() {
            reader.fault("public-url", "required by --authorization-server");
        }
        if auth.audience_is_resource {
            reader.fault("public-url", "required by --resource-audience");
        }
        if by_issuer {
            let problem = "required by a --trusted-issuer without audience=, whose tokens must \
                           name the endpoint's own address";
            reader.fault("public-url", problem);
        }
    } else if !reader.is_said("authorization-server")
        && !reader.is_said("trusted-issuer")
        && !auth.audience_is_resource
    {
        let text = "no effect without --authorization-server, --trusted-issuer or \
                    --resource-audience";
        reader.note("public-url", text);
    }
    if auth.audience_is_resource && reader.is_said("token-audience") {
        reader.note("token-audience", "no effect beside --resource-audience");
    }
}

/// Issuers must be told apart, and so must the people they name.
fn issuers(settings: &Settings, reader: &mut Reader<'_>, has_key: bool) {
    let (flag, auth) = ("trusted-issuer", &settings.auth);
    let issuers = &auth.trusted_issuers;
    if issuers.len() > ISSUERS_MAX {
        reader.fault(
            flag,
            format!("{} issuers, at most {ISSUERS_MAX} may be", issuers.len()),
        );
    }
    for (index, rules) in issuers.iter().enumerate() {
        let before = issuers.iter().take(index);
        if before.clone().any(|other| other.issuer == rules.issuer) {
            reader.fault(flag, format!("{} stands twice", rules.issuer));
        }
        if has_key && *rules.issuer == *auth.issuer {
            let problem = format!(
                "{} is --token-issuer, which has a key already",
                rules.issuer
            );
            reader.fault(flag, problem);
        }
        let is_alone = !has_key && issuers.len() == 1;
        let mut same = before.filter(|other| other.subject_prefix == rules.subject_prefix);
        if !is_alone && (same.next().is_some() || has_key && rules.subject_prefix.is_empty()) {
            let text = format!(
                "{} and another issuer can name the same user, who then has one configuration; \
                 subject-prefix= tells them apart",
                rules.issuer
            );
            reader.note(flag, text);
        }
    }
    if issuers.is_empty() && reader.is_said("issuer-trust-bundle") {
        reader.note("issuer-trust-bundle", "no effect without --trusted-issuer");
    }
}

/// The modes that may present a client certificate need one; half of a pair is always a mistake.
fn upstream_files(settings: &Settings, reader: &mut Reader<'_>) {
    let mode = settings.upstream.mode;
    let needs = matches!(mode, UpstreamMode::PlainTextOrMtls | UpstreamMode::MtlsOnly);
    let pair = ["upstream-certificate", "upstream-private-key"];
    let said = pair.map(|flag| reader.is_said(flag));
    for (flag, other, is_said, other_said) in [
        (pair[0], pair[1], said[0], said[1]),
        (pair[1], pair[0], said[1], said[0]),
    ] {
        if is_said {
            continue;
        }
        if needs {
            let problem = "required by this --upstream-connection-mode, which presents a client \
                           certificate";
            reader.fault(flag, problem);
        } else if other_said {
            reader.fault(flag, format!("required beside --{other}"));
        }
    }
    if !needs && said == [true, true] {
        let text = "not used by this --upstream-connection-mode; plain-text-or-m-tls and \
                    mtls-only present it";
        reader.note(pair[0], text);
    }
}

fn session_bounds(settings: &mut Settings, reader: &mut Reader<'_>) {
    let times = &settings.timeouts;
    if times.jwks_stale_max < times.jwks_age_max {
        reader.fault("jwks-stale-max", "must be at least --jwks-age-max");
    }
    let limits = &mut settings.limits;
    if limits.sessions_per_principal_max > limits.sessions_max {
        if reader.is_said("sessions-per-principal-max") {
            let text = format!(
                "--sessions-max {} is the smaller bound",
                limits.sessions_max
            );
            reader.note("sessions-per-principal-max", text);
        }
        limits.sessions_per_principal_max = limits.sessions_max;
    }
    if limits.target_bytes_max >= limits.head_bytes_max {
        let said = reader.is_said("target-bytes-max");
        let flag = if said {
            "target-bytes-max"
        } else {
            "head-bytes-max"
        };
        reader.fault(
            flag,
            "--target-bytes-max must be smaller than --head-bytes-max",
        );
    }
    let timeouts = &settings.timeouts;
    if timeouts.session_idle > timeouts.session_age_max {
        let said = reader.is_said("session-idle-timeout");
        let flag = if said {
            "session-idle-timeout"
        } else {
            "session-age-max"
        };
        reader.fault(
            flag,
            "--session-idle-timeout must not exceed --session-age-max",
        );
    }
}

fn missing_features(settings: &Settings, reader: &mut Reader<'_>) {
    let telemetry = &settings.telemetry;
    for (flag, missing) in NOT_YET {
        let on = match flag {
            "enable-open-telemetry" => telemetry.traces,
            "enable-otel-metrics" => telemetry.metrics,
            "runtime-plugins-enabled" => settings.upstream.plugins,
            _ => reader.is_said(flag),
        };
        if on {
            reader.fault(flag, format!("this version does not {missing}"));
        }
    }
}

/// What was said and changes nothing, so that nobody waits for an effect.
fn ignored(settings: &Settings, reader: &mut Reader<'_>) {
    if reader.is_said("single-runtime") {
        let text = "ignored: every shard is a thread with a runtime of its own";
        reader.note("single-runtime", text);
    }
    if reader.is_said("log-rotation") && !reader.is_said("log-name") {
        reader.note("log-rotation", "ignored: logs go to standard error");
    }
    let telemetry = &settings.telemetry;
    for flag in [
        "otlp-protocol",
        "otlp-endpoint",
        "otlp-headers",
        "otlp-service-name",
    ] {
        if !telemetry.traces && !telemetry.metrics && reader.is_said(flag) {
            reader.note(flag, "no effect while nothing is exported");
        }
    }
    if !telemetry.metrics && reader.is_said("otlp-metrics-endpoint") {
        reader.note(
            "otlp-metrics-endpoint",
            "no effect without --enable-otel-metrics",
        );
    }
    for name in ["RUST_FILE_LOG", "RUST_TRACE_LOG"] {
        if reader.environment.value(name).is_some() {
            reader.note_variable(name, "ignored: use --log-level");
        }
    }
    if settings.listen.tls.is_none() && !reader.is_said("tls-address") {
        for flag in ["server-certificate", "server-private-key"] {
            if reader.is_said(flag) {
                reader.note(flag, "no effect without --tls-address");
            }
        }
    }
    if settings.upstream.allow_stdio && !matches!(settings.store.source, StoreSource::File(_)) {
        let text = "no effect without --config-file: no other store starts child processes";
        reader.note("allow-stdio", text);
    }
    if settings.store.check_revoked_tokens
        && !matches!(settings.store.source, StoreSource::Redis(_))
    {
        let text = "no effect without Redis: files list revoked tokens themselves";
        reader.note("check-revoked-tokens", text);
    }
    if matches!(settings.store.source, StoreSource::File(_))
        && reader.is_said("user-config-cache-expiry-seconds")
    {
        let text = "no effect on --config-file, which is watched";
        reader.note("user-config-cache-expiry-seconds", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_compete_with_the_addresses_they_cover() {
        for (left, right, competes) in [
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("127.0.0.1:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "[::1]:80", false),
            ("[::]:80", "0.0.0.0:80", true),
            ("127.0.0.1:0", "127.0.0.1:0", false),
        ] {
            let (one, other) = (left.parse().unwrap(), right.parse().unwrap());
            assert_eq!(overlap(one, other), competes, "{left} {right}");
            assert_eq!(overlap(other, one), competes, "{right} {left}");
        }
    }

    #[test]
    fn loopback_is_known_in_both_families() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
        ] {
            assert_eq!(is_loopback(text.parse().unwrap()), loopback, "{text}");
        }
    }

    #[test]
    fn a_folder_is_not_a_key_and_a_file_is_not_a_folder() {
        let folder_path = std::env::temp_dir();
        assert_eq!(
            readable(&folder_path),
            Err("is a folder, not a file".into())
        );
        assert_eq!(readable_tree(&folder_path), Ok(()));
        assert_eq!(folder(&folder_path), Ok(()));
        let missing = folder_path.join("shardgate-no-such-file");
        assert!(readable(&missing).is_err() && readable_tree(&missing).is_err());
        assert_eq!(folder(&missing), Ok(()));
        let file = std::env::current_exe().unwrap();
        assert_eq!(readable(&file), Ok(()));
        assert_eq!(folder(&file), Err("is not a folder".into()));
    }
}

//! What cannot hold together is refused, each with exactly its lines.

use super::{LEAST, scratch::Scratch};

/// Each command line is refused with exactly these lines.
#[test]
fn what_cannot_hold_together_is_refused() {
    let scratch = Scratch::new("refused");
    let redis = "--redis-address r --redis-port 1";
    let anonymous = "--allow-anonymous";
    let file = "--config-file @users.json";
    for (line, faults) in [
        // Users come from one place.
        (
            format!("{LEAST} {redis} --redis-mode plain-text"),
            &[
                "flag --config-file: user configurations come from one place: give --config-file \
               or the redis options, not both; --redis-address is given too",
            ][..],
        ),
        (
            format!("{anonymous} --redis-database 1"),
            &[
                "--redis-address (not given): required when any redis option is given",
                "--redis-port (not given): required when any redis option is given",
                "--redis-mode (not given): required when any redis option is given",
            ],
        ),
        (
            format!("{anonymous} {redis} --redis-mode tls"),
            &["--redis-tls-trust-bundle (not given): required by this --redis-mode"],
        ),
        (
            format!("{anonymous} {redis} --redis-mode mtls --redis-tls-trust-bundle @ca.pem"),
            &[
                "--redis-tls-client-certificate (not given): required by this --redis-mode",
                "--redis-tls-client-private-key (not given): required by this --redis-mode",
            ],
        ),
        (
            format!("{anonymous} {redis} --redis-mode TLS"),
            &["flag --redis-mode: \"TLS\" must be one of plain-text, tls, mtls"],
        ),
        (
            format!("{anonymous} {redis} --redis-mode plain-text --redis-username u"),
            &["flag --redis-username: needs --redis-password or --redis-password-file"],
        ),
        (
            format!(
                "{anonymous} {redis} --redis-mode plain-text --redis-password p \
                 --redis-password-file @key.pem"
            ),
            &["flag --redis-password-file: give it or --redis-password, not both"],
        ),
        (
            format!("{anonymous} --redis-address r:1 --redis-port 70000 --redis-mode plain-text"),
            &[
                "flag --redis-address: \"r:1\" must not hold a port: that is --redis-port",
                "flag --redis-port: \"70000\" must be between 1 and 65535",
            ],
        ),
        // Who may come in.
        (
            file.to_owned(),
            &[
                "--token-verification-secret (not given): no key to check tokens with: give \
               --token-verification-secret, or --token-verification-public-key, or serve \
               everyone with --allow-anonymous",
            ],
        ),
        (
            format!("{LEAST} --address 0.0.0.0:8001"),
            &[
                "flag --allow-anonymous: would serve everyone who reaches 0.0.0.0:8001: listen on \
               a loopback address, or say --allow-anonymous-remote when that is meant",
            ],
        ),
        (
            format!(
                "{file} --token-verification-secret file:/nonexistent --bootstrap-helpers \
                 --admin-address 10.0.0.1:9901"
            ),
            &[
                "flag --token-verification-secret: cannot read /nonexistent: No such file or \
                 directory (os error 2)",
                "flag --bootstrap-helpers: hands out tokens, so all listeners must be on loopback \
                 addresses; 10.0.0.1:9901 is not",
            ],
        ),
        // Listeners.
        (
            format!(
                "{LEAST} --address 127.0.0.1:9901 --tls-address [::1]:9901 \
                 --server-certificate @cert.pem --server-private-key @key.pem"
            ),
            &[
                "--admin-address (not given): 127.0.0.1:9901 is the same socket as 127.0.0.1:9901 \
               of --address",
            ],
        ),
        (
            format!("{LEAST} --tls-address 127.0.0.1:1 --server-certificate @cert.pem"),
            &["--server-private-key (not given): required by --tls-address"],
        ),
        // Shards.
        (
            format!("{LEAST} --shards 3 --cpu-list 0-1"),
            &["flag --cpu-list: names 2 CPUs, too few for 3 shards"],
        ),
        (
            format!("{LEAST} --no-pin --cpu-list 0-1"),
            &["flag --cpu-list: says where to pin, and --no-pin not to pin: give one of them"],
        ),
        (
            format!("{LEAST} --io-driver uring"),
            &["flag --io-driver: \"uring\" must be one of auto, io-uring, epoll"],
        ),
        // Upstream.
        (
            format!("{LEAST} --upstream-connection-mode mtls-only"),
            &[
                "--upstream-certificate (not given): required by this --upstream-connection-mode, \
                 which presents a client certificate",
                "--upstream-private-key (not given): required by this --upstream-connection-mode, \
                 which presents a client certificate",
            ],
        ),
        (
            format!("{LEAST} --upstream-certificate @cert.pem"),
            &["--upstream-private-key (not given): required beside --upstream-certificate"],
        ),
        // Bounds that contradict each other.
        (
            format!("{LEAST} --session-idle-timeout 2h --session-age-max 1h"),
            &[
                "flag --session-idle-timeout: --session-idle-timeout must not exceed \
               --session-age-max",
            ],
        ),
        (
            format!("{LEAST} --head-bytes-max 2KiB"),
            &["flag --head-bytes-max: --target-bytes-max must be smaller than --head-bytes-max"],
        ),
        // Features that are not there are not pretended.
        (
            format!(
                "{LEAST} --enable-open-telemetry --enable-otel-metrics true \
                 --runtime-plugins-enabled"
            ),
            &[
                "flag --enable-open-telemetry: this version does not export traces",
                "flag --enable-otel-metrics: this version does not export metrics; scrape \
                 /metrics on --admin-address instead",
                "flag --runtime-plugins-enabled: this version does not run plugins",
            ],
        ),
        (
            format!("{LEAST} --otlp-headers sesame"),
            &["flag --otlp-headers: malformed OTLP header entry (missing '=' separator)"],
        ),
    ] {
        assert_eq!(scratch.faults(&line), faults, "{line}");
    }
}

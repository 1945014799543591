//! What cannot hold together is refused, each with exactly its lines.

use shardgate::settings::{Environment, Flags, Settings};

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
               --token-verification-secret, --token-verification-public-key or --trusted-issuer, or \
               serve everyone with --allow-anonymous",
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
        (
            format!("{file} --token-verification-secret s --resource-audience"),
            &["--public-url (not given): required by --resource-audience"],
        ),
        (
            format!("{LEAST} --authorization-server https://idp.example"),
            &["--public-url (not given): required by --authorization-server"],
        ),
        // Bounds that contradict each other.
        (
            format!("{LEAST} --jwks-age-max 2h --jwks-stale-max 1h"),
            &["flag --jwks-stale-max: must be at least --jwks-age-max"],
        ),
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

/// The faults of a settings file that trusts these issuers.
fn faults_of(issuers: &[&str], more: &str) -> Vec<String> {
    let scratch = Scratch::new("issuers");
    let file = scratch.0.join("users.json").display().to_string();
    let text = format!(
        "[auth]\ntrusted_issuer = {issuers:?}\n{more}\n[store]\nconfig_file = {file:?}\n\
         [process]\nstate_dir = {:?}\n",
        scratch.0.display().to_string()
    );
    match Settings::resolve(&Flags::none(), &Environment::default(), Some(&text)) {
        Ok((settings, _)) => {
            assert_eq!(settings.auth.trusted_issuers.len(), issuers.len());
            Vec::new()
        }
        Err(faults) => faults.iter().map(|fault| fault.problem.clone()).collect(),
    }
}

#[test]
fn issuers_are_told_apart_and_asked_safely() {
    let one = "https://a.example jwks=https://a.example/keys audience=mcp";
    let two = "https://b.example jwks=https://b.example/keys audience=mcp subject-prefix=b:";
    assert_eq!(faults_of(&[one], ""), [] as [&str; 0]);
    assert_eq!(faults_of(&[one, two], ""), [] as [&str; 0]);
    let plain = "https://a.example jwks=http://a.example/keys audience=mcp";
    let secret = "https://a.example jwks=https://a.example/keys algorithms=HS256 audience=mcp";
    let own = "mcpgateway jwks=https://a.example/keys audience=mcp";
    let for_endpoint = "https://a.example jwks=https://a.example/keys";
    let many: Vec<String> = (0..17)
        .map(|number| {
            format!("i{number} jwks=https://a.example/ audience=a subject-prefix={number}")
        })
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let key = "token_verification_secret = \"s\"";
    for (issuers, more, problem) in [
        (&[one, one][..], "", "https://a.example stands twice"),
        (&[plain], "", "plain http is only for loopback"),
        (&[secret], "", "has the algorithm HS256, which is none of"),
        (&[own], key, "is --token-issuer, which has a key already"),
        (
            &[for_endpoint],
            "",
            "whose tokens must name the endpoint's own address",
        ),
        (&many, "", "17 issuers, at most 16 may be"),
    ] {
        let faults = faults_of(issuers, more);
        let found = faults
            .iter()
            .filter(|fault| fault.contains(problem))
            .count();
        assert_eq!(found, 1, "{problem}: {faults:#?}");
    }
}

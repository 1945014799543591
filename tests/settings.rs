//! What an operator says is either served or answered with every reason why not.
//!
//! Calls the library, not the binary: command line, environment and file text go in, settings or
//! fault lines come out. No test changes the environment of this process.

#![expect(
    clippy::unwrap_used,
    reason = "the helpers of these tests fail the test that calls them"
)]

#[path = "settings/contract.rs"]
mod contract;
#[path = "settings/refused.rs"]
mod refused;
#[path = "settings/scratch.rs"]
mod scratch;

use scratch::{Scratch, lines};
use shardgate::settings::{
    Environment, FailMode, Fault, Flags, IoDriver, LogLevel, Note, OtlpProtocol, Purpose,
    RedisConnection, SETTINGS, Secret, Settings, Shape, StoreSource, UpstreamMode,
};
use std::path::Path;
use std::time::Duration;

/// The least that can be served.
const LEAST: &str = "--config-file @users.json --allow-anonymous";

#[test]
fn the_least_command_line_serves_on_loopback() {
    let scratch = Scratch::new("least");
    let settings = scratch.settings(LEAST);
    let addresses: Vec<_> = settings.listen.addresses().map(|a| a.to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1:8001"]);
    assert_eq!(
        settings.listen.admin,
        Some("127.0.0.1:9901".parse().unwrap())
    );
    assert_eq!(
        settings.store.source,
        StoreSource::File(scratch.0.join("users.json"))
    );
    assert_eq!(settings.store.cache_expiry, Duration::from_secs(60));
    assert_eq!(settings.shards.count, None);
    assert_eq!(settings.shards.driver, IoDriver::Auto);
    assert!(settings.shards.pin && !settings.listen.take_over);
    assert_eq!(settings.auth.issuer, "mcpgateway");
    assert_eq!(settings.auth.audience, "mcpgateway-api");
    assert_eq!(settings.upstream.mode, UpstreamMode::TlsOnly);
    assert_eq!(settings.upstream.fail_mode, FailMode::Open);
    assert_eq!(settings.limits.sessions_max, 10_000);
    assert_eq!(settings.limits.sessions_per_principal_max, 1000);
    assert_eq!(settings.timeouts.call, Duration::from_secs(300));
    assert_eq!(settings.telemetry.log_level, LogLevel::Info);
    assert_eq!(
        settings.state_dir,
        Path::new("/home/operator/.local/state/shardgate")
    );
    assert_eq!(scratch.notes(LEAST), [""; 0]);
}

#[test]
fn every_fault_is_told_at_once_with_where_it_was_said() {
    let scratch = Scratch::new("all-faults");
    let flags = scratch.flags("--shards 0 --head-timeout 10 --tls-address 127.0.0.1:8443");
    let environment = Environment::from_pairs([
        ("HOME", "/home/operator"),
        ("SHARDGATE_FAIL_MODE", "half"),
        ("CONTEXTFORGE_GATEWAY_RS_ADDRESS", "localhost:8001"),
    ]);
    let file = "[limits]\nbody_bytes_max = \"4MB\"\n";
    let faults = Settings::resolve(&flags, &environment, Some(file)).unwrap_err();
    let mut faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
    faults.sort();
    let beginnings = [
        "--config-file (not given): no user configurations: give --config-file",
        "--server-certificate (not given): required by --tls-address",
        "--server-private-key (not given): required by --tls-address",
        "--token-verification-secret (not given): no key to check tokens with",
        "environment variable CONTEXTFORGE_GATEWAY_RS_ADDRESS: \"localhost:8001\" must be an IP",
        "environment variable SHARDGATE_FAIL_MODE: \"half\" must be one of open, closed",
        "flag --head-timeout: \"10\" is not a duration",
        "flag --shards: \"0\" must be between 1 and 1024",
        "settings file (text) line 2, limits.body_bytes_max: \"4MB\" is not a size",
    ];
    assert_eq!(faults.len(), beginnings.len(), "{faults:#?}");
    for (fault, beginning) in faults.iter().zip(beginnings) {
        assert!(fault.starts_with(beginning), "{fault}");
        assert!(!fault.contains('\n'), "{fault}");
    }
}

#[test]
fn a_flag_wins_over_the_environment_over_the_file() {
    let scratch = Scratch::new("precedence");
    let file = "[limits]\nsessions_max = 11\nconnections_max = 12\nheader_count_max = 13\n";
    let environment = Environment::from_pairs([
        ("HOME", "/home/operator"),
        ("SHARDGATE_SESSIONS_MAX", "21"),
        ("CONTEXTFORGE_DATA_PLANE_CONNECTIONS_MAX", "22"),
    ]);
    let flags = scratch.flags(&format!("{LEAST} --sessions-max 31"));
    let (settings, _) = Settings::resolve(&flags, &environment, Some(file)).unwrap();
    assert_eq!(settings.limits.sessions_max, 31);
    assert_eq!(settings.limits.connections_max, 22);
    assert_eq!(settings.limits.header_count_max, 13);
}

#[test]
fn a_contextforge_environment_is_understood() {
    let scratch = Scratch::new("contextforge");
    for prefix in [
        "CONTEXTFORGE_GATEWAY_RS_",
        "CONTEXTFORGE_DATA_PLANE_",
        "SHARDGATE_",
    ] {
        let pairs = [
            ("ADDRESS", "0.0.0.0:8001".to_owned()),
            ("TLS_ADDRESS", "0.0.0.0:8443".to_owned()),
            ("TLS_SERVER_CERTIFICATE", scratch.path("cert.pem")),
            ("TLS_SERVER_PRIVATE_KEY", scratch.path("key.pem")),
            ("TOKEN_VERIFICATION_PUBLIC_KEY", scratch.path("key.pem")),
            ("TOKEN_SECRET", "my-test-key".to_owned()),
            ("REDIS_HOSTNAME", "redis".to_owned()),
            ("REDIS_PORT", "6379".to_owned()),
            ("REDIS_CONNECTION_MODE", "mtls".to_owned()),
            ("REDIS_TLS_REDIS_TRUST_BUNDLE", scratch.path("ca.pem")),
            (
                "REDIS_TLS_REDIS_CLIENT_CERTIFICATE",
                scratch.path("cert.pem"),
            ),
            (
                "REDIS_TLS_REDIS_CLIENT_PRIVATE_KEY",
                scratch.path("key.pem"),
            ),
            ("USER_CONFIG_CACHE_EXPIRY_SECONDS", "0".to_owned()),
            ("UPSTREAM_CONNECTION_MODE", "plain-text-or-m-tls".to_owned()),
            ("TLS_UPSTREAM_TRUST_BUNDLE", scratch.path("ca.pem")),
            ("TLS_UPSTREAM_CERTIFICATE", scratch.path("cert.pem")),
            ("TLS_UPSTREAM_PRIVATE_KEY", scratch.path("key.pem")),
            ("NUMBER_OF_CPUS", "4".to_owned()),
            ("SINGLE_RUNTIME", "false".to_owned()),
            ("RUNTIME_PLUGINS_ENABLED", "false".to_owned()),
            ("ENABLE_OPEN_TELEMETRY", "false".to_owned()),
            ("ENABLE_OTEL_METRICS", "false".to_owned()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http-protobuf".to_owned()),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "authorization=Bearer x".to_owned(),
            ),
            ("OTEL_SERVICE_NAME", "edge".to_owned()),
            (
                "MCP_ALLOWED_ORIGINS",
                "https://a.example,http://localhost:3000".to_owned(),
            ),
            ("MCP_ALLOWED_HOSTS", "mcp.example".to_owned()),
            ("MCP_STANDARD_HEADER_MAX_COUNT", "0".to_owned()),
        ]
        .map(|(suffix, value)| (format!("{prefix}{suffix}"), value));
        let home = ("HOME".to_owned(), "/home/operator".to_owned());
        let environment = Environment::from_pairs(pairs.into_iter().chain([home]));
        let resolved = Settings::resolve(&Flags::none(), &environment, None);
        let (settings, notes) = resolved.unwrap_or_else(|faults| panic!("{}", lines(&faults)));
        assert_eq!(settings.listen.addresses().count(), 2);
        assert_eq!(settings.auth.secret, Some(Secret::new("my-test-key")));
        let StoreSource::Redis(redis) = &settings.store.source else {
            panic!("not Redis")
        };
        assert_eq!(
            (redis.host.as_str(), redis.port, redis.database),
            ("redis", 6379, 0)
        );
        assert!(matches!(redis.connection, RedisConnection::Mtls { .. }));
        assert_eq!(settings.store.cache_expiry, Duration::ZERO);
        assert_eq!(settings.upstream.mode, UpstreamMode::PlainTextOrMtls);
        assert!(settings.upstream.client.is_some());
        assert_eq!(settings.shards.count.unwrap().get(), 4);
        assert_eq!(settings.telemetry.otlp.protocol, OtlpProtocol::HttpProtobuf);
        assert_eq!(
            settings.telemetry.otlp.endpoint,
            "http://127.0.0.1:4318/v1/traces"
        );
        assert_eq!(settings.telemetry.otlp.service_name, "edge");
        assert_eq!(
            settings.access.origins,
            ["https://a.example", "http://localhost:3000"]
        );
        assert_eq!(settings.access.hosts, ["mcp.example"]);
        assert_eq!(settings.limits.standard_header_count_max, 32);
        // What has no effect is said, never passed over.
        let noted = |name: &str| notes.iter().any(|note| note.to_string().contains(name));
        assert!(noted("SINGLE_RUNTIME: ignored") && noted("OTEL_SERVICE_NAME: no effect"));
    }
}

#[test]
fn a_seed_names_its_cpus_and_log_file_differently() {
    let scratch = Scratch::new("seed");
    let environment = Environment::from_pairs([
        ("HOME", "/home/operator"),
        ("CONTEXTFORGE_GATEWAY_RS_GATEWAY_CPUS", "3"),
        ("CONTEXTFORGE_GATEWAY_LOG_NAME", "gateway.log"),
    ]);
    let faults = Settings::resolve(&scratch.flags(LEAST), &environment, None).unwrap_err();
    assert_eq!(
        lines(&faults),
        "environment variable CONTEXTFORGE_GATEWAY_LOG_NAME: this version does not write log \
         files; logs go to standard error"
    );
    let environment = Environment::from_pairs([
        ("HOME", "/home/operator"),
        ("CONTEXTFORGE_GATEWAY_RS_GATEWAY_CPUS", "3"),
    ]);
    let (settings, _) = Settings::resolve(&scratch.flags(LEAST), &environment, None).unwrap();
    assert_eq!(settings.shards.count.unwrap().get(), 3);
}

#[test]
fn every_file_that_is_named_must_be_readable() {
    let scratch = Scratch::new("files");
    let pem = SETTINGS
        .iter()
        .filter(|setting| setting.shape == Shape::One("PEM"));
    let mut count = 0;
    for setting in pem {
        let flag = setting.flag;
        let missing = format!("flag --{flag}: \"/nonexistent/a.pem\" cannot be read: ");
        let faults = scratch.faults(&format!("{LEAST} --{flag} /nonexistent/a.pem"));
        assert!(
            faults.iter().any(|fault| fault.starts_with(&missing)),
            "{faults:#?}"
        );
        let faults = scratch.faults(&format!("{LEAST} --{flag} /"));
        let folder = format!("flag --{flag}: \"/\" is a folder, not a file");
        assert!(faults.contains(&folder), "{faults:#?}");
        count += 1;
    }
    assert_eq!(count, 11);
    let faults = scratch.faults("--allow-anonymous --config-file /nonexistent/users");
    assert_eq!(faults.len(), 1);
    assert!(faults[0].starts_with("flag --config-file: \"/nonexistent/users\" cannot be read"));
    let settings = scratch.settings("--allow-anonymous --config-file @");
    assert_eq!(settings.store.source, StoreSource::File(scratch.0.join("")));
    let faults = scratch.faults(&format!("{LEAST} --state-dir @key.pem"));
    assert!(faults[0].ends_with("is not a folder"), "{faults:#?}");
}

#[test]
fn what_changes_nothing_is_noted() {
    let scratch = Scratch::new("notes");
    for (more, note) in [
        (
            "--single-runtime true",
            "flag --single-runtime: ignored: every shard is a thread",
        ),
        (
            "--sessions-max 10 --sessions-per-principal-max 20",
            "flag --sessions-per-principal-max: --sessions-max 10 is the smaller bound",
        ),
        (
            "--server-certificate @cert.pem",
            "flag --server-certificate: no effect without --tls",
        ),
        (
            "--otlp-endpoint http://o:1",
            "flag --otlp-endpoint: no effect while nothing is exported",
        ),
        (
            "--log-rotation daily",
            "flag --log-rotation: ignored: logs go to standard error",
        ),
        (
            "--user-config-cache-expiry-seconds 5",
            "flag --user-config-cache-expiry-seconds: no effect on --config-file",
        ),
        (
            "--admin-address 0.0.0.0:9901",
            "flag --admin-address: 0.0.0.0:9901 is not loopback",
        ),
        (
            "--token-verification-secret s",
            "flag --token-verification-secret: a secret on the",
        ),
        (
            "--bootstrap-helpers",
            "flag --bootstrap-helpers: neither a secret nor a private key",
        ),
    ] {
        let notes = scratch.notes(&format!("{LEAST} {more}"));
        assert!(
            notes.len() == 1 && notes[0].starts_with(note),
            "{more}: {notes:#?}"
        );
    }
    // A bound that follows from another one is not worth a word.
    assert_eq!(
        scratch.notes(&format!("{LEAST} --sessions-max 10")),
        [""; 0]
    );
    let settings = scratch.settings(&format!("{LEAST} --sessions-max 10"));
    assert_eq!(settings.limits.sessions_per_principal_max, 10);
}

#[test]
fn a_plain_level_in_rust_log_stands_in_for_the_log_level() {
    let scratch = Scratch::new("rust-log");
    for (variable, line, level, note_count) in [
        ("debug", LEAST.to_owned(), LogLevel::Debug, 0),
        ("info,shards=trace", LEAST.to_owned(), LogLevel::Info, 1),
        (
            "debug",
            format!("{LEAST} --log-level warn"),
            LogLevel::Warn,
            0,
        ),
    ] {
        let environment = Environment::from_pairs([("HOME", "/h"), ("RUST_LOG", variable)]);
        let resolved = Settings::resolve(&scratch.flags(&line), &environment, None);
        let (settings, notes) = resolved.unwrap();
        assert_eq!(
            (settings.telemetry.log_level, notes.len()),
            (level, note_count),
            "{variable}"
        );
    }
}

#[test]
fn state_is_kept_where_xdg_says() {
    let scratch = Scratch::new("state");
    let flags = scratch.flags(LEAST);
    for (pairs, folder) in [
        (
            vec![("XDG_STATE_HOME", "/x"), ("HOME", "/h")],
            Some("/x/shardgate"),
        ),
        (
            vec![("XDG_STATE_HOME", "relative"), ("HOME", "/h")],
            Some("/h/.local/state/shardgate"),
        ),
        (vec![("SHARDGATE_STATE_DIR", "/s")], Some("/s")),
        (vec![], None),
    ] {
        let resolved = Settings::resolve(&flags, &Environment::from_pairs(pairs), None);
        match (resolved, folder) {
            (Ok((settings, _)), Some(folder)) => assert_eq!(settings.state_dir, Path::new(folder)),
            (Err(faults), None) => assert!(lines(&faults).starts_with("--state-dir (not given)")),
            (resolved, _) => panic!("{resolved:?}"),
        }
    }
}

#[test]
fn no_secret_is_ever_printed() {
    let scratch = Scratch::new("secrets");
    std::fs::write(scratch.path("password"), "sesame-file\n").unwrap();
    let line = "--redis-address r --redis-port 1 --redis-mode plain-text --redis-username u \
                --redis-password-file @password --token-verification-secret sesame-flag \
                --otlp-headers authorization=sesame-header";
    let flags = scratch.flags(line);
    let environment = Environment::from_pairs([
        ("HOME", "/h"),
        ("SHARDGATE_TOKEN_SECRET", "sesame-variable"),
    ]);
    let (settings, notes) = Settings::resolve(&flags, &environment, None).unwrap();
    let StoreSource::Redis(redis) = &settings.store.source else {
        panic!("not Redis")
    };
    assert_eq!(redis.password.as_ref().unwrap().bytes(), b"sesame-file");
    assert_eq!(
        settings.telemetry.otlp.headers[0].1.bytes(),
        b"sesame-header"
    );
    let notes: Vec<String> = notes.iter().map(Note::to_string).collect();
    let printed = format!("{settings:#?} {flags:?} {environment:?} {notes:?}");
    assert!(!printed.contains("sesame"), "{printed}");
    // Nor by a fault: the same secrets, now in settings that are refused.
    let refused = scratch.flags(&format!("{line},sesame --shards 0"));
    let faults = Settings::resolve(&refused, &environment, None).unwrap_err();
    assert_eq!(faults.len(), 2);
    assert!(!lines(&faults).contains("sesame"), "{}", lines(&faults));
}

#[test]
fn a_secret_may_be_a_reference() {
    let scratch = Scratch::new("references");
    std::fs::write(scratch.path("token"), "from-file\n").unwrap();
    let environment = Environment::from_pairs([("HOME", "/h"), ("MY_KEY", "from-variable")]);
    let file = format!("file:{}", scratch.path("token"));
    for (said, secret) in [
        (file.as_str(), "from-file"),
        ("env:MY_KEY", "from-variable"),
        ("itself", "itself"),
    ] {
        let mut flags = scratch.flags("--config-file @users.json");
        assert!(flags.set("token-verification-secret", said));
        let (settings, notes) = Settings::resolve(&flags, &environment, None).unwrap();
        assert_eq!(settings.auth.secret, Some(Secret::new(secret)));
        assert_eq!(notes.len(), usize::from(said == "itself"), "{notes:?}");
    }
}

#[test]
fn a_settings_file_is_found_by_flag_or_variable() {
    let scratch = Scratch::new("file");
    let path = scratch.path("shardgate.toml");
    std::fs::write(&path, "[shards]\nshards = 7\n").unwrap();
    let home = ("HOME".to_owned(), "/h".to_owned());
    let by_flag = scratch.flags(&format!("{LEAST} --settings {path}"));
    let nothing = Environment::from_pairs([home.clone()]);
    let by_variable =
        Environment::from_pairs([home, ("SHARDGATE_SETTINGS".to_owned(), path.clone())]);
    for (flags, environment) in [
        (by_flag.clone(), &nothing),
        (scratch.flags(LEAST), &by_variable),
    ] {
        let (settings, _) = Settings::load(&flags, environment, Purpose::Serve).unwrap();
        assert_eq!(settings.shards.count.unwrap().get(), 7);
    }
    std::fs::write(&path, "[shards]\nshard = 7\n").unwrap();
    let faults = Settings::load(&by_flag, &nothing, Purpose::Serve).unwrap_err();
    assert_eq!(
        lines(&faults),
        format!("settings file {path} line 2, shards.shard: unknown key; did you mean shards?")
    );
    // A missing file is told together with what else is wrong, but nothing is called missing
    // that it may have held.
    let flags = scratch.flags("--settings /nonexistent.toml --fail-mode x");
    let faults = Settings::load(&flags, &nothing, Purpose::Serve).unwrap_err();
    let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
    assert_eq!(faults.len(), 2, "{faults:#?}");
    assert!(faults[0].starts_with("flag --settings: \"/nonexistent.toml\" cannot be read"));
    assert!(faults[1].starts_with("flag --fail-mode: "));
}

#[test]
fn a_command_that_serves_nobody_needs_less() {
    let scratch = Scratch::new("purpose");
    let environment = Environment::default();
    let nothing = Flags::none();
    assert!(Settings::resolve_for(Purpose::Token, &nothing, &environment, None).is_ok());
    let faults = Settings::resolve_for(Purpose::Store, &nothing, &environment, None).unwrap_err();
    assert_eq!(faults.len(), 1);
    let store = scratch.flags("--config-file @users.json");
    assert!(Settings::resolve_for(Purpose::Store, &store, &environment, None).is_ok());
    assert_eq!(
        Settings::resolve(&store, &environment, None)
            .unwrap_err()
            .len(),
        2
    );
}

#[test]
fn every_setting_can_be_said_by_flag_variable_and_file_alike() {
    let scratch = Scratch::new("alike");
    let home = ("HOME".to_owned(), "/h".to_owned());
    let least = scratch.flags(LEAST);
    for setting in SETTINGS.iter().filter(|setting| setting.flag != "settings") {
        // A value that no setting takes: each source must report it, so each source was read.
        let bad = "\u{7}bad\u{7}";
        let reports = |faults: &[Fault], origin: &str| {
            faults
                .iter()
                .any(|fault| fault.to_string().starts_with(origin))
        };
        if matches!(setting.flag, "redis-password" | "token-verification-secret") {
            continue; // Any text is a secret.
        }
        let bare = Environment::from_pairs([home.clone()]);
        let mut flags = least.clone();
        flags.set(setting.flag, bad);
        let faults = Settings::resolve(&flags, &bare, None).unwrap_err();
        assert!(
            reports(&faults, &format!("flag --{}: ", setting.flag)),
            "{}",
            setting.flag
        );
        for suffix in setting.suffixes() {
            let name = format!("SHARDGATE_{suffix}");
            let said = Environment::from_pairs([home.clone(), (name.clone(), bad.to_owned())]);
            let faults = Settings::resolve(&without(&least, setting.flag), &said, None);
            let origin = format!("environment variable {name}: ");
            assert!(reports(&faults.unwrap_err(), &origin), "{name}");
        }
        let key = setting.file_key().unwrap();
        let (table, name) = key.split_once('.').unwrap();
        let value = if setting.shape == Shape::Switch {
            "3"
        } else {
            "\"\\u0007bad\\u0007\""
        };
        let text = format!("[{table}]\n{name} = {value}\n");
        let faults = Settings::resolve(&without(&least, setting.flag), &bare, Some(&text));
        let origin = format!("settings file (text) line 2, {key}: ");
        assert!(reports(&faults.unwrap_err(), &origin), "{key}");
    }
}

/// The flags without one of them, so that a weaker source is heard.
fn without(flags: &Flags, flag: &str) -> Flags {
    let mut rest = Flags::none();
    for setting in SETTINGS.iter().filter(|setting| setting.flag != flag) {
        if let Some(text) = flags.said(setting.flag) {
            rest.set(setting.flag, text);
        }
    }
    rest
}

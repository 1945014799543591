//! The names of light-gateway's file: what they set, and that every wrong one is told at once.

use shardgate::{
    mcp::version::{Version, VersionSet},
    schema::SchemaLimits,
    settings::{Environment, Fault, Note, Settings},
};

use super::{LEAST, Scratch};

fn resolve(scratch: &Scratch, text: &str) -> Result<(Settings, Vec<String>), Vec<String>> {
    let home = Environment::from_pairs([("HOME", "/home/operator")]);
    match Settings::resolve(&scratch.flags(LEAST), &home, Some(text)) {
        Ok((settings, notes)) => Ok((settings, notes.iter().map(Note::to_string).collect())),
        Err(faults) => Err(faults.iter().map(Fault::to_string).collect()),
    }
}

#[test]
fn every_name_sets_what_it_says() {
    let scratch = Scratch::new("contract");
    let text = r#"
        enabled = true
        path = "/mcp"
        maxSessions = 50
        maxSessionsPerClient = 40
        maxRequestBodyBytes = 1048576
        maxResponseBodyBytes = 4194304
        maxJsonDepth = 30
        originAllowlist = ["https://app.example"]

        [schema]
        defaultDialect = "https://json-schema.org/draft/2020-12/schema"
        allowExternalRefs = false
        maxSchemaBytes = 2000
        maxDepth = 21
        maxSubschemas = 22
        maxCompositionBranches = 23
        maxSchemaGraphVisits = 24
        maxConcurrentValidations = 25
        validationWatchdogMs = 26

        [protocols.legacy]
        enabled = true
        versions = ["2025-11-25", "2025-03-26"]

        [protocols.stateless]
        enabled = true
        versions = ["2026-07-28"]
        discoverTtlMs = 1
        toolsListTtlMs = 2
        discoverCacheScope = "private"
        toolsListCacheScope = "private"
        maxToolsListCacheEntries = 3
        maxToolsListItems = 4
        maxConcurrentRequests = 5
        maxConcurrentRequestsPerPrincipal = 6
        maxConcurrentBackendCallsPerTarget = 7
        maxSubscriptions = 8
        maxSubscriptionsPerPrincipal = 9
        maxSubscriptionDurationMs = 10
        statelessToLegacyBridge = "reject"
    "#;
    let (settings, notes) = resolve(&scratch, text).unwrap();
    assert_eq!(notes, [""; 0]);
    let (limits, protocols) = (&settings.limits, &settings.protocols);
    assert_eq!(limits.sessions_max, 50);
    assert_eq!(limits.sessions_per_principal_max, 40);
    assert_eq!(limits.body_bytes_max, 1 << 20);
    assert_eq!(limits.response_bytes_max, 4 << 20);
    assert_eq!(limits.json_depth_max, 30);
    let schema = &limits.schema;
    assert_eq!(
        [
            schema.bytes_max,
            schema.depth_max,
            schema.subschemas_max,
            schema.branches_max,
            schema.visits_max,
            limits.validations_max,
        ],
        [2000, 21, 22, 23, 24, 25]
    );
    assert_eq!(settings.timeouts.validation_watchdog.as_millis(), 26);
    assert_eq!(settings.access.origins, ["https://app.example"]);
    assert!(protocols.legacy && protocols.stateless);
    let two = VersionSet::NONE
        .with(Version::V2025_11_25)
        .with(Version::V2025_03_26);
    assert_eq!(protocols.with_sessions(), two);
    assert_eq!(
        [
            protocols.discover_ttl_ms,
            protocols.list_ttl_ms,
            protocols.lists_max as u64,
            protocols.list_items_max as u64,
            protocols.requests_max as u64,
            protocols.requests_per_principal_max as u64,
            u64::from(protocols.backend_calls_max),
            protocols.subscriptions_max as u64,
            protocols.subscriptions_per_principal_max as u64,
            protocols.subscription_duration.as_millis() as u64,
        ],
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    );
}

#[test]
fn schemas_have_the_usual_bounds_when_nothing_is_said() {
    let scratch = Scratch::new("contract-schema");
    let (settings, _) = resolve(&scratch, "").unwrap();
    assert_eq!(settings.limits.schema, SchemaLimits::default());
    assert_eq!(settings.limits.validations_max, 32);
    let watchdog = |settings: &Settings| settings.timeouts.validation_watchdog.as_millis();
    assert_eq!(watchdog(&settings), 50);
    // A time has two names, and one of them is enough.
    let (settings, _) = resolve(&scratch, "schema.validationTimeoutMs = 7").unwrap();
    assert_eq!(watchdog(&settings), 7);
    let both = "[schema]\nvalidationTimeoutMs = 7\nvalidationWatchdogMs = 7\n";
    let faults = resolve(&scratch, both).unwrap_err();
    assert_eq!(faults.len(), 1);
    assert!(
        faults[0].contains("is said already, by schema.validation"),
        "{}",
        faults[0]
    );
}

#[test]
fn what_changes_nothing_is_noted() {
    let scratch = Scratch::new("contract-idle");
    let text = "[protocols.stateless]\nmaxDiscoverCacheEntries = 7\n";
    let (_, notes) = resolve(&scratch, text).unwrap();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let place = "protocols.stateless.maxDiscoverCacheEntries: no effect";
    assert!(notes[0].contains(place), "{}", notes[0]);
}

#[test]
fn tables_that_mean_nothing_here_are_refused() {
    let scratch = Scratch::new("contract-workflow");
    let faults = resolve(&scratch, "[workflow]\ninvocationUrl = \"\"\n").unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(
        faults[0].contains("workflow: unknown table"),
        "{}",
        faults[0]
    );
}

/// Each file text, and the end of each line that refuses it.
#[test]
fn every_fault_of_a_file_is_told_at_once() {
    let scratch = Scratch::new("contract-faults");
    let text = r#"
        enabled = false
        path = "mcp"
        maxSessions = 0
        maxSesions = 1
        maxResponseBodyBytes = 2047
        maxJsonDepth = 129
        originAllowlist = ["https://*.example"]

        [schema]
        defaultDialect = "http://json-schema.org/draft-07/schema#"
        allowExternalRefs = true
        maxSchemaBytes = 0
        maxDepth = 0
        maxSubschemas = "many"
        maxCompositionBranches = 0
        maxSchemaGraphVisits = -1
        maxConcurrentValidations = 0
        validationTimeoutMs = 0

        [protocols.legacy]
        versions = ["2025-11-25", "2026-07-28"]
        version = 1

        [protocols.stateless]
        versions = []
        discoverTtlMs = 0
        discoverTtl = 1
        discoverCacheScope = "public"
        toolsListCacheScope = "public"
        maxSubscriptions = true
        statelessToLegacyBridge = "perRequest"
    "#;
    let mut faults = resolve(&scratch, text).unwrap_err();
    faults.sort();
    let wanted = [
        "enabled: must be true: the process serves nothing else: do not start it",
        "maxJsonDepth: \"129\" must be between 1 and 128",
        "maxResponseBodyBytes: must be at least 2048",
        "maxSesions: unknown key; did you mean maxSessions?",
        "maxSessions: \"0\" must be between 1 and 10000000",
        "originAllowlist: \"https://*.example\" must list origins as https://app.example or \
         http://localhost:3000: lower case, without a path",
        "path: must be /mcp: endpoints are /servers/NAME/mcp, and /mcp for the one of \
         --default-virtual-host",
        "protocols.legacy.version: unknown key; did you mean versions?",
        "protocols.legacy.versions: \"2025-11-25,2026-07-28\" holds 2026-07-28, which has no \
         sessions: that is --stateless-enabled",
        "protocols.stateless.discoverCacheScope: must be private: what one caller may see is not \
         for another",
        "protocols.stateless.discoverTtl: unknown key; did you mean discoverTtlMs?",
        "protocols.stateless.discoverTtlMs: \"0\" must be between 1 and 86400000",
        "protocols.stateless.maxSubscriptions: must be a text or a whole number, not of type \
         boolean",
        "protocols.stateless.statelessToLegacyBridge: must be reject: backends are bridged one by \
         one, by their own `bridge`",
        "protocols.stateless.toolsListCacheScope: must be private: what one caller may see is not \
         for another",
        "protocols.stateless.versions: names no revision: it is [\"2026-07-28\"], or enabled = \
         false",
        "schema.allowExternalRefs: must be false: nothing is fetched that a schema names",
        "schema.defaultDialect: must be https://json-schema.org/draft/2020-12/schema: no other \
         dialect is known",
        "schema.maxCompositionBranches: \"0\" must be between 1 and 1000000",
        "schema.maxConcurrentValidations: \"0\" must be between 1 and 1024",
        "schema.maxDepth: \"0\" must be between 1 and 128",
        "schema.maxSchemaBytes: \"0\" must be between 1 and 4MiB",
        "schema.maxSchemaGraphVisits: \"-1\" is not a whole number",
        "schema.maxSubschemas: \"many\" is not a whole number",
        "schema.validationTimeoutMs: \"0\" must be between 1 and 60000",
    ];
    let mut told: Vec<&str> = faults
        .iter()
        .map(|line| line.split_once(", ").unwrap().1)
        .collect();
    told.sort_unstable();
    assert_eq!(told, wanted);
}

#[test]
fn no_revision_at_all_and_one_said_twice_are_refused() {
    let scratch = Scratch::new("contract-none");
    for (text, wanted) in [
        (
            "[protocols.legacy]\nenabled = false\n[protocols.stateless]\nenabled = false\n",
            "no protocol revision is left",
        ),
        ("[protocols.legacy]\nversions = []\n", "names no revision"),
        (
            "[protocols.legacy]\nversions = [\"2025-11-25\", \"2025-11-25\"]\n",
            "holds 2025-11-25 twice",
        ),
        (
            "[protocols.legacy]\nversions = [\"2024-01-01\"]\n",
            "must list revisions out of 2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05",
        ),
        (
            "maxSessions = 5\n[limits]\nsessions_max = 5\n",
            "is said already, by ",
        ),
        (
            "[protocols]\nstateless = true\n",
            "must be a table of settings",
        ),
        (
            "[protocols.stateless]\nversions = [\"2026-07-28\", \"2026-07-28\"]\n",
            "2026-07-28 stands twice",
        ),
        ("[workflow]\ninvocationUrl = \"\"\n", "unknown table"),
    ] {
        let faults = resolve(&scratch, text).unwrap_err();
        assert!(
            matches!(&faults[..], [fault] if fault.contains(wanted)),
            "{text}: {faults:?}"
        );
    }
    let off = "[protocols.stateless]\nenabled = false\nversions = []\n";
    assert!(!resolve(&scratch, off).unwrap().0.protocols.stateless);
}

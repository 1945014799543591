//! Scenarios read, merged and refused.

use super::*;
use crate::scenario::EXAMPLE;

fn resolve(text: &str) -> Result<Resolved, String> {
    let plan = Plan::parse(text).map_err(|fault| fault.to_string())?;
    plan.resolve(Secrets::default())
        .map_err(|fault| fault.to_string())
}

const URL: &str = "url = \"http://127.0.0.1:1/mcp\"\n";

#[test]
fn the_example_is_sound_and_says_everything() {
    let resolved = resolve(EXAMPLE).unwrap();
    assert_eq!(resolved.options.mix.len(), 4);
    // Every key stands in it, in use or in a comment.
    for key in [
        "url",
        "callers",
        "rate",
        "arrivals",
        "ramp",
        "step",
        "spike",
        "soak",
        "find-max",
        "probe",
        "rate-max",
        "duration",
        "calls",
        "warm-up",
        "think",
        "profile",
        "tool",
        "arguments",
        "mix",
        "payload",
        "expect",
        "connections",
        "sessions",
        "session-life",
        "streams",
        "target-shards",
        "clients-at",
        "chunks",
        "chunk-bytes",
        "heartbeats",
        "connect-secret-file",
        "token-file",
        "jwt-key-file",
        "users",
        "jwt-subject",
        "jwt-issuer",
        "jwt-audience",
        "slo",
        "check-affinity",
        "shards",
        "cpu-list",
        "io-driver",
        "timeout",
        "seed",
        "start-at",
        "method",
        "name",
        "prompt",
        "uri",
        "weight",
    ] {
        let is_there = EXAMPLE.lines().any(|line| {
            let line = line.trim_start_matches("# ");
            line.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with(" ="))
        });
        assert!(is_there, "{key}");
    }
}

#[test]
fn keys_become_options() {
    let text = format!(
        "{URL}rate = 500\narrivals = \"poisson\"\nduration = 30\nwarm-up = \"500ms\"\n\
         connections = \"spread\"\nsession-life = 200\nslo = \"p99=5ms\"\n\
         [[operation]]\nmethod = \"tools/call\"\nname = \"search\"\ntool = \"find\"\n\
         arguments = {{ q = \"x\", n = 3 }}\npayload = \"1k..2k\"\nexpect = 300\nweight = 9\n\
         [[operation]]\nmethod = \"resources/read\"\nuri = \"file:///a\"\n"
    );
    let resolved = resolve(&text).unwrap();
    let options = &resolved.options;
    assert_eq!(
        (options.rate, options.connections),
        (Some(500.0), RATE_CALLERS)
    );
    assert_eq!(options.duration, Some(Duration::from_secs(30)));
    assert_eq!(options.warm_up, Duration::from_millis(500));
    assert_eq!(options.arrivals, Arrivals::Poisson);
    assert_eq!(
        (options.pattern, options.session_life),
        (Pattern::Spread, Some(200))
    );
    let call = &options.mix[0];
    assert_eq!(
        (call.name.as_str(), call.target.as_str()),
        ("search", "find")
    );
    assert_eq!(call.arguments, r#"{"n":3,"q":"x"}"#);
    assert_eq!((call.check, call.weight), (Check::Bytes(300), 9.0));
    assert_eq!(options.mix[1].target, "file:///a");
    assert_eq!(resolved.slo.to_string(), "p99=5ms");
}

#[test]
fn flags_win_over_the_file() {
    let file = Plan::parse(&format!("{URL}rate = 500\ncallers = 3\nmix = \"ping\"")).unwrap();
    let flags = Plan {
        rate: Some(10.0),
        ..Plan::default()
    };
    let options = flags
        .over(file)
        .resolve(Secrets::default())
        .unwrap()
        .options;
    assert_eq!((options.rate, options.connections), (Some(10.0), 3));
    assert_eq!(options.mix[0].method, Method::Ping);
}

#[test]
fn an_affinity_check_counts_over_spread_connections() {
    let options = resolve(&format!("{URL}check-affinity = true"))
        .unwrap()
        .options;
    assert_eq!(options.pattern, Pattern::Spread);
    assert_eq!(options.mix[0].target, "increment");
    assert_eq!(options.mix[0].check, Check::Counter);
}

#[test]
fn loads_of_every_kind() {
    let load = |more: &str| resolve(&format!("{URL}{more}")).unwrap();
    assert_eq!(
        load("ramp = \"0:100\"").options.shape.unwrap().peak(),
        100.0
    );
    let steps = load("step = \"100:300:100\"\nduration = \"6s\"")
        .options
        .shape;
    assert_eq!(steps.unwrap().area(), 1200.0);
    let soak = load("soak = true\nrate = 10");
    assert_eq!(soak.options.duration, Some(SOAK_DURATION));
    let found = load("find-max = true\nrate = 50\nprobe = \"2s\"");
    let Load::FindMax(search) = found.load else {
        panic!("{:?}", found.load)
    };
    assert_eq!((search.start, search.probe), (50.0, Duration::from_secs(2)));
    assert_eq!(found.options.rate, None);
}

#[test]
fn faults_say_where_and_what() {
    for (text, parts) in [
        ("rate = 5", &["url is missing"][..]),
        (
            "url = \"x\"\nrat = 5",
            &["line 2, column 1", "unknown field `rat`", "`rate`"],
        ),
        ("url = ", &["line 1"]),
        ("url = 5", &["line 1, column 7", "string"]),
        ("callers = -1", &["line 1", "-1"]),
        (&format!("{URL}rate = 0"), &["rate must be above 0"]),
        (&format!("{URL}callers = 0"), &["callers must be above 0"]),
        (
            &format!("{URL}duration = \"5 minutes\""),
            &["duration:", "5 minutes", "30s"],
        ),
        (&format!("{URL}slo = \"p99\""), &["slo:", "p99=5ms"]),
        (
            &format!("{URL}mix = \"tools/cal=1\""),
            &["mix:", "tools/cal", "tools/call"],
        ),
        (
            &format!("{URL}rate = 5\nthink = \"1s\""),
            &["think", "closed loop"],
        ),
        (
            &format!("{URL}rate = 5\nprofile = \"agent\""),
            &["profile", "closed loop"],
        ),
        (
            &format!("{URL}rate = 5\nramp = \"1:2\""),
            &["rate does not go with ramp"],
        ),
        (&format!("{URL}ramp = \"1\""), &["ramp `1`: 2 rates"]),
        (&format!("{URL}spike = \"0:0\""), &["spike has no rate"]),
        (
            &format!("{URL}find-max = true\nduration = 5"),
            &["duration does not go with find-max"],
        ),
        (
            &format!("{URL}calls = 5\nduration = 5"),
            &["calls does not go with duration"],
        ),
        (&format!("{URL}users = 5"), &["users have no tokens"]),
        (
            &format!("{URL}token-file = \"/nowhere/x\""),
            &["token-file", "/nowhere/x"],
        ),
        (
            &format!("{URL}connections = \"any\""),
            &["connections:", "sticky, spread"],
        ),
        (
            &format!("{URL}arguments = \"[]\""),
            &["arguments are no JSON object"],
        ),
        (
            &format!("{URL}[[operation]]\nmethod = \"x\""),
            &["[[operation]] 1: method", "ping"],
        ),
        (
            &format!("{URL}[[operation]]\nmethod = \"ping\"\ntool = \"x\""),
            &["[[operation]] 1: tool is for tools/call only"],
        ),
        (
            &format!(
                "{URL}[[operation]]\nmethod = \"ping\"\n[[operation]]\nmethod = \"ping\"\nweight = 0"
            ),
            &["[[operation]] 2: weight"],
        ),
        (
            &format!("{URL}[[operation]]\nmetod = \"ping\""),
            &["line 3", "metod"],
        ),
    ] {
        let fault = resolve(text).unwrap_err();
        for part in parts {
            assert!(fault.contains(part), "{text}\n{fault}\n{part}");
        }
    }
}

//! What several servers can do, as one server's capabilities (mcp.md 3.4, 17): the union of what
//! works through us. What a single server says is passed on whole.

use crate::mcp::{json, version::Version};

/// Appends the members of one `capabilities` object that stands for all of `all`, and for tools of
/// our own.
pub fn merge(out: &mut Vec<u8>, version: Version, all: &[&[u8]], has_own_tools: bool) {
    let start = out.len();
    let mut member = |name: &str, value: &[u8]| {
        if out.len() > start {
            out.push(b',');
        }
        json::quote(out, name);
        out.push(b':');
        out.extend_from_slice(value);
    };
    let has = |name: &str| all.iter().any(|one| json::member(one, name).is_some());
    let says = |family: &str, name: &str| all.iter().any(|one| is_true(one, family, name));
    if has_own_tools || has("tools") {
        // We say it ourselves when a backend joins late.
        member("tools", br#"{"listChanged":true}"#);
    }
    if has("prompts") {
        member(
            "prompts",
            flags(&[("listChanged", says("prompts", "listChanged"))]).as_bytes(),
        );
    }
    if has("resources") {
        let flags = flags(&[
            ("subscribe", says("resources", "subscribe")),
            ("listChanged", says("resources", "listChanged")),
        ]);
        member("resources", flags.as_bytes());
    }
    // Defined from 2025-03-26 on (mcp.md 3.1).
    if has("completions") && version >= Version::V2025_03_26 {
        member("completions", b"{}");
    }
    if has("logging") {
        member("logging", b"{}");
    }
    match all {
        [one] => {
            for item in json::members(one) {
                let Ok((key, value)) = item else { break };
                let Some(name) = json::unescape(key.slice(one)) else {
                    continue;
                };
                // Tasks were a part of the protocol in one revision only.
                if !KNOWN.contains(&&*name) && (name != "tasks" || version == Version::V2025_11_25)
                {
                    member(&name, value.slice(one));
                }
            }
        }
        several if version.is_stateless() => {
            let has_tasks = several.iter().any(|one| {
                json::member(one, "extensions")
                    .is_some_and(|all| json::member(all.slice(one), TASKS_EXTENSION).is_some())
            });
            if has_tasks {
                member(
                    "extensions",
                    format!("{{\"{TASKS_EXTENSION}\":{{}}}}").as_bytes(),
                );
            }
        }
        several if version == Version::V2025_11_25 => {
            if let Some(tasks) = tasks_of(several) {
                member("tasks", tasks.as_bytes());
            }
        }
        _ => {}
    }
}

/// The one extension whose ids we can tell apart (SEP-2663).
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

const KNOWN: [&str; 5] = ["tools", "prompts", "resources", "completions", "logging"];

fn is_true(capabilities: &[u8], family: &str, name: &str) -> bool {
    let Some(family) = json::member(capabilities, family) else {
        return false;
    };
    let family = family.slice(capabilities);
    json::member(family, name).is_some_and(|value| value.slice(family) == b"true")
}

fn flags(all: &[(&str, bool)]) -> String {
    let set = all.iter().filter(|(_, is_set)| *is_set);
    let set: Vec<String> = set.map(|(name, _)| format!("\"{name}\":true")).collect();
    format!("{{{}}}", set.join(","))
}

/// The tasks that several servers can do: 2025-11-25 knows three parts.
fn tasks_of(all: &[&[u8]]) -> Option<String> {
    let mut own = all.iter().filter_map(|one| {
        let tasks = json::member(one, "tasks")?;
        Some(tasks.slice(one))
    });
    own.next()?;
    let has = |path: &[&str]| {
        all.iter().any(|one| {
            let mut value = *one;
            for name in std::iter::once(&"tasks").chain(path) {
                match json::member(value, name) {
                    Some(span) => value = span.slice(value),
                    None => return false,
                }
            }
            true
        })
    };
    let mut parts = Vec::new();
    if has(&["list"]) {
        parts.push(r#""list":{}"#);
    }
    if has(&["cancel"]) {
        parts.push(r#""cancel":{}"#);
    }
    if has(&["requests", "tools", "call"]) {
        parts.push(r#""requests":{"tools":{"call":{}}}"#);
    }
    Some(format!("{{{}}}", parts.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(version: Version, all: &[&str]) -> String {
        let mut out = b"{".to_vec();
        let all: Vec<&[u8]> = all.iter().map(|one| one.as_bytes()).collect();
        merge(&mut out, version, &all, false);
        out.push(b'}');
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn one_server_is_passed_on_whole() {
        assert_eq!(merged(Version::LATEST, &["{}"]), "{}");
        let one =
            r#"{"logging":{},"resources":{"subscribe":true},"tasks":{"list":{}},"x":{"y":[1]}}"#;
        assert_eq!(
            merged(Version::LATEST, &[one]),
            r#"{"resources":{"subscribe":true},"logging":{},"tasks":{"list":{}},"x":{"y":[1]}}"#
        );
        assert_eq!(
            merged(Version::V2024_11_05, &[r#"{"completions":{},"tasks":{}}"#]),
            "{}"
        );
    }

    #[test]
    fn several_servers_are_one() {
        let all = [
            r#"{"tools":{},"prompts":{"listChanged":true},"resources":{"listChanged":false}}"#,
            r#"{"resources":{"subscribe":true},"completions":{},"experimental":{"e":{}}}"#,
            r#"{"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}"#,
        ];
        assert_eq!(
            merged(Version::LATEST, &all),
            r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true},"completions":{},"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}}"#
        );
    }
}

//! What the bridge says in the place of a reverse-connected server: who it is, and what there is to
//! be had while it is away or of what it does not have. Pure.
//!
//! Several clients share the one MCP session with the server, so it is shown with what can be
//! shared: tools, prompts, resources and completions. Its log level, its subscriptions and its
//! tasks would be everybody's.

use crate::mcp::{
    json,
    profile::{own_result_members, own_server_info},
    version::{STATELESS, Version},
};

/// Families of lists, as capabilities name them.
const LISTED: [&str; 3] = ["tools", "prompts", "resources"];
/// What a server might have that is not there: clients must listen to hear of it.
const ABSENT: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;
/// The same for clients without sessions, who are told once for all servers to come.
const ANY: &str = r#"{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true},"completions":{}}"#;

/// The gateway's own `initialize` to the server, under the id 0: clients of it can be asked some
/// things, as far as it can be told whom a question is for.
pub(super) fn greeting() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{}","capabilities":{{"sampling":{{}},"elicitation":{{}}}},"clientInfo":{}}}}}"#,
        Version::LATEST.name(),
        crate::mcp::profile::OWN_INFO,
    )
}

/// What follows the answer to that.
pub(super) const GREETED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What a server has said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    version: Version,
    capabilities: Box<[u8]>,
    instructions: Option<Box<[u8]>>,
}

impl Facts {
    /// From its whole answer to `initialize`; `None`: it is no such answer, or of a revision that
    /// is not spoken here.
    pub(super) fn read(document: &[u8]) -> Option<Self> {
        let member = |object: &'_ [u8], name: &str| {
            json::member(object, name).map(|at| Box::<[u8]>::from(at.slice(object)))
        };
        let result = member(document, "result")?;
        let version = member(&result, "protocolVersion")?;
        let version = Version::from_name(json::unescape(&version)?.as_bytes())?;
        let capabilities = member(&result, "capabilities")?;
        let instructions = member(&result, "instructions");
        capabilities.starts_with(b"{").then_some(Self {
            version,
            capabilities,
            instructions: instructions.filter(|raw| raw.starts_with(b"\"")),
        })
    }

    fn has(&self, family: &str) -> bool {
        json::member(&self.capabilities, family).is_some()
    }

    /// Its families of lists: what changes when it comes or goes.
    pub(super) fn listed(&self) -> impl Iterator<Item = &'static str> {
        LISTED.into_iter().filter(|family| self.has(family))
    }

    fn shown(&self) -> String {
        let lists = self
            .listed()
            .map(|family| format!("\"{family}\":{{\"listChanged\":true}}"));
        let others = ["completions"].into_iter();
        let others = others.filter(|family| self.has(family));
        let all: Vec<String> = lists
            .chain(others.map(|family| format!("\"{family}\":{{}}")))
            .collect();
        format!("{{{}}}", all.join(","))
    }
}

/// The result of a client session's `initialize`, which asks for the revision `requested`.
pub(super) fn introduction(facts: Option<&Facts>, requested: Version) -> Vec<u8> {
    let version = facts.map_or(requested, |facts| facts.version);
    let capabilities = facts.map_or_else(|| ABSENT.to_owned(), Facts::shown);
    let mut result = format!(
        r#"{{"protocolVersion":"{}","capabilities":{capabilities},"serverInfo":{}"#,
        version.name(),
        crate::mcp::profile::OWN_INFO
    )
    .into_bytes();
    instructions(&mut result, facts);
    result.push(b'}');
    result
}

/// The result of `server/discover`: the same whoever is there, because it is kept.
pub(super) fn discovery(facts: Option<&Facts>) -> Vec<u8> {
    let mut result = format!(
        r#"{{{}"supportedVersions":["{STATELESS}"],"capabilities":{ANY}"#,
        own_result_members(0, true)
    )
    .into_bytes();
    instructions(&mut result, facts);
    result.extend_from_slice(format!(",\"_meta\":{{{}}}}}", own_server_info()).as_bytes());
    result
}

fn instructions(result: &mut Vec<u8>, facts: Option<&Facts>) {
    if let Some(text) = facts.and_then(|facts| facts.instructions.as_ref()) {
        result.extend_from_slice(b",\"instructions\":");
        result.extend_from_slice(text);
    }
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The server is asked.
    Ask,
    /// This result is answered.
    Result(&'static str),
    /// This error is answered.
    Fault(i32, &'static str),
}

/// The empty list that a request asks for, and its family; `None`: it asks for no list.
fn empty(method: &[u8]) -> Option<(&'static str, &'static str)> {
    match method {
        b"tools/list" => Some((r#"{"tools":[]}"#, "tools")),
        b"prompts/list" => Some((r#"{"prompts":[]}"#, "prompts")),
        b"resources/list" => Some((r#"{"resources":[]}"#, "resources")),
        b"resources/templates/list" => Some((r#"{"resourceTemplates":[]}"#, "resources")),
        _ => None,
    }
}

/// The answer to a request that was under way when the server left, where that makes no failure of
/// it: a list is empty from then on.
pub(super) fn parting(id: &[u8], method: &[u8]) -> Option<Vec<u8>> {
    let (list, _) = empty(method)?;
    Some(super::serve::result_document(id, list.as_bytes()))
}

/// Judges a request by its method; `facts` are those of the server that is there.
pub(super) fn judge(facts: Option<&Facts>, method: &[u8]) -> Verdict {
    match (method, empty(method), facts) {
        (b"ping" | b"logging/setLevel", ..) => Verdict::Result("{}"),
        (b"resources/subscribe" | b"resources/unsubscribe", ..) => {
            Verdict::Fault(-32601, "Method not found")
        }
        (_, Some((list, family)), facts) => match facts.is_some_and(|facts| facts.has(family)) {
            true => Verdict::Ask,
            false => Verdict::Result(list),
        },
        (_, None, Some(_)) => Verdict::Ask,
        (_, None, None) => Verdict::Fault(-32603, AWAY),
    }
}

/// Said of a call for a server that is not there.
pub(super) const AWAY: &str = "The reverse-connected server is not connected";
/// Said of a call that was under way when it left.
pub(super) const LEFT: &str = "The reverse-connected server has left during the call";
/// Said of a call that the server did not take or did not answer in time.
pub(super) const LATE: &str = "The reverse-connected server did not answer in time";
/// Said to a server whose question could be for several clients, or for none.
pub(super) const WHOM: &str = "It cannot be told which client is asked: a question needs one call under way, of a client with a session";

/// The notification that a family's list is another now; `meta`: members of its `_meta`.
pub(super) fn changed(family: &str, meta: Option<&str>) -> Vec<u8> {
    let params = meta.map(|meta| format!(",\"params\":{{\"_meta\":{{{meta}}}}}"));
    let params = params.unwrap_or_default();
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{family}/list_changed"{params}}}"#)
        .into_bytes()
}

/// Which of [`LISTED`] a notification is about.
pub(super) fn family_of(message: &[u8]) -> Option<&'static str> {
    let method = json::member(message, "method")?;
    let method = json::unescape(method.slice(message))?;
    let family = method
        .strip_prefix("notifications/")?
        .strip_suffix("/list_changed")?;
    LISTED.into_iter().find(|known| *known == family)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(capabilities: &str) -> Facts {
        let document = format!(
            r#"{{"jsonrpc":"2.0","id":0,"result":{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":{{}},"instructions":"do"}}}}"#
        );
        Facts::read(document.as_bytes()).unwrap()
    }

    #[test]
    fn a_server_is_shown_with_what_can_be_shared() {
        let facts =
            facts(r#"{"tools":{},"logging":{},"completions":{},"resources":{"subscribe":true}}"#);
        let shown = introduction(Some(&facts), Version::LATEST);
        let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
        assert_eq!(shown["protocolVersion"], "2025-06-18");
        assert_eq!(shown["instructions"], "do");
        let wanted = serde_json::json!({"tools": {"listChanged": true},
            "resources": {"listChanged": true}, "completions": {}});
        assert_eq!(shown["capabilities"], wanted);
        assert_eq!(facts.listed().collect::<Vec<_>>(), ["tools", "resources"]);
        let absent = introduction(None, Version::V2025_03_26);
        let absent: serde_json::Value = serde_json::from_slice(&absent).unwrap();
        assert_eq!(absent["protocolVersion"], "2025-03-26");
        assert_eq!(absent["capabilities"]["prompts"]["listChanged"], true);
        for of in [None, Some(&facts)] {
            let found: serde_json::Value = serde_json::from_slice(&discovery(of)).unwrap();
            assert_eq!(found["supportedVersions"][0], STATELESS);
            assert_eq!(found["resultType"], "complete");
            assert_eq!(found["ttlMs"], 0);
        }
    }

    #[test]
    fn what_is_no_answer_to_initialize_says_nothing() {
        for result in [
            r#""error":{"code":-32603,"message":""}"#,
            r#""result":{}"#,
            r#""result":{"protocolVersion":"1999-01-01","capabilities":{}}"#,
            r#""result":{"protocolVersion":"2025-06-18","capabilities":[]}"#,
        ] {
            let document = format!(r#"{{"jsonrpc":"2.0","id":0,{result}}}"#);
            assert_eq!(Facts::read(document.as_bytes()), None, "{result}");
        }
    }

    #[test]
    fn lists_are_empty_and_calls_fail_where_there_is_nothing() {
        let facts = facts(r#"{"tools":{}}"#);
        for (facts, method, wanted) in [
            (None, "tools/list", Verdict::Result(r#"{"tools":[]}"#)),
            (Some(&facts), "tools/list", Verdict::Ask),
            (
                Some(&facts),
                "prompts/list",
                Verdict::Result(r#"{"prompts":[]}"#),
            ),
            (Some(&facts), "prompts/get", Verdict::Ask),
            (None, "tools/call", Verdict::Fault(-32603, AWAY)),
            (None, "ping", Verdict::Result("{}")),
            (Some(&facts), "logging/setLevel", Verdict::Result("{}")),
            (
                Some(&facts),
                "resources/subscribe",
                Verdict::Fault(-32601, "Method not found"),
            ),
        ] {
            assert_eq!(judge(facts, method.as_bytes()), wanted, "{method}");
        }
        let list = br#"{"jsonrpc":"2.0","id":5,"result":{"tools":[]}}"#;
        assert_eq!(parting(b"5", b"tools/list").as_deref(), Some(&list[..]));
        assert_eq!(parting(b"5", b"tools/call"), None);
    }

    #[test]
    fn a_change_names_its_family() {
        for family in LISTED {
            assert_eq!(family_of(&changed(family, None)), Some(family));
            assert_eq!(family_of(&changed(family, Some("\"k\":1"))), Some(family));
        }
        assert_eq!(family_of(br#"{"method":"notifications/message"}"#), None);
    }
}

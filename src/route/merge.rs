//! Merging the backends' lists: their own bytes, with names exchanged, in one deterministic order.

use crate::{
    config::compiled::{Backend, VirtualHost},
    http::Span,
    mcp::{
        edits::Edits,
        json::{self, within},
    },
    route::{
        family::Family,
        learned::Lesson,
        names::{expose, expose_name, expose_uri},
    },
    stateless::bridge,
    upstream::mirrored,
};

/// One backend's pages of a list, as raw arrays.
#[derive(Debug)]
pub struct BackendPages {
    /// Index of the backend in the virtual host.
    pub backend: usize,
    /// The list's array of each page, raw.
    pub arrays: Vec<Vec<u8>>,
    /// Tools with an invalid `x-mcp-header` are left out (mcp.md 2.2).
    pub checks_marks: bool,
    /// The backend has sessions and the client none: only what needs none is shown.
    pub is_bridged: bool,
}

/// A merged list.
#[derive(Debug, Default)]
pub struct Merged {
    /// The JSON array.
    pub array: Vec<u8>,
    /// Its elements.
    pub count: usize,
    /// What the list taught, for the session's `Learned`.
    pub lesson: Lesson,
    /// Exposed names of tools or prompts, or exposed URIs, that more than one element has.
    pub collisions: Vec<Box<str>>,
    /// Tools left out because of an invalid `x-mcp-header`.
    pub invalid: u64,
}

/// Merges the lists of a family: each element keeps its bytes but for its names and URIs, those
/// the caller may not use are left out, the order is that of the exposed names, then of the
/// backends (contextforge.md 5.4); tasks stay in their backends' order. An element without what
/// names it is left out.
pub fn merge(host: &VirtualHost, family: Family, pages: &[BackendPages]) -> Merged {
    let mut merged = Merged::default();
    let mut items = Vec::new();
    for page in pages {
        let index = u16::try_from(page.backend).unwrap_or(u16::MAX);
        merged.lesson.hear(index);
        for array in &page.arrays {
            for element in json::elements(array) {
                let Ok(element) = element else { break };
                let element = element.slice(array);
                if page.checks_marks && family == Family::Tools && !mirrored::is_valid(element) {
                    merged.invalid += 1;
                    continue;
                }
                let item = item(host, family, page.backend, element);
                let is_reached = |item: &Item<'_>| {
                    let backend = &host.backends[page.backend];
                    !page.is_bridged
                        || family != Family::Tools
                        || bridge::allows(backend, Some(&item.original))
                };
                items.extend(item.filter(is_reached));
            }
        }
    }
    // A single server's own order is kept for clients without sessions: it is all they see.
    let keeps_order = host.is_single && pages.iter().all(|page| page.checks_marks);
    if family != Family::Tasks && !keeps_order {
        items.sort_by(|a, b| a.name.cmp(&b.name).then(a.backend.cmp(&b.backend)));
    }
    merged.count = items.len();
    merged.array.push(b'[');
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            merged.array.push(b',');
        }
        item.edits.apply(&mut merged.array, item.object);
        item.teach(host, family, &mut merged.lesson);
    }
    merged.array.push(b']');
    merged.collisions = collisions(&items);
    merged
}

/// One element that is shown.
struct Item<'a> {
    /// Its exposed name.
    name: String,
    /// Its name at the backend.
    original: String,
    /// Its exposed URI or URI template.
    uri: Option<String>,
    /// Its URI or URI template at the backend, when an allow-list of names lets it through.
    allowed: Option<String>,
    backend: usize,
    object: &'a [u8],
    edits: Edits,
}

impl Item<'_> {
    /// What requests go by: the URI where there is one.
    fn id(&self) -> &str {
        self.uri.as_deref().unwrap_or(&self.name)
    }

    fn teach(&self, host: &VirtualHost, family: Family, lesson: &mut Lesson) {
        let index = u16::try_from(self.backend).unwrap_or(u16::MAX);
        if host.is_ambiguous {
            lesson.place(self.id(), index);
        }
        if let Some(original) = &self.allowed {
            lesson.allow(family, original, index);
        }
    }
}

/// The element as it is shown, if it is.
fn item<'a>(
    host: &VirtualHost,
    family: Family,
    index: usize,
    object: &'a [u8],
) -> Option<Item<'a>> {
    let backend = &host.backends[index];
    let (name_key, uri_key) = match family {
        Family::Tools | Family::Prompts => ("name", None),
        Family::Resources => ("name", Some("uri")),
        Family::Templates => ("name", Some("uriTemplate")),
        Family::Tasks => ("taskId", None),
    };
    let mut edits = Edits::default();
    let name_at = json::member(object, name_key)?;
    let original = json::unescape(name_at.slice(object))?;
    let uri = match uri_key {
        Some(key) => Some(json::member(object, key)?),
        None => None,
    };
    let original_uri = match uri {
        Some(at) => Some(json::unescape(at.slice(object))?),
        None => None,
    };
    if !is_shown(backend, family, &original, original_uri.as_deref()) {
        return None;
    }
    let name = match family {
        Family::Resources | Family::Templates => expose_name(host, index, &original),
        _ => expose(host, family, index, &original),
    };
    if *name != *original {
        edits.put_text(name_at, &name);
    }
    let exposed_uri = match (uri, &original_uri) {
        (Some(at), Some(original)) => {
            let exposed = expose_uri(host, index, original);
            if *exposed != **original {
                edits.put_text(at, &exposed);
            }
            Some(exposed.into_owned())
        }
        _ => None,
    };
    if family == Family::Tools && !host.is_single {
        expose_user_interface(host, index, object, &mut edits);
    }
    let name = name.into_owned();
    let by_name = backend.limits_resources_by_name();
    Some(Item {
        name,
        original: original.into_owned(),
        allowed: original_uri.filter(|_| by_name).map(|uri| uri.into_owned()),
        uri: exposed_uri,
        backend: index,
        object,
        edits,
    })
}

fn is_shown(backend: &Backend, family: Family, name: &str, uri: Option<&str>) -> bool {
    match family {
        Family::Tools => backend.allows_tool(name),
        Family::Prompts => backend.allows_prompt(name),
        Family::Resources | Family::Templates => {
            backend.allows_resource(name, uri.unwrap_or_default())
        }
        Family::Tasks => true,
    }
}

/// The user interface that belongs to a tool (mcp.md 3.4, MCP Apps), in both spellings.
fn expose_user_interface(host: &VirtualHost, index: usize, object: &[u8], edits: &mut Edits) {
    let inner = |outer: Span, key: &str| {
        let at = json::member(outer.slice(object), key)?;
        Some(within(outer, at))
    };
    let Some(meta) = json::member(object, "_meta") else {
        return;
    };
    let nested = inner(meta, "ui").and_then(|ui| inner(ui, "resourceUri"));
    for at in [nested, inner(meta, "ui/resourceUri")]
        .into_iter()
        .flatten()
    {
        if let Some(uri) = json::unescape(at.slice(object)) {
            edits.put_text(at, &expose_uri(host, index, &uri));
        }
    }
}

/// What more than one element is known by.
fn collisions(items: &[Item<'_>]) -> Vec<Box<str>> {
    let mut ids: Vec<&str> = items.iter().map(Item::id).collect();
    ids.sort_unstable();
    let pairs = ids.windows(2).filter(|pair| pair[0] == pair[1]);
    let mut found: Vec<Box<str>> = pairs.map(|pair| pair[0].into()).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::compiled::CompiledUser,
        route::{learned::Learned, names::route_uri},
        upstream::target::Targets,
    };
    use proptest::prelude::*;

    #[test]
    fn tools_keep_their_bytes_and_get_an_order() {
        let config = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"backends":{
                "b":{"url":"http://b/mcp"},"a":{"url":"http://a/mcp","allowed_tool_names":["z","k"]}}}}}"#,
        )
        .unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        let host = user.host("v").unwrap();
        let pages = [
            BackendPages {
                backend: 0,
                arrays: vec![
                    br#"[{"name":"z","n":1.0,"x":[ 1 ]},{"name":"hidden"}]"#.to_vec(),
                    br#"[ {"inputSchema":{"name":"no"}, "name" : "k"} ]"#.to_vec(),
                ],
                checks_marks: false,
                is_bridged: false,
            },
            BackendPages {
                backend: 1,
                arrays: vec![br#"[{"name":"q\u00e9"},{"name":7}]"#.to_vec()],
                checks_marks: false,
                is_bridged: false,
            },
        ];
        let merged = merge(host, Family::Tools, &pages);
        assert_eq!(
            String::from_utf8(merged.array).unwrap(),
            r#"[{"inputSchema":{"name":"no"}, "name" : "a-k"},{"name":"a-z","n":1.0,"x":[ 1 ]},{"name":"b-qé"}]"#
        );
        assert!(merged.collisions.is_empty());
    }

    #[test]
    fn collisions_are_reported() {
        let config = serde_json::from_str(
            r#"{"virtual_hosts":{"v":{"backends":{
                "a":{"url":"http://a/mcp"},"a-b":{"url":"http://b/mcp"}}}}}"#,
        )
        .unwrap();
        let user = CompiledUser::new(&config, &Targets::default());
        let host = user.host("v").unwrap();
        let pages = [
            BackendPages {
                backend: 0,
                arrays: vec![br#"[{"name":"b-t"}]"#.to_vec()],
                checks_marks: false,
                is_bridged: false,
            },
            BackendPages {
                backend: 1,
                arrays: vec![br#"[{"name":"t"}]"#.to_vec()],
                checks_marks: false,
                is_bridged: false,
            },
        ];
        let merged = merge(host, Family::Tools, &pages);
        assert_eq!(merged.collisions, [Box::from("a-b-t")]);
    }

    fn host(json: serde_json::Value) -> std::rc::Rc<VirtualHost> {
        let config =
            serde_json::from_value(serde_json::json!({"virtual_hosts": {"v": {"backends": json}}}))
                .unwrap();
        CompiledUser::new(&config, &Targets::default())
            .host("v")
            .unwrap()
            .clone()
    }

    fn two() -> std::rc::Rc<VirtualHost> {
        host(serde_json::json!({
            "a": {"url": "http://a/mcp"},
            "b": {"url": "http://b/mcp", "tool_name_aliases": {"go": "t"}}
        }))
    }

    fn merged(host: &VirtualHost, family: Family, arrays: [&str; 2]) -> Merged {
        let pages: Vec<BackendPages> = arrays
            .into_iter()
            .enumerate()
            .map(|(backend, array)| BackendPages {
                backend,
                arrays: vec![array.as_bytes().to_vec()],
                checks_marks: false,
                is_bridged: false,
            })
            .collect();
        merge(host, family, &pages)
    }

    fn text(merged: &Merged) -> &str {
        std::str::from_utf8(&merged.array).unwrap()
    }

    #[test]
    fn resources_and_templates_change_in_name_and_uri() {
        let host = two();
        let list = merged(
            &host,
            Family::Resources,
            [
                r#"[{"uri":"x://1","name":"z","size":1.0},{"name":"no uri"}]"#,
                r#"[ {"name":"k" ,"uri":"ui:\/\/k", "icons":[{"src":"x://1"}]},{"uri":"no name"}]"#,
            ],
        );
        assert_eq!(
            text(&list),
            concat!(
                r#"[{"uri":"a-x://1","name":"a-z","size":1.0},"#,
                r#"{"name":"b-k" ,"uri":"ui://b-k", "icons":[{"src":"x://1"}]}]"#
            )
        );
        assert_eq!(list.count, 2);
        let list = merged(
            &host,
            Family::Templates,
            [
                r#"[{"uriTemplate":"x://{a}/{?b*}","name":"n","uri":"x"}]"#,
                "[]",
            ],
        );
        assert_eq!(
            text(&list),
            r#"[{"uriTemplate":"a-x://{a}/{?b*}","name":"a-n","uri":"x"}]"#
        );
    }

    #[test]
    fn user_interfaces_of_tools_follow_their_resources() {
        let host = two();
        let list = merged(
            &host,
            Family::Tools,
            [
                concat!(
                    r#"[{"_meta":{"ui/resourceUri":"ui://x", "ui":{"resourceUri":"ui://y",
                        "visibility":[]}},"name":"t"},"#,
                    r#"{"name":"u","_meta":{"ui":7,"ui/resourceUri":null}}]"#
                ),
                r#"[{"name":"t","_meta":{"ui":{"resourceUri":"ui://z"}}}]"#,
            ],
        );
        assert_eq!(
            text(&list),
            concat!(
                r#"[{"_meta":{"ui/resourceUri":"ui://a-x", "ui":{"resourceUri":"ui://a-y",
                        "visibility":[]}},"name":"a-t"},"#,
                r#"{"name":"a-u","_meta":{"ui":7,"ui/resourceUri":null}},"#,
                r#"{"name":"go","_meta":{"ui":{"resourceUri":"ui://b-z"}}}]"#
            )
        );
    }

    #[test]
    fn tasks_keep_the_order_of_their_backends() {
        let list = merged(
            &two(),
            Family::Tasks,
            [
                r#"[{"taskId":"9","status":"working"},{"taskId":"1"}]"#,
                r#"[{"taskId":"1"},{"status":"failed"}]"#,
            ],
        );
        assert_eq!(
            text(&list),
            r#"[{"taskId":"1.a.9","status":"working"},{"taskId":"1.a.1"},{"taskId":"1.b.1"}]"#
        );
    }

    #[test]
    fn what_a_name_allows_is_learned_by_its_uri() {
        let host = host(serde_json::json!({
            "a": {"url": "http://a/mcp", "allowed_resource_names": ["doc"],
                "allowed_resource_uris": ["x://9"]},
            "b": {"url": "http://b/mcp", "allowed_prompt_names": ["p"]}
        }));
        let mut learned = Learned::default();
        let list = merged(
            &host,
            Family::Resources,
            [
                concat!(
                    r#"[{"name":"doc","uri":"x://1"},{"name":"other","uri":"x://2"},"#,
                    r#"{"name":"other","uri":"x://9"}]"#
                ),
                r#"[{"name":"doc","uri":"x://1"}]"#,
            ],
        );
        assert_eq!(list.count, 2);
        learned.replace(Family::Resources, list.lesson);
        let template = r#"[{"name":"doc","uriTemplate":"t://{x}"}]"#;
        let list = merged(&host, Family::Templates, [template, template]);
        assert_eq!(list.count, 1);
        learned.replace(Family::Templates, list.lesson);
        let reaches = |uri| route_uri(&host, &learned, uri).is_some();
        assert!(reaches("a-x://1") && reaches("a-x://9") && reaches("a-t://7"));
        assert!(!reaches("a-x://2") && !reaches("b-x://1") && !reaches("b-t://7"));
        assert!(learned.has_heard(Family::Resources, 1));
        let prompts = r#"[{"name":"p"},{"name":"q"}]"#;
        let list = merged(&host, Family::Prompts, [prompts, prompts]);
        assert_eq!(text(&list), r#"[{"name":"b-p"}]"#);
    }

    #[test]
    fn resources_collide_by_uri() {
        let host = host(serde_json::json!({
            "a": {"url": "http://a/mcp"}, "a-b": {"url": "http://b/mcp"}
        }));
        let list = merged(
            &host,
            Family::Resources,
            [
                r#"[{"name":"n","uri":"b-x:1"},{"name":"n","uri":"x:2"},{"name":"b-n","uri":"x:3"}]"#,
                r#"[{"name":"n","uri":"x:1"}]"#,
            ],
        );
        assert_eq!(list.collisions, [Box::from("a-b-x:1")]);
        let mut learned = Learned::default();
        learned.replace(Family::Resources, list.lesson);
        // The first in the list has it.
        assert_eq!(route_uri(&host, &learned, "a-b-x:1").unwrap().backend, 1);
        assert_eq!(route_uri(&host, &learned, "a-b-x:2").unwrap().backend, 1);
    }

    proptest! {
        /// With one backend a merged list is the backend's, element for element; with more, taking
        /// the prefixes out again gives the bytes back.
        #[test]
        fn other_bytes_stay(
            names in prop::collection::vec("[a-z\"\\\\é]{0,5}", 0..6),
            is_single: bool,
        ) {
            let elements: Vec<String> = names
                .iter()
                .map(|name| {
                    let name = serde_json::to_string(name).unwrap();
                    format!(r#"{{"x":[1.0, {name}],"uri":{name} ,"name":{name},"uri2":{name}}}"#)
                })
                .collect();
            let array = format!("[{}]", elements.join(" , "));
            let host = if is_single {
                host(serde_json::json!({"a": {"url": "http://a/mcp"}}))
            } else {
                two()
            };
            let pages = [BackendPages {
                backend: 0,
                arrays: vec![array.into_bytes()],
                checks_marks: false,
                is_bridged: false,
            }];
            let list = merge(&host, Family::Resources, &pages);
            prop_assert_eq!(list.count, names.len());
            let shown: Vec<String> = json::elements(&list.array)
                .map(|element| {
                    let element = element.unwrap().slice(&list.array);
                    let element = String::from_utf8(element.to_vec()).unwrap();
                    if is_single {
                        element
                    } else {
                        element.replace(r#""uri":"a-"#, r#""uri":""#)
                            .replace(r#""name":"a-"#, r#""name":""#)
                    }
                })
                .collect();
            let sorted = |mut list: Vec<String>| {
                list.sort();
                list
            };
            prop_assert_eq!(sorted(shown), sorted(elements));
        }
    }
}

//! The naming contract (contextforge.md 5.3): alias, single backend, prefix; exact map first, then
//! the longest key. Pure functions over the compiled virtual host.
//!
//! With one backend everything but an alias is what the backend calls it. With several, of the
//! backend with the key `b`
//!
//! * a tool, a prompt and the name of a resource are `b-name`; only tools have aliases;
//! * a URI or URI template is `b-uri`, but `ui://rest` is `ui://b-rest`: hosts of MCP Apps take
//!   nothing for a user interface that has another scheme. Expressions of a template stay whole;
//! * a task id is `1.b.id`, with the length of the key in front, so that no key makes it doubtful:
//!   nothing teaches which backend has a task.

use std::borrow::Cow;

use crate::{
    config::compiled::{Backend, VirtualHost},
    route::{family::Family, learned::Learned, template},
};

/// The scheme that stays in front of the key.
const UI: &str = "ui://";

/// Where a request for one tool, prompt, resource or task goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// Index of the backend in the virtual host.
    pub backend: usize,
    /// The name, URI or id there.
    pub original: Cow<'a, str>,
}

/// What clients see in place of `original`, by which the backend at `index` knows one of `family`:
/// a name of a tool or prompt, a URI, a URI template, a task id.
pub fn expose<'a>(
    host: &'a VirtualHost,
    family: Family,
    index: usize,
    original: &'a str,
) -> Cow<'a, str> {
    match family {
        Family::Tools => expose_tool(host, index, original),
        Family::Prompts => expose_name(host, index, original),
        Family::Resources | Family::Templates => expose_uri(host, index, original),
        Family::Tasks => expose_id(host, index, original),
    }
}

/// The name under which clients see the tool `original` of the backend at `index`.
pub fn expose_tool<'a>(host: &'a VirtualHost, index: usize, original: &'a str) -> Cow<'a, str> {
    if let Some(alias) = host.backends[index].alias_of.get(original)
        && host.aliases.get(alias).is_some_and(Option::is_some)
    {
        return Cow::Borrowed(alias);
    }
    expose_name(host, index, original)
}

/// The name of a prompt, a resource or a template as clients see it.
pub fn expose_name<'a>(host: &VirtualHost, index: usize, original: &'a str) -> Cow<'a, str> {
    if host.is_single {
        return Cow::Borrowed(original);
    }
    Cow::Owned(format!("{}-{original}", host.backends[index].key))
}

/// The URI or URI template as clients see it.
pub fn expose_uri<'a>(host: &VirtualHost, index: usize, original: &'a str) -> Cow<'a, str> {
    match original.strip_prefix(UI) {
        Some(rest) if !host.is_single => {
            Cow::Owned(format!("{UI}{}-{rest}", host.backends[index].key))
        }
        _ => expose_name(host, index, original),
    }
}

/// An id that its backend alone made unique, as clients see it: of tasks, which lead back with
/// [`route_task`], and of elicitations, which never come back (mcp.md 3.4).
pub fn expose_id<'a>(host: &VirtualHost, index: usize, original: &'a str) -> Cow<'a, str> {
    if host.is_single {
        return Cow::Borrowed(original);
    }
    let key = &host.backends[index].key;
    Cow::Owned(format!("{}.{key}.{original}", key.len()))
}

/// The route of the exposed tool name `name`. `None`: no such tool for this caller; a tool that
/// the allow-list hides looks the same.
pub fn route_tool<'a>(
    host: &'a VirtualHost,
    learned: &Learned,
    name: &'a str,
) -> Option<Route<'a>> {
    let route = match host.aliases.get(name) {
        Some(alias) => {
            let (backend, original) = alias.as_ref()?;
            Route {
                backend: usize::from(*backend),
                original: Cow::Borrowed(&**original),
            }
        }
        None => by_prefix(host, learned, &[Family::Tools], name, strip_name)?,
    };
    host.backends[route.backend]
        .allows_tool(&route.original)
        .then_some(route)
}

/// The route of the exposed prompt name `name`, of `prompts/get` and of a completion.
pub fn route_prompt<'a>(host: &VirtualHost, learned: &Learned, name: &'a str) -> Option<Route<'a>> {
    let route = by_prefix(host, learned, &[Family::Prompts], name, strip_name)?;
    host.backends[route.backend]
        .allows_prompt(&route.original)
        .then_some(route)
}

/// The route of an exposed URI, of a read, a subscription or a completion; the last may be of a
/// template as it was listed. Backends may hand out URIs that they never list, so where nothing
/// restricts the resources the prefix is enough.
pub fn route_uri<'a>(host: &VirtualHost, learned: &Learned, uri: &'a str) -> Option<Route<'a>> {
    let families = [Family::Resources, Family::Templates];
    let route = by_prefix(host, learned, &families, uri, strip_uri)?;
    allows_uri(host, learned, &route).then_some(route)
}

/// The route of an exposed task id.
pub fn route_task<'a>(host: &VirtualHost, id: &'a str) -> Option<Route<'a>> {
    if host.is_single {
        return only(host, id);
    }
    let backend = host
        .backends
        .iter()
        .position(|backend| strip_id(backend, id).is_some())?;
    let original = Cow::Borrowed(strip_id(&host.backends[backend], id)?);
    Some(Route { backend, original })
}

fn only<'a>(host: &VirtualHost, original: &'a str) -> Option<Route<'a>> {
    let backend = 0;
    let original = Cow::Borrowed(original);
    (!host.backends.is_empty()).then_some(Route { backend, original })
}

/// The backend that listed exactly this, else the one with the longest key that it begins with.
fn by_prefix<'a>(
    host: &VirtualHost,
    learned: &Learned,
    families: &[Family],
    exposed: &'a str,
    strip: fn(&Backend, &'a str) -> Option<Cow<'a, str>>,
) -> Option<Route<'a>> {
    if host.is_single {
        return only(host, exposed);
    }
    let listed = families
        .iter()
        .find_map(|family| learned.exact(*family, exposed));
    if let Some(backend) = listed
        && let Some(original) = host.backends.get(backend).and_then(|at| strip(at, exposed))
    {
        return Some(Route { backend, original });
    }
    host.backends
        .iter()
        .enumerate()
        .filter_map(|(index, backend)| Some((index, backend.key.len(), strip(backend, exposed)?)))
        .max_by_key(|(_, key_len, _)| *key_len)
        .map(|(backend, _, original)| Route { backend, original })
}

fn strip_name<'a>(backend: &Backend, exposed: &'a str) -> Option<Cow<'a, str>> {
    let original = exposed.strip_prefix(&*backend.key)?.strip_prefix('-')?;
    Some(Cow::Borrowed(original))
}

fn strip_uri<'a>(backend: &Backend, exposed: &'a str) -> Option<Cow<'a, str>> {
    if let Some(Cow::Borrowed(rest)) = exposed
        .strip_prefix(UI)
        .and_then(|rest| strip_name(backend, rest))
    {
        return Some(Cow::Owned(format!("{UI}{rest}")));
    }
    strip_name(backend, exposed)
}

fn strip_id<'a>(backend: &Backend, exposed: &'a str) -> Option<&'a str> {
    let (len, rest) = exposed.split_once('.')?;
    let is_ours = *len == *backend.key.len().to_string();
    let rest = is_ours.then_some(rest)?;
    rest.strip_prefix(&*backend.key)?.strip_prefix('.')
}

/// Whether callers may use the resource at this route (contextforge.md 5.5): it is allowed by its
/// URI, or a list told that its name is.
fn allows_uri(host: &VirtualHost, learned: &Learned, route: &Route<'_>) -> bool {
    let Some(allowed) = &host.backends[route.backend].allowed_resources else {
        return true;
    };
    let is_allowed = |entry: &str| {
        entry == &*route.original
            || (template::is_template(entry) && template::matches(entry, &route.original))
    };
    allowed.uris.iter().any(|entry| is_allowed(entry))
        || learned.allows(route.backend, &route.original)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::learned::Lesson;
    use crate::{config::compiled::CompiledUser, upstream::target::Targets};
    use proptest::prelude::*;

    fn host(json: serde_json::Value) -> std::rc::Rc<VirtualHost> {
        let config =
            serde_json::from_value(serde_json::json!({"virtual_hosts": {"v": {"backends": json}}}))
                .unwrap();
        CompiledUser::new(&config, &Targets::default())
            .host("v")
            .unwrap()
            .clone()
    }

    fn routed(host: &VirtualHost, name: &str) -> Option<(String, String)> {
        let route = route_tool(host, &Learned::default(), name)?;
        Some((
            host.backends[route.backend].key.to_string(),
            route.original.into_owned(),
        ))
    }

    fn pair(key: &str, original: &str) -> Option<(String, String)> {
        Some((key.to_owned(), original.to_owned()))
    }

    #[test]
    fn one_backend_passes_names_through() {
        let host = host(serde_json::json!({"one": {"url": "http://a/mcp"}}));
        assert_eq!(expose_tool(&host, 0, "t"), "t");
        assert_eq!(routed(&host, "t"), pair("one", "t"));
        assert_eq!(routed(&host, "one-t"), pair("one", "one-t"));
    }

    #[test]
    fn several_backends_prefix_and_the_longest_key_wins() {
        let host = host(serde_json::json!({
            "a": {"url": "http://a/mcp"}, "a-b": {"url": "http://b/mcp"}
        }));
        assert!(host.is_ambiguous);
        assert_eq!(expose_tool(&host, 0, "t"), "a-t");
        assert_eq!(routed(&host, "a-t"), pair("a", "t"));
        assert_eq!(routed(&host, "a-b-t"), pair("a-b", "t"));
        assert_eq!(routed(&host, "a-"), pair("a", ""));
        for none in ["t", "at", "A-t", ""] {
            assert_eq!(routed(&host, none), None, "{none}");
        }
        // The list showed `b-t` at `a`: the exact map beats the longest key.
        let mut lesson = Lesson::default();
        lesson.place("a-b-t", 0);
        let mut learned = Learned::default();
        learned.replace(Family::Tools, lesson);
        assert_eq!(
            route_tool(&host, &learned, "a-b-t").unwrap().original,
            "b-t"
        );
    }

    #[test]
    fn aliases_come_first_and_two_claims_route_nowhere() {
        let host = host(serde_json::json!({
            "x": {"url": "http://x/mcp", "tool_name_aliases": {"zz": "t", "go": "t", "both": "u"}},
            "y": {"url": "http://y/mcp", "tool_name_aliases": {"both": "v"}}
        }));
        assert_eq!(expose_tool(&host, 0, "t"), "go");
        assert_eq!(routed(&host, "go"), pair("x", "t"));
        assert_eq!(routed(&host, "zz"), pair("x", "t"));
        assert_eq!(routed(&host, "x-t"), pair("x", "t"));
        assert_eq!(routed(&host, "both"), None);
        assert_eq!(expose_tool(&host, 0, "u"), "x-u");
        assert_eq!(routed(&host, "x-u"), pair("x", "u"));
    }

    #[test]
    fn allow_lists_hide_and_refuse() {
        let host = host(serde_json::json!({
            "x": {"url": "http://x/mcp", "allowed_tool_names": ["yes"]},
            "y": {"url": "http://y/mcp", "allowed_prompt_names": ["p"]}
        }));
        assert_eq!(routed(&host, "x-yes"), pair("x", "yes"));
        assert_eq!(routed(&host, "x-no"), None);
        assert_eq!(routed(&host, "y-any"), None);
    }

    fn two() -> std::rc::Rc<VirtualHost> {
        host(serde_json::json!({
            "b": {"url": "http://b/mcp", "tool_name_aliases": {"go": "t"}},
            "cé": {"url": "http://c/mcp"}
        }))
    }

    #[test]
    fn prompts_have_no_aliases() {
        let host = two();
        assert_eq!(expose(&host, Family::Prompts, 0, "t"), "b-t");
        let none = Learned::default();
        assert_eq!(route_prompt(&host, &none, "b-t").unwrap().original, "t");
        assert_eq!(route_prompt(&host, &none, "go"), None);
    }

    #[test]
    fn uris_get_the_key_in_front_but_user_interfaces_keep_their_scheme() {
        let host = two();
        let none = Learned::default();
        for (original, exposed) in [
            ("file:///a", "b-file:///a"),
            ("file:///{+path}", "b-file:///{+path}"),
            ("{+all}", "b-{+all}"),
            ("ui://app/x", "ui://b-app/x"),
            ("ui://{app}", "ui://b-{app}"),
            ("UI://app", "b-UI://app"),
            ("", "b-"),
        ] {
            assert_eq!(expose(&host, Family::Templates, 0, original), exposed);
            let route = route_uri(&host, &none, exposed).unwrap();
            assert_eq!((route.backend, &*route.original), (0, original));
        }
        // What a listed `{+all}` may become on its way through a client.
        assert_eq!(
            route_uri(&host, &none, "b-ui://x").unwrap().original,
            "ui://x"
        );
        for unknown in ["file:///a", "ui://app/x", "ui://", "bfile:///a", ""] {
            assert_eq!(route_uri(&host, &none, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn task_ids_tell_their_backend_whatever_its_key() {
        let host = two();
        assert_eq!(expose(&host, Family::Tasks, 0, "7"), "1.b.7");
        assert_eq!(expose(&host, Family::Tasks, 1, ""), "3.cé.");
        let route = route_task(&host, "1.b.1.b.7").unwrap();
        assert_eq!((route.backend, &*route.original), (0, "1.b.7"));
        for unknown in [
            "7", "01.b.7", "+1.b.7", "1.c.7", "1.b7", "2.b.7", "b.7", "1.b", "",
        ] {
            assert_eq!(route_task(&host, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn resources_are_allowed_by_uri_or_by_a_listed_name() {
        let host = host(serde_json::json!({
            "x": {"url": "http://x/mcp", "allowed_resource_names": ["doc"],
                "allowed_resource_uris": ["x://1", "x://t/{id}"], "allowed_prompt_names": ["p"]},
            "y": {"url": "http://y/mcp", "allowed_tool_names": ["t"]},
            "z": {"url": "http://z/mcp"}
        }));
        let mut learned = Learned::default();
        let reaches = |learned: &Learned, uri: &str| route_uri(&host, learned, uri).is_some();
        assert!(reaches(&learned, "x-x://1") && reaches(&learned, "x-x://t/9"));
        assert!(reaches(&learned, "z-any://thing"));
        assert!(!reaches(&learned, "x-x://2") && !reaches(&learned, "y-y://1"));
        assert!(learned.lacks(&host, Family::Resources) && learned.lacks(&host, Family::Templates));
        assert!(!learned.lacks(&host, Family::Prompts));
        let (mut resources, mut templates) = (Lesson::default(), Lesson::default());
        resources.allow(Family::Resources, "x://2", 0);
        templates.allow(Family::Templates, "x://n/{id}", 0);
        learned.replace(Family::Resources, resources);
        learned.replace(Family::Templates, templates);
        assert!(reaches(&learned, "x-x://2") && reaches(&learned, "x-x://n/{id}"));
        assert!(reaches(&learned, "x-x://n/1") && !reaches(&learned, "x-x://3"));
        assert!(!learned.lacks(&host, Family::Resources));
        let none = Learned::default();
        assert!(route_prompt(&host, &none, "x-p").is_some());
        assert!(route_prompt(&host, &none, "x-q").is_none());
        assert!(route_prompt(&host, &none, "y-p").is_none());
        assert!(route_tool(&host, &none, "x-any").is_none());
    }

    #[test]
    fn a_key_that_looks_like_a_scheme_is_ambiguous() {
        let host = host(serde_json::json!({
            "ui://b": {"url": "http://a/mcp"}, "b": {"url": "http://b/mcp"}
        }));
        assert!(host.is_ambiguous);
    }

    proptest! {
        /// What is shown leads back to where it is, for every family.
        #[test]
        fn exposed_leads_back(
            keys in prop::collection::btree_set("[ab.1-]{1,4}|ui://a?", 1..5),
            original in "(ui://)?\\PC{0,8}|[ab.1-]{0,8}",
            pick in 0usize..5,
        ) {
            let backends: serde_json::Map<_, _> = keys
                .iter()
                .map(|key| (key.clone(), serde_json::json!({"url": "http://a/mcp"})))
                .collect();
            let host = host(backends.into());
            let backend = pick % host.backends.len();
            for family in Family::ALL {
                let exposed = expose(&host, family, backend, &original);
                let mut learned = Learned::default();
                if host.is_ambiguous {
                    let mut lesson = Lesson::default();
                    lesson.place(&exposed, u16::try_from(backend).unwrap());
                    learned.replace(family, lesson);
                }
                let route = match family {
                    Family::Tools => route_tool(&host, &learned, &exposed),
                    Family::Prompts => route_prompt(&host, &learned, &exposed),
                    Family::Resources | Family::Templates => route_uri(&host, &learned, &exposed),
                    Family::Tasks => route_task(&host, &exposed),
                };
                let route = route.unwrap();
                prop_assert_eq!((route.backend, &*route.original), (backend, &*original));
            }
        }
    }
}

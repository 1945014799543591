//! The naming contract (contextforge.md 5.3): alias, single backend, prefix; exact map first, then
//! the longest key. Pure functions over the compiled virtual host.

use std::borrow::Cow;

use crate::config::compiled::{Backend, VirtualHost};

/// Where a tool call goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Route<'a> {
    /// Index of the backend in the virtual host.
    pub backend: usize,
    /// The tool's name there.
    pub original: Cow<'a, str>,
}

/// The name under which clients see the tool `original` of the backend at `index`.
pub fn expose<'a>(host: &'a VirtualHost, index: usize, original: &'a str) -> Cow<'a, str> {
    let backend = &host.backends[index];
    if let Some(alias) = backend.alias_of.get(original)
        && host.aliases.get(alias).is_some_and(Option::is_some)
    {
        return Cow::Borrowed(alias);
    }
    if host.is_single {
        return Cow::Borrowed(original);
    }
    Cow::Owned(format!("{}-{original}", backend.key))
}

/// The route of the exposed tool name `name`; `learned` is the exact map of the last merged list
/// (empty unless the host is ambiguous). `None`: no such tool for this caller; a tool that the
/// allow-list hides looks the same.
pub fn route_tool<'a>(
    host: &'a VirtualHost,
    learned: &[(Box<str>, u16)],
    name: &'a str,
) -> Option<Route<'a>> {
    let route = resolve(host, learned, name)?;
    host.backends[route.backend]
        .allows_tool(&route.original)
        .then_some(route)
}

fn resolve<'a>(
    host: &'a VirtualHost,
    learned: &[(Box<str>, u16)],
    name: &'a str,
) -> Option<Route<'a>> {
    if let Some(alias) = host.aliases.get(name) {
        let (backend, original) = alias.as_ref()?;
        return Some(Route {
            backend: usize::from(*backend),
            original: Cow::Borrowed(original),
        });
    }
    if host.is_single {
        return (!host.backends.is_empty()).then_some(Route {
            backend: 0,
            original: Cow::Borrowed(name),
        });
    }
    let strip = |backend: &Backend| name.strip_prefix(&*backend.key)?.strip_prefix('-');
    if let Some((_, backend)) = learned.iter().find(|(exposed, _)| **exposed == *name)
        && let Some(original) = host.backends.get(usize::from(*backend)).and_then(strip)
    {
        return Some(Route {
            backend: usize::from(*backend),
            original: Cow::Borrowed(original),
        });
    }
    host.backends
        .iter()
        .enumerate()
        .filter_map(|(index, backend)| Some((index, backend.key.len(), strip(backend)?)))
        .max_by_key(|(_, key_len, _)| *key_len)
        .map(|(backend, _, original)| Route {
            backend,
            original: Cow::Borrowed(original),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::compiled::CompiledUser, upstream::target::Targets};

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
        let route = route_tool(host, &[], name)?;
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
        assert_eq!(expose(&host, 0, "t"), "t");
        assert_eq!(routed(&host, "t"), pair("one", "t"));
        assert_eq!(routed(&host, "one-t"), pair("one", "one-t"));
    }

    #[test]
    fn several_backends_prefix_and_the_longest_key_wins() {
        let host = host(serde_json::json!({
            "a": {"url": "http://a/mcp"}, "a-b": {"url": "http://b/mcp"}
        }));
        assert!(host.is_ambiguous);
        assert_eq!(expose(&host, 0, "t"), "a-t");
        assert_eq!(routed(&host, "a-t"), pair("a", "t"));
        assert_eq!(routed(&host, "a-b-t"), pair("a-b", "t"));
        assert_eq!(routed(&host, "a-"), pair("a", ""));
        for none in ["t", "at", "A-t", ""] {
            assert_eq!(routed(&host, none), None, "{none}");
        }
        // The list showed `b-t` at `a`: the exact map beats the longest key.
        let learned = [(Box::from("a-b-t"), 0u16)];
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
        assert_eq!(expose(&host, 0, "t"), "go");
        assert_eq!(routed(&host, "go"), pair("x", "t"));
        assert_eq!(routed(&host, "zz"), pair("x", "t"));
        assert_eq!(routed(&host, "x-t"), pair("x", "t"));
        assert_eq!(routed(&host, "both"), None);
        assert_eq!(expose(&host, 0, "u"), "x-u");
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
}

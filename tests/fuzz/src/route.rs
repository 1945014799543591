//! Names: a tool is found under the name that it is shown under, unless another has the same one.
//!
//! Input, three lines: backends' keys; aliases as `key:alias:tool`; tools. Entries by comma.

use std::collections::BTreeMap;

use shardgate::{
    config::{
        compiled::{self, CompiledUser},
        user_config::{BackendConfig, UserConfig, VirtualHost},
    },
    route::{
        family::Family,
        learned::Learned,
        merge::{BackendPages, merge},
        names::{expose, route_prompt, route_task, route_tool, route_uri},
    },
    upstream::target::Targets,
};

use super::Verdict;

/// Routes every exposed name of every backend.
pub fn check(data: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(data) else {
        return Verdict::Refused;
    };
    let mut lines = text
        .split('\n')
        .map(|line| line.split(',').take(5).collect::<Vec<_>>());
    let (Some(keys), Some(aliases), Some(mut tools)) = (lines.next(), lines.next(), lines.next())
    else {
        return Verdict::Refused;
    };
    tools.sort_unstable();
    tools.dedup();
    let mut backends = BTreeMap::new();
    for key in keys {
        let of_key = aliases
            .iter()
            .filter_map(|entry| entry.strip_prefix(key)?.strip_prefix(':')?.split_once(':'));
        let backend = BackendConfig {
            url: "http://backend.test/mcp".to_owned(),
            tool_name_aliases: of_key
                .map(|(alias, tool)| (alias.to_owned(), tool.to_owned()))
                .collect(),
            ..BackendConfig::default()
        };
        backends.insert(key.to_owned(), backend);
    }
    let host = VirtualHost {
        backends,
        ..VirtualHost::default()
    };
    let config = UserConfig {
        virtual_hosts: [("v".to_owned(), host)].into(),
    };
    let user = CompiledUser::new(&config, &Targets::default());
    let host = user.host("v").unwrap();
    let listed: Vec<_> = tools
        .iter()
        .map(|tool| serde_json::json!({"name": tool}))
        .collect();
    let array = serde_json::to_vec(&listed).unwrap();
    let pages: Vec<BackendPages> = (0..host.backends.len())
        .map(|backend| BackendPages {
            backend,
            arrays: vec![array.clone()],
            checks_marks: false,
            is_bridged: false,
        })
        .collect();
    let merged = merge(host, Family::Tools, &pages);
    assert_eq!(merged.count, tools.len() * host.backends.len());
    // As the product does: the list is asked only where prefixes do not tell.
    let mut learned = Learned::default();
    if learned.lacks(host, Family::Tools) {
        learned.replace(Family::Tools, merged.lesson);
    }
    for index in 0..host.backends.len() {
        for tool in &tools {
            let name = expose(host, Family::Tools, index, tool);
            let route = route_tool(host, &learned, &name);
            let found = route
                .as_ref()
                .map(|route| (route.backend, &*route.original));
            if let Some(alias) = host.aliases.get(&*name) {
                // An alias comes before every prefix; one that two claim reaches neither.
                let target = alias.as_ref().map(|(at, tool)| (usize::from(*at), &**tool));
                assert_eq!(found, target, "{name:?}");
            } else if !merged.collisions.iter().any(|taken| **taken == *name) {
                assert_eq!(found, Some((index, *tool)), "{name:?}");
            } else {
                assert!(found.is_some(), "{name:?}");
            }
            // Without the list the name still leads to what it spells.
            if let Some(route) = route_tool(host, &Learned::default(), &name)
                && !host.is_single
                && !host.aliases.contains_key(&*name)
            {
                let key = &host.backends[route.backend].key;
                assert_eq!(format!("{key}-{}", route.original), *name);
            }
        }
    }
    for family in [Family::Resources, Family::Prompts, Family::Tasks] {
        check_unlisted(host, family, &tools);
    }
    Verdict::Taken
}

/// What is not in a list, where keys are not ambiguous: URIs that are only handed out, tasks.
fn check_unlisted(host: &compiled::VirtualHost, family: Family, originals: &[&str]) {
    let none = Learned::default();
    if none.lacks(host, family) {
        return;
    }
    for index in 0..host.backends.len() {
        for original in originals {
            let exposed = expose(host, family, index, original);
            let route = match family {
                Family::Tools => route_tool(host, &none, &exposed),
                Family::Prompts => route_prompt(host, &none, &exposed),
                Family::Resources | Family::Templates => route_uri(host, &none, &exposed),
                Family::Tasks => route_task(host, &exposed),
            };
            let found = route.map(|route| (route.backend, route.original.into_owned()));
            assert_eq!(found, Some((index, (*original).to_owned())), "{exposed:?}");
        }
    }
}

//! S1: the pages of several backends, and the pages of the gateway.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    support::{Asked, Backend, HOST, LAYOUTS, Layout, McpClient, Plan, Response, Wire},
    text_of,
};

const UNAVAILABLE: &str = "shardgate/unavailable";
/// Pages of the gateway that a list of these tests has at the most.
const PAGES_MAX: usize = 10;

/// What is listed, and how.
struct Family {
    method: &'static str,
    member: &'static str,
    name: &'static str,
}

const FAMILIES: [Family; 4] = [
    Family {
        method: "tools/list",
        member: "tools",
        name: "name",
    },
    Family {
        method: "prompts/list",
        member: "prompts",
        name: "name",
    },
    Family {
        method: "resources/list",
        member: "resources",
        name: "uri",
    },
    Family {
        method: "resources/templates/list",
        member: "resourceTemplates",
        name: "uriTemplate",
    },
];

/// A backend with every family, each on two pages; the cursor to the second one is `2`.
fn two_pages(name: &'static str) -> Backend {
    let backend = Backend::scripted(name, &[], move |asked, wire| answer(name, asked, wire));
    backend.set_capabilities(r#"{"tools":{},"prompts":{},"resources":{}}"#);
    backend
}

fn answer(name: &str, asked: &Asked, wire: &mut Wire<'_>) -> Option<()> {
    let method = asked.rpc_method()?;
    let family = FAMILIES.iter().find(|family| family.method == method)?;
    let cursor = asked.json()["params"]["cursor"].clone();
    let (number, next) = match cursor.as_str() {
        None => (1, r#","nextCursor":"2""#),
        Some("2") => (2, ""),
        Some(_) => {
            wire.error(asked, -32602, "Invalid cursor");
            return Some(());
        }
    };
    let item = match family.member {
        "tools" => format!(r#"{{"name":"{name}{number}","inputSchema":{{"type":"object"}}}}"#),
        "prompts" => format!(r#"{{"name":"{name}{number}"}}"#),
        "resources" => format!(r#"{{"uri":"{name}://{number}","name":"x"}}"#),
        _ => format!(r#"{{"uriTemplate":"{name}://{number}/{{x}}","name":"x"}}"#),
    };
    wire.result(asked, &format!(r#"{{"{}":[{item}]{next}}}"#, family.member));
    Some(())
}

fn list(client: &mut McpClient, method: &str, cursor: Option<&str>) -> Response {
    let params = cursor.map_or_else(String::new, |cursor| {
        format!(r#","params":{{"cursor":{cursor}}}"#)
    });
    client.post(format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"{params}}}"#
    ))
}

/// The names on each page, the cursors followed to the last one.
fn pages(client: &mut McpClient, family: &Family) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let response = list(client, family.method, cursor.as_deref());
        let result = response.result();
        let items = result[family.member].as_array().unwrap().iter();
        pages.push(
            items
                .map(|item| item[family.name].as_str().unwrap().to_owned())
                .collect(),
        );
        assert!(pages.len() <= PAGES_MAX, "{pages:?}");
        match result.get("nextCursor") {
            Some(next) => cursor = Some(Value::from(next.as_str().unwrap()).to_string()),
            None => {
                assert!(!response.text().contains("nextCursor"));
                return pages;
            }
        }
    }
}

fn plan(a: &Backend, b: &Backend, page_items: usize) -> Plan {
    Plan::of(&[("a", &a.url()), ("b", &b.url())])
        .settings(move |settings| settings.limits.page_items_max = page_items)
}

fn expected(family: &Family) -> Vec<String> {
    let all = |backend: &str| {
        [1, 2].map(|number| match family.member {
            "tools" | "prompts" => format!("{backend}-{backend}{number}"),
            "resources" => format!("{backend}-{backend}://{number}"),
            _ => format!("{backend}-{backend}://{number}/{{x}}"),
        })
    };
    [all("a"), all("b")].concat()
}

#[test]
fn s1_the_pages_of_all_backends_are_one_list() {
    for layout in LAYOUTS {
        let (a, b) = (two_pages("a"), two_pages("b"));
        let gateway = plan(&a, &b, 0).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        for family in &FAMILIES {
            for _ in 0..2 {
                assert_eq!(pages(&mut client, family), [expected(family)]);
            }
            for backend in [&a, &b] {
                let cursors: Vec<Option<String>> = backend
                    .seen_rpc(family.method)
                    .iter()
                    .map(|asked| asked.param("cursor"))
                    .collect();
                let own = Some(r#""2""#.to_owned());
                assert_eq!(cursors, [None, own.clone(), None, own], "{}", family.method);
            }
        }
    }
}

#[test]
fn s1_small_pages_hold_everything_once_and_in_order() {
    for layout in LAYOUTS {
        for page_items in 1..=5 {
            let (a, b) = (two_pages("a"), two_pages("b"));
            let gateway = plan(&a, &b, page_items).layout(layout).start();
            let mut client = McpClient::open(&gateway);
            for family in &FAMILIES {
                let pages = pages(&mut client, family);
                assert!(
                    pages.iter().all(|page| page.len() <= page_items),
                    "{pages:?}"
                );
                assert_eq!(pages.concat(), expected(family), "{page_items} a page");
            }
            // What was listed on any page can be called.
            for (name, answer) in [("a-a1", "a a1 {}"), ("b-b2", "b b2 {}")] {
                assert_eq!(text_of(&client.call("1", name, "{}")), answer);
            }
        }
    }
}

/// A page of a backend may be larger than one of ours: cut, and asked for again.
#[test]
fn s1_pages_are_cut_wherever_they_must() {
    let a = Backend::start("a", &[]);
    a.set_pages(&[&["1", "2", "3"], &[], &["4"], &["5", "6", "7", "8"]]);
    let b = Backend::start("b", &["9"]);
    let all: Vec<String> = (1..=8)
        .map(|number| format!("a-{number}"))
        .chain(["b-9".to_owned()])
        .collect();
    for layout in LAYOUTS {
        for page_items in [1, 2, 3, 4, 8, 9, 10] {
            let gateway = plan(&a, &b, page_items).layout(layout).start();
            let mut client = McpClient::open(&gateway);
            assert_eq!(pages(&mut client, &FAMILIES[0]).concat(), all);
        }
    }
}

#[test]
fn s1_a_cursor_that_is_none_of_ours_is_refused() {
    for (layout, page_items) in [
        (Layout::One, 0),
        (Layout::Two, 1),
        (Layout::Spread, 1),
        (Layout::Spread, 0),
    ] {
        let (a, b) = (two_pages("a"), two_pages("b"));
        let gateway = plan(&a, &b, page_items).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let before = a.seen().len() + b.seen().len();
        let long = format!("\"{}\"", "A".repeat(100_000));
        for cursor in [
            r#""2""#,
            r#""%%%""#,
            r#""""#,
            r#""AAAA""#,
            r#""\u0000""#,
            "2",
            "null",
            r#"{"x":1}"#,
            &long,
        ] {
            for family in &FAMILIES {
                let response = list(&mut client, family.method, Some(cursor));
                assert_eq!(
                    (response.status, response.error_code()),
                    (200, -32602),
                    "{cursor:.40}"
                );
            }
        }
        assert_eq!(a.seen().len() + b.seen().len(), before, "nobody was asked");
    }
}

/// The cursor to the second page of this client's tools.
fn cursor_of(client: &mut McpClient) -> String {
    let result = list(client, "tools/list", None).result();
    Value::from(result["nextCursor"].as_str().unwrap()).to_string()
}

#[test]
fn s1_a_cursor_is_its_callers_and_its_lists_alone() {
    for layout in LAYOUTS {
        let (a, b) = (two_pages("a"), two_pages("b"));
        let backends = json!({"backends": {
            "a": {"name": "a", "url": a.url()}, "b": {"name": "b", "url": b.url()}
        }});
        let hosts = json!({"virtual_hosts": {HOST: backends, "second": backends}});
        let gateway = Plan::document(json!({"users": {"*": hosts}}))
            .layout(layout)
            .with_tokens()
            .settings(|settings| settings.limits.page_items_max = 1)
            .start();
        let (ann, bob) = (gateway.token("ann"), gateway.token("bob"));
        let mut client = McpClient::open_on(&gateway, HOST, Some(&ann));
        let cursor = cursor_of(&mut client);
        let refused = |client: &mut McpClient, method: &str, cursor: &str| {
            assert_eq!(list(client, method, Some(cursor)).error_code(), -32602);
        };
        let mut others = McpClient::open_on(&gateway, HOST, Some(&bob));
        refused(&mut others, "tools/list", &cursor);
        let mut elsewhere = McpClient::open_on(&gateway, "second", Some(&ann));
        refused(&mut elsewhere, "tools/list", &cursor);
        refused(&mut client, "prompts/list", &cursor);
        // Changed in any place.
        for at in 1..cursor.len() - 1 {
            let mut forged = cursor.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            refused(
                &mut client,
                "tools/list",
                std::str::from_utf8(&forged).unwrap(),
            );
        }
        // A cursor says all there is to say: it outlives its session.
        let mut later = McpClient::open_on(&gateway, HOST, Some(&ann));
        assert_eq!(client.delete().status, 200);
        let result = list(&mut later, "tools/list", Some(&cursor)).result();
        assert_eq!(result["tools"][0]["name"], "a-a2");
    }
}

#[test]
fn s1_a_cursor_that_comes_back_ends_the_list() {
    for page_items in [0, 2] {
        for layout in LAYOUTS {
            let a = Backend::scripted("a", &[], |asked, wire| {
                // Round and round: 1, 2, 3, 2, 3, ...
                asked.is("tools/list").then(|| {
                    let cursor = asked.param("cursor").unwrap_or_else(|| r#""0""#.to_owned());
                    let number: u32 = cursor.trim_matches('"').parse().unwrap();
                    let next = if number == 3 { 2 } else { number + 1 };
                    wire.result(
                        asked,
                        &format!(
                            r#"{{"tools":[{{"name":"t{number}","inputSchema":{{}}}}],"nextCursor":"{next}"}}"#
                        ),
                    );
                })
            });
            let b = two_pages("b");
            let gateway = plan(&a, &b, page_items).layout(layout).start();
            let mut client = McpClient::open(&gateway);
            let mut cursor: Option<String> = None;
            let mut names = BTreeSet::new();
            let mut count = 0;
            loop {
                let result = list(&mut client, "tools/list", cursor.as_deref()).result();
                for tool in result["tools"].as_array().unwrap() {
                    names.insert(tool["name"].as_str().unwrap().to_owned());
                }
                count += 1;
                // Page by page nobody remembers where a list has been: the client sees it as often
                // as it follows.
                if result.get("nextCursor").is_none() || count == PAGES_MAX {
                    break;
                }
                cursor = Some(Value::from(result["nextCursor"].as_str().unwrap()).to_string());
            }
            for name in ["a-t0", "a-t1", "a-t2", "a-t3"] {
                assert!(names.contains(name), "{names:?}");
            }
            if page_items == 0 {
                assert_eq!(count, 1);
                assert_eq!(a.seen_rpc("tools/list").len(), 4);
                assert_eq!(gateway.metric("shardgate_lists_cyclic_total"), 1);
                assert!(names.contains("b-b2"));
            }
        }
    }
}

/// Half a list is none: a backend that fails on its second page is left out as a whole.
#[test]
fn s1_a_backend_that_fails_on_a_later_page_is_left_out() {
    for layout in LAYOUTS {
        let a = two_pages("a");
        let b = Backend::scripted("b", &[], |asked, wire| {
            if asked.is("tools/list") && asked.param("cursor").is_some() {
                wire.answer(500, "content-type: text/plain\r\n", "canary");
                return Some(());
            }
            answer("b", asked, wire)
        });
        let gateway = plan(&a, &b, 0).layout(layout).start();
        let mut client = McpClient::open(&gateway);
        let result = list(&mut client, "tools/list", None).result();
        let names: Vec<&str> = result["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a-a1", "a-a2"]);
        assert_eq!(result["_meta"][UNAVAILABLE], json!(["b"]));
    }
}

//! Merging the backends' lists: their own bytes, with names exchanged, in one deterministic order.

use crate::{config::compiled::VirtualHost, mcp::json, route::names::expose};

/// One backend's pages of a list, as raw arrays.
#[derive(Debug)]
pub struct BackendPages {
    /// Index of the backend in the virtual host.
    pub backend: usize,
    /// The `tools` array of each page, raw.
    pub arrays: Vec<Vec<u8>>,
}

/// A merged list.
#[derive(Debug, Default)]
pub struct Merged {
    /// The JSON array.
    pub array: Vec<u8>,
    /// Exposed names and their backends, in list order.
    pub exposed: Vec<(Box<str>, u16)>,
    /// Exposed names that more than one tool has.
    pub collisions: Vec<Box<str>>,
}

/// Merges tool lists: each tool keeps its bytes but for its name, tools the caller may not use are
/// left out, the order is that of the exposed names (contextforge.md 5.4). A tool whose name cannot
/// be read is left out.
pub fn merge_tools(host: &VirtualHost, pages: &[BackendPages]) -> Merged {
    struct Tool<'a> {
        name: String,
        backend: usize,
        object: &'a [u8],
        name_at: crate::http::Span,
        is_renamed: bool,
    }
    let mut tools = Vec::new();
    for page in pages {
        for array in &page.arrays {
            for element in json::elements(array) {
                let Ok(element) = element else { break };
                let object = element.slice(array);
                let Some(name_at) = json::member(object, "name") else {
                    continue;
                };
                let Some(original) = json::unescape(name_at.slice(object)) else {
                    continue;
                };
                if !host.backends[page.backend].allows_tool(&original) {
                    continue;
                }
                let name = expose(host, page.backend, &original);
                let is_renamed = *name != *original;
                let name = name.into_owned();
                tools.push(Tool {
                    name,
                    backend: page.backend,
                    object,
                    name_at,
                    is_renamed,
                });
            }
        }
    }
    tools.sort_by(|a, b| a.name.cmp(&b.name).then(a.backend.cmp(&b.backend)));
    let mut merged = Merged::default();
    merged.array.push(b'[');
    let mut quoted = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        if index > 0 {
            merged.array.push(b',');
            if tools[index - 1].name == tool.name {
                merged.collisions.push(tool.name.as_str().into());
            }
        }
        if tool.is_renamed {
            quoted.clear();
            json::quote(&mut quoted, &tool.name);
            json::splice(&mut merged.array, tool.object, &[(tool.name_at, &quoted)]);
        } else {
            merged.array.extend_from_slice(tool.object);
        }
        let backend = u16::try_from(tool.backend).unwrap_or(u16::MAX);
        merged.exposed.push((tool.name.as_str().into(), backend));
    }
    merged.array.push(b']');
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::compiled::CompiledUser, upstream::target::Targets};

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
            },
            BackendPages {
                backend: 1,
                arrays: vec![br#"[{"name":"q\u00e9"},{"name":7}]"#.to_vec()],
            },
        ];
        let merged = merge_tools(host, &pages);
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
            },
            BackendPages {
                backend: 1,
                arrays: vec![br#"[{"name":"t"}]"#.to_vec()],
            },
        ];
        let merged = merge_tools(host, &pages);
        assert_eq!(merged.collisions, [Box::from("a-b-t")]);
    }
}

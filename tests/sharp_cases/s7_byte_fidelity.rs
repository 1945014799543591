//! S7: what a backend says and what a caller passes travel as the bytes they are.

use crate::support::{Backend, LAYOUTS, McpClient, Plan};

const RESULT: &str = r#"{"content":[],"structuredContent":{"n":12345678901234567890,"d":0.10,"e":1e400,"u":"\u00e9\/"},"_meta":{"x/y":{"z":null}},"futureField":[1]}"#;
/// The same with whitespace, repeated keys and characters beyond the first plane.
const ODD_RESULT: &str = "{ \"content\" : [ ] ,\t\"z\":-0.0,\"z\":1E+2, \"s\":\"\u{1f980}\\ud83e\\udd80\\u0000\" ,\"structuredContent\":{\"b\":1,\"a\":2} }";
const ARGUMENTS: &str = r#"{"id64":9007199254740993,"dup":1,"dup":2}"#;
const ODD_ARGUMENTS: &str = "{ \"id\" : 1.0 ,\t\"jsonrpc\":\"x\",\"method\":[],\"name\":\"n\",\"e\":-1e-400,\"u\":\"\\u00e9\\/\u{1f980}\" }";

fn says(result: &'static str, in_stream: bool) -> Backend {
    Backend::scripted("a", &["one"], move |asked, wire| {
        asked.tool()?;
        let id = asked.id();
        // Members in an unusual order, with an unknown one.
        let document = format!(r#"{{"result":{result},"x":[ ],"id":{id} ,"jsonrpc":"2.0"}}"#);
        if in_stream {
            wire.answer(
                200,
                "content-type: text/event-stream\r\n",
                format!("data: {document}\n\n"),
            );
        } else {
            wire.json(document);
        }
        Some(())
    })
}

#[test]
fn s7_a_result_is_relayed_byte_for_byte() {
    for result in [RESULT, ODD_RESULT] {
        for in_stream in [false, true] {
            for layout in LAYOUTS {
                let backend = says(result, in_stream);
                let gateway = Plan::one(&backend).layout(layout).start();
                let client = McpClient::open(&gateway);
                for _ in 0..4 {
                    let response = client.again().call(r#""\u00e9""#, "one", "{}");
                    let expected =
                        format!(r#"{{"result":{result},"x":[ ],"id":"\u00e9" ,"jsonrpc":"2.0"}}"#);
                    assert_eq!(response.raw_message(), expected);
                }
            }
        }
    }
}

#[test]
fn s7_an_error_is_relayed_byte_for_byte() {
    let error = r#"{"code":-32099,"message":"no\/\u00e9","data":{"n":1e400,"d":0.10}}"#;
    let backend = Backend::scripted("a", &["one"], move |asked, wire| {
        asked.tool()?;
        wire.json(format!(
            r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
            asked.id()
        ));
        Some(())
    });
    let gateway = Plan::one(&backend).start();
    let response = McpClient::open(&gateway).call("3", "one", "{}");
    assert_eq!(response.status, 200);
    assert_eq!(
        response.raw_message(),
        format!(r#"{{"jsonrpc":"2.0","id":3,"error":{error}}}"#)
    );
}

#[test]
fn s7_arguments_reach_the_backend_byte_for_byte() {
    for (keys, exposed) in [(&["a"][..], "one"), (&["a", "b"], "a-one")] {
        for arguments in [ARGUMENTS, ODD_ARGUMENTS, "[]", "null"] {
            let a = Backend::start("a", &["one"]);
            let b = Backend::start("b", &["two"]);
            let urls = [a.url(), b.url()];
            let backends: Vec<(&str, &str)> = keys
                .iter()
                .zip(&urls)
                .map(|(key, url)| (*key, url.as_str()))
                .collect();
            let gateway = Plan::of(&backends).start();
            let mut client = McpClient::open(&gateway);
            for (is_id_first, id) in [(true, "7"), (false, r#""0""#)] {
                let body = |id: &str, name: &str, token: &str| {
                    // Toward the backend the progress token is the request's id there.
                    let meta = format!(r#""_meta":{{"x/y":1e400,"progressToken":{token}}}"#);
                    let params = format!(
                        r#"{{ {meta},"arguments":{arguments},"name" : "{name}","f":[1] }}"#
                    );
                    if is_id_first {
                        format!(
                            "{{\"id\":{id}, \"params\":{params},\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"q\":0.10}}\r\n"
                        )
                    } else {
                        format!(
                            "\t{{\"params\":{params},\"method\":\"tools/call\",\"jsonrpc\":\"2.0\",\"id\" : {id}}}"
                        )
                    }
                };
                let before = a.seen_rpc("tools/call").len();
                let response = client.post(body(id, exposed, "0"));
                response.result();
                assert!(response.raw_message().contains(&format!(r#""id":{id}"#)));
                let asked = &a.seen_rpc("tools/call")[before];
                assert_eq!(asked.text(), body(&asked.id(), "one", &asked.id()));
            }
        }
    }
}

/// Tools are merged and renamed, and nothing else of them changes.
#[test]
fn s7_listed_tools_keep_their_bytes() {
    let tool = r#"{"inputSchema":{"type":"object","properties":{"n":{"maximum":12345678901234567890,"default":0.10}}},"title":"\u00e9\/", "name":"one","x":[null],"annotations":{"readOnlyHint":true}}"#;
    let a = Backend::scripted("a", &["one"], move |asked, wire| {
        asked
            .is("tools/list")
            .then(|| wire.result(asked, &format!(r#"{{"tools":[ {tool} ]}}"#)))
    });
    let b = Backend::start("b", &["two"]);
    let one = Plan::one(&a).start();
    let response = McpClient::open(&one).list();
    assert!(response.text().contains(tool), "{}", response.text());
    let two = Plan::of(&[("a", &a.url()), ("b", &b.url())]).start();
    let response = McpClient::open(&two).list();
    let renamed = tool.replace(r#""one""#, r#""a-one""#);
    assert!(response.text().contains(&renamed), "{}", response.text());
}

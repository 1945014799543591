//! Generated documents of the shape of a message, right more often than not, and broken ones.

use proptest::prelude::*;

use super::{META_TASK, META_VERSION};

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![6 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t"), 1 => Just("          ")]
}

pub(crate) fn string_lexeme() -> impl Strategy<Value = String> {
    let pieces = vec![
        "a",
        "name",
        "é",
        "😀",
        "\u{2028}",
        "{",
        "]",
        ",",
        ":",
        "/",
        "\\/",
        "\\n",
        "\\\\",
        "\\\"",
        "\\u0041",
        "\\u00e9",
        "\\ud83d\\ude00",
        "\\ud800",
        "\\udc00x",
        "\\u0000",
        "a run that is longer than one block of thirty-two bytes, to be sure",
    ];
    prop::collection::vec(prop::sample::select(pieces), 0..6)
        .prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn scalar() -> impl Strategy<Value = String> {
    let plain = [
        "0",
        "1",
        "-7",
        "42",
        "1.5",
        "-0",
        "0.10",
        "1e400",
        "-1E-3",
        "2E+8",
        "9007199254740993",
        "18446744073709551616",
        "true",
        "false",
        "null",
    ];
    let broken = [
        "01", "1.", ".5", "+1", "-", "1e", "1e+", "tru", "nul", "NaN", "'a'", "",
    ];
    prop_oneof![
        20 => prop::sample::select(plain.to_vec()).prop_map(String::from),
        20 => string_lexeme(),
        1 => prop::sample::select(broken.to_vec()).prop_map(String::from),
    ]
}

/// An object of these members, with whitespace between all tokens.
fn object(members: impl Strategy<Value = Vec<(String, String)>>) -> impl Strategy<Value = String> {
    (members, space(), space(), space()).prop_map(|(members, before, inside, after)| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(key, value)| format!("{before}{key}{inside}:{after}{value}{before}"))
            .collect();
        format!("{{{}{inside}}}", members.join(","))
    })
}

pub(crate) fn value() -> impl Strategy<Value = String> {
    scalar().prop_recursive(5, 32, 4, |inner| {
        let members = prop::collection::vec((string_lexeme(), inner.clone()), 0..4);
        prop_oneof![
            (prop::collection::vec(inner, 0..4), space())
                .prop_map(|(items, space)| format!("[{space}{}{space}]", items.join(","))),
            object(members),
        ]
    })
}

/// One member, mostly with the key as it should be, at times escaped or folded.
fn member(key: &'static str, value: BoxedStrategy<String>) -> BoxedStrategy<(String, String)> {
    let escaped = format!("\\u{:04x}{}", key.as_bytes()[0], &key[1..]);
    let upper = key.to_ascii_uppercase();
    let long_s = key.replacen('s', "\u{17f}", 1);
    let spelling = prop_oneof![
        60 => Just(key.to_owned()),
        2 => Just(escaped),
        1 => Just(upper),
        1 => Just(long_s),
    ];
    (spelling.prop_map(|key| format!("\"{key}\"")), value).boxed()
}

/// Some of these members in any order, now and then one of them twice.
fn some_of(members: Vec<BoxedStrategy<(String, String)>>) -> BoxedStrategy<Vec<(String, String)>> {
    let count = members.len();
    let picks = prop::collection::vec(prop::bool::weighted(0.5), count);
    let twice = prop::option::weighted(0.05, 0..count);
    (members, picks, twice)
        .prop_map(|(members, picks, twice)| {
            let chosen = members
                .iter()
                .zip(picks)
                .filter(|(_, is_picked)| *is_picked);
            let mut chosen: Vec<_> = chosen.map(|(member, _)| member.clone()).collect();
            chosen.extend(twice.map(|index| members[index].clone()));
            chosen
        })
        .prop_shuffle()
        .boxed()
}

fn meta() -> BoxedStrategy<String> {
    object(some_of(vec![
        member("progressToken", scalar().boxed()),
        member(META_VERSION, Just("\"2026-07-28\"".to_owned()).boxed()),
        member(META_TASK, value().boxed()),
        (string_lexeme(), value()).boxed(),
    ]))
    .boxed()
}

fn reference() -> BoxedStrategy<String> {
    let known = ["type", "name", "uri"];
    let mut members: Vec<_> = known.map(|key| member(key, scalar().boxed())).into();
    members.push((string_lexeme(), value()).boxed());
    prop_oneof![9 => object(some_of(members)), 1 => value()].boxed()
}

fn params() -> BoxedStrategy<String> {
    let mut members: Vec<_> = [
        "name",
        "uri",
        "cursor",
        "arguments",
        "requestId",
        "protocolVersion",
        "capabilities",
        "clientInfo",
        "taskId",
    ]
    .into_iter()
    .map(|key| member(key, value().boxed()))
    .collect();
    members.push(member("ref", reference()));
    members.push(member("_meta", meta()));
    members.push((string_lexeme(), value()).boxed());
    prop_oneof![20 => object(some_of(members)), 1 => value()].boxed()
}

/// A document of the shape of a message, right more often than not.
pub(crate) fn document() -> impl Strategy<Value = String> {
    let version = prop_oneof![20 => Just("\"2.0\"".to_owned()), 1 => scalar()].boxed();
    let method = prop_oneof![10 => Just("\"tools/call\"".to_owned()), 1 => scalar()].boxed();
    let id = prop_oneof![5 => Just("7".to_owned()), 5 => Just("\"\"".to_owned()), 4 => scalar()];
    let payload = prop_oneof![
        6 => some_of(vec![member("params", params())])
            .prop_flat_map(move |rest| (Just(rest), member("method", method.clone())))
            .prop_map(|(mut rest, method)| {
                rest.push(method);
                rest
            }),
        1 => member("result", value().boxed()).prop_map(|one| vec![one]),
        1 => member("error", value().boxed()).prop_map(|one| vec![one]),
    ];
    let extra = prop::collection::vec((string_lexeme(), value()), 0..2);
    let with_id = some_of(vec![member("id", id.boxed())]);
    let members = (member("jsonrpc", version), with_id, payload, extra).prop_map(
        |(version, id, payload, extra)| {
            let mut members = vec![version];
            members.extend(id);
            members.extend(payload);
            members.extend(extra);
            members
        },
    );
    (space(), object(members.prop_shuffle()), space())
        .prop_map(|(before, document, after)| format!("{before}{document}{after}"))
}

/// A document with one byte changed, dropped, added, or cut off from there on.
pub(crate) fn broken_document() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => prop::sample::select(b"{}[]\",:\\u0 \n\x01\xff".to_vec()),
        1 => any::<u8>(),
    ];
    (document(), any::<prop::sample::Index>(), byte, 0..4).prop_map(|(text, index, byte, how)| {
        let mut bytes = text.into_bytes();
        let at = index.index(bytes.len());
        match how {
            0 => bytes[at] = byte,
            1 => drop(bytes.remove(at)),
            2 => bytes.insert(at, byte),
            _ => bytes.truncate(at),
        }
        bytes
    })
}

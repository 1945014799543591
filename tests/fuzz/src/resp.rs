//! Redis' answers: depth and size stay under their caps, and pieces decode as the whole.

use shardgate::redis::{
    reply::{Dialect, Reply, decode},
    resp::{RespFault, RespLimits, bounded, encode},
};

use super::{Verdict, cuts};

/// Limits that small inputs reach.
const TIGHT: RespLimits = RespLimits {
    frame_bytes_max: 200,
    line_bytes_max: 24,
    depth_max: 3,
    items_max: 12,
};

/// Reads the frame in both dialects under both limits.
pub fn check(data: &[u8]) -> Verdict {
    commands_come_back(data);
    let mut is_taken = false;
    for limits in [TIGHT, RespLimits::default()] {
        let length = bounded(data, &limits);
        for dialect in [Dialect::Resp2, Dialect::Resp3] {
            let whole = decode(data, dialect, &limits);
            let form = form_of(&whole, data);
            for cut in cuts(data.len(), 24) {
                match decode(&data[..cut], dialect, &limits) {
                    Ok(None) => {}
                    part => assert_eq!(form_of(&part, data), form, "after {cut} bytes"),
                }
            }
            let Ok(Some((reply, used))) = whole else {
                continue;
            };
            assert_eq!(length, Ok(Some(used)));
            assert!(used <= data.len() && used <= limits.frame_bytes_max);
            let (depth, items) = size(&reply);
            assert!(depth <= limits.depth_max, "{depth} levels");
            assert!(items <= limits.items_max, "{items} items");
            is_taken = true;
        }
    }
    Verdict::taken_if(is_taken)
}

/// The outcome in one form: maps and sets have no order of their own, and are told as they come.
fn form_of(
    outcome: &Result<Option<(Reply, usize)>, RespFault>,
    data: &[u8],
) -> Result<Option<(String, usize)>, RespFault> {
    // A set is told as an array, so the bytes must say whether there can be one.
    let has_set = data.contains(&b'~');
    match outcome {
        Ok(Some((reply, used))) => Ok(Some((text_of(reply, has_set), *used))),
        Ok(None) => Ok(None),
        Err(fault) => Err(*fault),
    }
}

fn text_of(reply: &Reply, has_set: bool) -> String {
    let all = |items: &[Reply]| -> Vec<String> {
        items.iter().map(|item| text_of(item, has_set)).collect()
    };
    match reply {
        Reply::Null => "null".to_owned(),
        Reply::Simple(text) => format!("simple {text:?}"),
        Reply::Error { kind, text } => format!("error {kind:?} {text:?}"),
        Reply::Bulk(bytes) => format!("bulk {bytes:?}"),
        Reply::Integer(number) => format!("integer {number}"),
        Reply::Double(number) => format!("double {number:?}"),
        Reply::Boolean(value) => format!("boolean {value}"),
        Reply::Array(items) => {
            let mut items = all(items);
            if has_set {
                items.sort();
            }
            format!("array {items:?}")
        }
        Reply::Map(pairs) => {
            let of = |(key, value): &(Reply, Reply)| all(&[key.clone(), value.clone()]);
            let mut pairs: Vec<_> = pairs.iter().map(of).collect();
            pairs.sort();
            format!("map {pairs:?}")
        }
        Reply::Push { kind, items } => format!("push {kind:?} {:?}", all(items)),
    }
}

/// Levels of aggregates and items of all levels.
fn size(reply: &Reply) -> (usize, usize) {
    let of = |items: &mut dyn Iterator<Item = &Reply>| {
        items.fold((1, 1), |(depth, count), item| {
            let (inner, items) = size(item);
            (depth.max(1 + inner), count + items)
        })
    };
    match reply {
        Reply::Array(items) => of(&mut items.iter()),
        Reply::Map(pairs) => of(&mut pairs.iter().flat_map(|(key, value)| [key, value])),
        // The kind was an item too.
        Reply::Push { items, .. } => {
            let (depth, count) = of(&mut items.iter());
            (depth, count + 1)
        }
        _ => (0, 1),
    }
}

/// What we send is a frame of the arguments we meant.
fn commands_come_back(data: &[u8]) {
    let arguments: Vec<&[u8]> = data.split(|byte| *byte == b'|').take(8).collect();
    let mut wire = Vec::new();
    encode(&arguments, &mut wire);
    let items = arguments
        .iter()
        .map(|argument| Reply::Bulk(argument.to_vec()));
    let expected = (Reply::Array(items.collect()), wire.len());
    let decoded = decode(&wire, Dialect::Resp2, &RespLimits::default());
    assert_eq!(decoded, Ok(Some(expected)));
}

//! User configurations: MessagePack and JSON give the same model, and what was written is read.

use shardgate::config::{
    decode::{DecodeLimits, decode},
    document::parse_document,
    encode::{ArrayLayout, encode_array, encode_map},
    user_config::{Transport, UserConfig},
};

use super::Verdict;

/// Reads MessagePack, or JSON when it begins with an object.
pub fn check(data: &[u8]) -> Verdict {
    match data.first() {
        Some(b'{') => Verdict::taken_if(from_json(data)),
        _ => Verdict::taken_if(from_message_pack(data)),
    }
}

fn from_message_pack(data: &[u8]) -> bool {
    let Ok(config) = decode(data, &DecodeLimits::default()) else {
        return false;
    };
    comes_back(&config);
    let json = serde_json::to_string(&config).unwrap();
    let document = parse_document(&json, "f").expect("the model as JSON");
    let mut usable = config;
    usable.drop_unusable();
    assert_eq!(document.everyone.as_deref(), Some(&usable));
    true
}

fn from_json(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    let Ok(document) = parse_document(text, "f") else {
        return false;
    };
    for config in document.everyone.iter().chain(document.users.values()) {
        comes_back(config);
        let mut usable = UserConfig::clone(config);
        usable.drop_unusable();
        assert_eq!(**config, usable, "an unusable backend was kept");
    }
    true
}

/// Written and read again, the model is the same; the positional layouts keep what they know.
fn comes_back(config: &UserConfig) {
    let limits = DecodeLimits::default();
    assert_eq!(decode(&encode_map(config), &limits).as_ref(), Ok(config));
    for layout in [ArrayLayout::Seed, ArrayLayout::Head] {
        // Without its transport a backend's address is judged by other rules.
        let backends = || {
            config
                .virtual_hosts
                .values()
                .flat_map(|host| host.backends.values())
        };
        if layout == ArrayLayout::Head
            && backends().any(|backend| backend.transport != Transport::StreamableHttp)
        {
            continue;
        }
        let bytes = encode_array(config, layout);
        let again = decode(&bytes, &limits).expect("the positional form");
        assert_eq!(encode_array(&again, layout), bytes);
        let names = |config: &UserConfig| -> Vec<String> {
            let hosts = config.virtual_hosts.iter();
            hosts
                .flat_map(|(id, host)| host.backends.iter().map(move |(key, one)| (id, key, one)))
                .map(|(id, key, one)| format!("{id}/{key}/{}/{}", one.name, one.url))
                .collect()
        };
        assert_eq!(names(&again), names(config));
    }
}

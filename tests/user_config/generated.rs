//! Generated configurations: all forms are one model, and no damage makes a reader panic.

use std::collections::BTreeMap;

use proptest::prelude::*;
use shardgate::config::document::parse_document;
use shardgate::config::encode::{ArrayLayout, encode_array, encode_map};
use shardgate::config::user_config::{BackendConfig, Transport, UserConfig, VirtualHost};

use super::upstream::{HeadBackend, Hosts, head_backend, seed_backend, upstream};
use super::{backend_of, read};

fn texts() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[a-zé_-]{0,40}", 0..4)
}

fn text_map() -> impl Strategy<Value = BTreeMap<String, String>> {
    proptest::collection::btree_map("[a-z-]{0,8}", "[a-zé]{0,8}", 0..4)
}

fn backends() -> impl Strategy<Value = BackendConfig> {
    let lists = (texts(), texts(), texts(), texts(), texts());
    let maps = (text_map(), text_map());
    let url = "https?://[a-z]{1,9}(:[1-9][0-9]{0,3})?(/[a-z]{0,9})?";
    let transport = prop_oneof![
        Just(Transport::StreamableHttp),
        Just(Transport::Sse),
        Just(Transport::Stdio)
    ];
    ("[a-zé ]{0,40}", url, lists, maps, transport).prop_map(
        |(name, url, lists, maps, transport)| BackendConfig {
            name,
            url,
            passthrough_headers: lists.0,
            add_headers: maps.0,
            remove_headers: lists.1,
            allowed_tool_names: lists.2,
            tool_name_aliases: maps.1,
            allowed_resource_names: lists.3,
            allowed_prompt_names: lists.4,
            allowed_resource_uris: None,
            transport,
            ..BackendConfig::default()
        },
    )
}

fn configs() -> impl Strategy<Value = UserConfig> {
    let hosts =
        proptest::collection::btree_map("[a-f0-9-]{0,36}", backends(), 0..4).prop_map(|backends| {
            VirtualHost {
                backends,
                ..VirtualHost::default()
            }
        });
    proptest::collection::btree_map("[a-f0-9]{0,32}", hosts, 0..4)
        .prop_map(|virtual_hosts| UserConfig { virtual_hosts })
}

/// The config without what a layout has no place for.
fn reduced(config: &UserConfig, reduce: impl Fn(&mut BackendConfig)) -> UserConfig {
    let mut config = config.clone();
    let hosts = config.virtual_hosts.values_mut();
    hosts
        .flat_map(|host| host.backends.values_mut())
        .for_each(reduce);
    config
}

fn without_transport(backend: &mut BackendConfig) {
    backend.transport = Transport::default();
}

fn without_header_rules(backend: &mut BackendConfig) {
    backend.add_headers.clear();
    backend.remove_headers.clear();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn map_and_array_forms_are_read_as_the_same_model(config in configs()) {
        prop_assert_eq!(&read(&encode_map(&config)).unwrap(), &config);
        let head = read(&encode_array(&config, ArrayLayout::Head)).unwrap();
        prop_assert_eq!(head, reduced(&config, without_transport));
        let seed = read(&encode_array(&config, ArrayLayout::Seed)).unwrap();
        prop_assert_eq!(seed, reduced(&config, without_header_rules));
        let plain = reduced(&reduced(&config, without_transport), without_header_rules);
        let from_head = read(&encode_array(&plain, ArrayLayout::Head));
        prop_assert_eq!(&from_head, &read(&encode_array(&plain, ArrayLayout::Seed)));
        prop_assert_eq!(&from_head, &read(&encode_map(&plain)));
    }

    #[test]
    fn the_upstreams_own_encoder_writes_the_same_arrays(config in configs()) {
        let head = upstream(&config, head_backend);
        let seed = upstream(&config, seed_backend);
        let head_bytes = rmp_serde::to_vec(&head).unwrap();
        prop_assert_eq!(&head_bytes, &encode_array(&config, ArrayLayout::Head));
        let seed_bytes = rmp_serde::to_vec(&seed).unwrap();
        prop_assert_eq!(&seed_bytes, &encode_array(&config, ArrayLayout::Seed));
        // Named fields, as any other writer might choose, and our maps in upstream's reader.
        let named = rmp_serde::to_vec_named(&seed).unwrap();
        prop_assert_eq!(read(&named).unwrap(), reduced(&config, without_header_rules));
        let read_back: Hosts<HeadBackend> = rmp_serde::from_slice(&encode_map(&config)).unwrap();
        prop_assert_eq!(read_back, head);
    }

    #[test]
    fn damaged_documents_never_panic(
        config in configs(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let json = serde_json::to_string(&config).unwrap();
        for mut document in [
            encode_map(&config),
            encode_array(&config, ArrayLayout::Head),
            encode_array(&config, ArrayLayout::Seed),
            json.into_bytes(),
        ] {
            for (at, byte) in &damage {
                let at = at.index(document.len());
                document[at] = *byte;
            }
            if let Ok(config) = read(&document) {
                // Whatever could be read can be judged and written again.
                let _ = config.check();
                prop_assert_eq!(read(&encode_map(&config)).unwrap(), config);
            }
            let _ = parse_document(&String::from_utf8_lossy(&document), "f");
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let _ = backend_of(&bytes);
        let _ = parse_document(&String::from_utf8_lossy(&bytes), "f");
    }

    #[test]
    fn json_documents_round_trip(config in configs()) {
        let usable = reduced(&config, |backend| {
            without_transport(backend);
        });
        let text = serde_json::to_string(&usable).unwrap();
        let document = parse_document(&text, "f.json").unwrap();
        prop_assert_eq!(document.everyone.as_deref(), Some(&usable));
    }
}

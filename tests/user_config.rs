//! The wire forms of a user configuration (contextforge.md section 3), against the documented bytes
//! and against an independent encoder with the upstream's own structures.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "user_config/generated.rs"]
mod generated;
#[path = "user_config/upstream.rs"]
mod upstream;

use shardgate::config::decode::{DecodeFault, DecodeLimits, decode};
use shardgate::config::encode::{ArrayLayout, encode_array, encode_map};
use shardgate::config::user_config::{
    BackendConfig, BackendProtocol, Transport, UrlFault, UserConfig, VirtualHost,
};
use shardgate::settings::FailMode;

const VHOST: &str = "c0ffee00f001f001deadbeefdeadbeef";

fn one(key: &str, backend: BackendConfig) -> UserConfig {
    let host = VirtualHost {
        backends: [(key.to_owned(), backend)].into(),
        ..VirtualHost::default()
    };
    UserConfig {
        virtual_hosts: [(VHOST.to_owned(), host)].into(),
    }
}

/// The config of the reference dumps.
fn reference() -> UserConfig {
    one(
        "gateway-one",
        BackendConfig {
            name: "gateway-one".into(),
            url: "http://127.0.0.1:5555/mcp".into(),
            allowed_tool_names: vec!["increment".into()],
            ..BackendConfig::default()
        },
    )
}

fn bytes(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect()
}

fn read(bytes: &[u8]) -> Result<UserConfig, DecodeFault> {
    decode(bytes, &DecodeLimits::default())
}

/// `{"virtual_hosts": {"v": {"backends": {"b": <backend>}}}}` around a backend's own bytes.
fn around(backend: &[u8]) -> Vec<u8> {
    let mut document = b"\x81\xadvirtual_hosts\x81\xa1v\x81\xa8backends\x81\xa1b".to_vec();
    document.extend_from_slice(backend);
    document
}

fn backend_of(bytes: &[u8]) -> Result<BackendConfig, DecodeFault> {
    read(&around(bytes)).map(|mut config| {
        config
            .virtual_hosts
            .remove("v")
            .unwrap()
            .backends
            .remove("b")
            .unwrap()
    })
}

fn array(values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![0x90 | values.len() as u8];
    bytes.extend(values.concat());
    bytes
}

#[test]
fn the_control_planes_dump_byte_for_byte() {
    let mut config = reference();
    let backends = &mut config.virtual_hosts.get_mut(VHOST).unwrap().backends;
    backends
        .get_mut("gateway-one")
        .unwrap()
        .allowed_resource_uris = Some(Vec::new());
    let mut expected = bytes("81 ad 76 69 72 74 75 61 6c 5f 68 6f 73 74 73 81 d9 20");
    expected.extend_from_slice(VHOST.as_bytes());
    expected.extend(bytes("81 a8 62 61 63 6b 65 6e 64 73"));
    expected.extend(bytes(
        "81 ab 67 61 74 65 77 61 79 2d 6f 6e 65 8a a4 6e 61 6d 65 ab",
    ));
    let written = encode_map(&config);
    assert_eq!(&written[..expected.len()], expected);
    assert_eq!(written.len(), 284);
    // The ten fields in the publisher's order.
    let mut rest: &[u8] = &expected[..expected.len() - 6];
    assert_eq!(rest.len(), 74);
    rest = &written[rest.len()..];
    let expected_rest = b"\xa4name\xabgateway-one\xa3url\xb9http://127.0.0.1:5555/mcp\
        \xb3passthrough_headers\x90\xabadd_headers\x80\xaeremove_headers\x90\
        \xaccapabilities\x80\xb2allowed_tool_names\x91\xa9increment\
        \xb6allowed_resource_names\x90\xb5allowed_resource_uris\x90\
        \xb4allowed_prompt_names\x90";
    assert_eq!(rest, expected_rest);
    assert_eq!(read(&written), Ok(config));
}

#[test]
fn the_array_dump_of_head_byte_for_byte() {
    let mut expected = bytes("91 81 d9 20");
    expected.extend_from_slice(VHOST.as_bytes());
    expected.extend_from_slice(
        b"\x91\x81\xabgateway-one\x99\xabgateway-one\xb9http://127.0.0.1:5555/mcp\
          \x90\x80\x90\x91\xa9increment\x80\x90\x90",
    );
    assert_eq!(expected.len(), 106);
    assert_eq!(encode_array(&reference(), ArrayLayout::Head), expected);
    assert_eq!(read(&expected), Ok(reference()));
}

#[test]
fn the_array_form_of_seed_is_written_and_read() {
    let mut expected = bytes("91 81 d9 20");
    expected.extend_from_slice(VHOST.as_bytes());
    expected.extend_from_slice(
        b"\x91\x81\xabgateway-one\x98\xabgateway-one\xb9http://127.0.0.1:5555/mcp\
          \xaeSTREAMABLEHTTP\x90\x91\xa9increment\x80\x90\x90",
    );
    assert_eq!(encode_array(&reference(), ArrayLayout::Seed), expected);
    assert_eq!(read(&expected), Ok(reference()));
}

#[test]
fn seven_fields_are_seed_before_aliases() {
    let old = array(&[
        b"\xa1n",
        b"\xa8http://a",
        b"\xa3SSE",
        b"\x91\xa1p",
        b"\x91\xa1t",
        b"\x91\xa1r",
        b"\x91\xa1q",
    ]);
    let expected = BackendConfig {
        name: "n".into(),
        url: "http://a".into(),
        transport: Transport::Sse,
        passthrough_headers: vec!["p".into()],
        allowed_tool_names: vec!["t".into()],
        allowed_resource_names: vec!["r".into()],
        allowed_prompt_names: vec!["q".into()],
        ..BackendConfig::default()
    };
    assert_eq!(backend_of(&old), Ok(expected));
}

#[test]
fn other_layouts_are_refused() {
    let fields: [&[u8]; 12] = [
        b"\xa1n",
        b"\xa8http://a",
        b"\x90",
        b"\x80",
        b"\x90",
        b"\x90",
        b"\x80",
        b"\x90",
        b"\x90",
        b"\x90",
        b"\x90",
        b"\x90",
    ];
    for length in (0..=12).filter(|length| *length != 9) {
        let refused = backend_of(&array(&fields[..length]));
        match length {
            // Seven or eight fields have the transport's word where this has a list.
            7 | 8 => assert!(
                matches!(
                    refused,
                    Err(DecodeFault::UnexpectedType {
                        expected: "a string",
                        ..
                    })
                ),
                "{length}: {refused:?}"
            ),
            _ => assert!(
                matches!(refused, Err(DecodeFault::UnknownLayout { fields, .. })
                    if fields as usize == length),
                "{length}: {refused:?}"
            ),
        }
    }
    assert!(backend_of(&array(&fields[..9])).is_ok());
    for document in [
        &b"\x90"[..],
        b"\x92\x80\x80",
        b"\x91\x81\xa1v\x90",
        b"\x91\x81\xa1v\x92\x80\x80",
    ] {
        assert!(matches!(
            read(document),
            Err(DecodeFault::UnknownLayout { .. })
        ));
    }
}

#[test]
fn the_forms_may_be_mixed() {
    let expected = BackendConfig {
        url: "http://a".into(),
        ..BackendConfig::default()
    };
    let map = b"\x81\xa3url\xa8http://a";
    let list = array(&[
        b"\xa0",
        b"\xa8http://a",
        b"\x90",
        b"\x80",
        b"\x90",
        b"\x90",
        b"\x80",
        b"\x90",
        b"\x90",
    ]);
    for backend in [&map[..], &list] {
        let whole = |prefix: &[u8]| [prefix, backend].concat();
        for document in [
            whole(b"\x81\xadvirtual_hosts\x81\xa1v\x81\xa8backends\x81\xa1b"),
            whole(b"\x81\xadvirtual_hosts\x81\xa1v\x91\x81\xa1b"),
            whole(b"\x91\x81\xa1v\x81\xa8backends\x81\xa1b"),
            whole(b"\x91\x81\xa1v\x91\x81\xa1b"),
            // The same lengths in their longer spellings.
            whole(b"\xdd\0\0\0\x01\xdf\0\0\0\x01\xd9\x01v\xdc\0\x01\xde\0\x01\xda\0\x01b"),
        ] {
            let config = read(&document).unwrap();
            assert_eq!(
                config.virtual_hosts["v"].backends["b"], expected,
                "{document:02x?}"
            );
        }
    }
}

#[test]
fn a_map_needs_nothing_but_the_url() {
    let backend = backend_of(b"\x81\xa3url\xa8http://a").unwrap();
    assert_eq!(
        backend,
        BackendConfig {
            url: "http://a".into(),
            ..BackendConfig::default()
        }
    );
    let missing = backend_of(b"\x81\xa4name\xa1n");
    assert!(
        matches!(missing, Err(DecodeFault::MissingField { field: "url", .. })),
        "{missing:?}"
    );
    let hosts = read(b"\x80");
    assert!(matches!(
        hosts,
        Err(DecodeFault::MissingField {
            field: "virtual_hosts",
            ..
        })
    ));
    let backends = read(b"\x81\xadvirtual_hosts\x81\xa1v\x80");
    assert!(matches!(
        backends,
        Err(DecodeFault::MissingField {
            field: "backends",
            ..
        })
    ));
    let empty = read(b"\x81\xadvirtual_hosts\x80").unwrap();
    assert_eq!(
        empty,
        UserConfig::default(),
        "a user without virtual hosts is not an error"
    );
}

#[test]
fn unknown_fields_and_keys_are_ignored() {
    let backend = backend_of(
        b"\x85\xa3new\x81\xa1x\x93\x01\xc0\xcb\x3f\xf0\0\0\0\0\0\0\xa3url\xa8http://a\
          \x07\xa1x\xc0\xc0\xaccapabilities\x81\xa5tools\x80",
    );
    assert_eq!(backend.unwrap().url, "http://a");
    let document =
        b"\x82\xa7version\xcd\x01\x02\xadvirtual_hosts\x81\xa1v\x82\xa1n\xa1m\xa8backends\x80";
    assert!(
        read(document).unwrap().virtual_hosts["v"]
            .backends
            .is_empty()
    );
}

#[test]
fn null_is_not_a_list() {
    for field in [
        "name",
        "url",
        "passthrough_headers",
        "add_headers",
        "remove_headers",
        "allowed_tool_names",
        "tool_name_aliases",
        "allowed_resource_names",
        "allowed_prompt_names",
        "allowed_resource_uris",
    ] {
        let mut backend = vec![if field == "url" { 0x81 } else { 0x82 }];
        if field != "url" {
            backend.extend_from_slice(b"\xa3url\xa8http://a");
        }
        backend.push(0xa0 | field.len() as u8);
        backend.extend_from_slice(field.as_bytes());
        backend.push(0xc0);
        let refused = backend_of(&backend);
        assert!(
            matches!(refused, Err(DecodeFault::UnexpectedType { .. })),
            "{field} {refused:?}"
        );
    }
    assert!(matches!(
        read(b"\x81\xadvirtual_hosts\xc0"),
        Err(DecodeFault::UnexpectedType { .. })
    ));
}

#[test]
fn transport_and_protocol_words() {
    let with = |field: &[u8], value: &[u8]| {
        backend_of(&[b"\x82\xa3url\xa8http://a", field, value].concat()).unwrap()
    };
    for (value, expected) in [
        (&b"\xa3SSE"[..], Transport::Sse),
        (b"\xa5STDIO", Transport::Stdio),
        (b"\xaeSTREAMABLEHTTP", Transport::StreamableHttp),
        (b"\xa3sse", Transport::StreamableHttp),
        (b"\xa5OTHER", Transport::StreamableHttp),
        (b"\xc0", Transport::StreamableHttp),
        (b"\x91\x01", Transport::StreamableHttp),
    ] {
        assert_eq!(
            with(b"\xa9transport", value).transport,
            expected,
            "{value:02x?}"
        );
    }
    for (value, expected) in [
        (&b"\xa6legacy"[..], Some(BackendProtocol::Legacy)),
        (b"\xa9stateless", Some(BackendProtocol::Stateless)),
        (b"\xa5other", None),
        (b"\xc0", None),
    ] {
        assert_eq!(
            with(b"\xa8protocol", value).protocol,
            expected,
            "{value:02x?}"
        );
    }
}

#[test]
fn a_bad_url_is_a_fault_of_the_document() {
    for (url, fault) in [
        (&b"\xa0"[..], UrlFault::NotAbsolute),
        (b"\xa4/mcp", UrlFault::NotAbsolute),
        (b"\xa7http://", UrlFault::Host),
        (b"\xaehttp://h:99999", UrlFault::Port),
    ] {
        let refused = backend_of(&[b"\x81\xa3url", url].concat());
        assert!(
            matches!(refused, Err(DecodeFault::InvalidUrl { fault: found, .. }) if found == fault),
            "{refused:?}"
        );
    }
    // What another program could use stops only its own backend, later.
    for url in [&b"\xa7ftp://h"[..], b"\xacws://h/a b c"] {
        let backend = backend_of(&[b"\x81\xa3url", url].concat()).unwrap();
        assert!(!backend.is_usable());
    }
    let child = backend_of(b"\x82\xa3url\xa3npx\xa9transport\xa5STDIO").unwrap();
    assert!(!child.is_usable());
}

#[test]
fn a_field_given_twice_is_refused_and_a_key_given_twice_is_the_last() {
    let twice = backend_of(b"\x82\xa3url\xa8http://a\xa3url\xa8http://b");
    assert!(
        matches!(twice, Err(DecodeFault::DuplicateField { .. })),
        "{twice:?}"
    );
    let hosts = read(b"\x82\xadvirtual_hosts\x80\xadvirtual_hosts\x80");
    assert!(
        matches!(hosts, Err(DecodeFault::DuplicateField { .. })),
        "{hosts:?}"
    );
    let keys =
        read(b"\x91\x81\xa1v\x91\x82\xa1b\x81\xa3url\xa8http://a\xa1b\x81\xa3url\xa8http://b");
    assert_eq!(
        keys.unwrap().virtual_hosts["v"].backends["b"].url,
        "http://b"
    );
}

#[test]
fn json_is_refused_and_what_follows_the_value_is_ignored() {
    let json = br#"{"virtual_hosts":{}}"#;
    assert!(matches!(
        read(json),
        Err(DecodeFault::UnexpectedType { at: 0, .. })
    ));
    assert!(matches!(
        read(b"[]"),
        Err(DecodeFault::UnexpectedType { at: 0, .. })
    ));
    let mut followed = encode_map(&reference());
    followed.extend_from_slice(b"\xc1trailing");
    assert_eq!(read(&followed), Ok(reference()));
}

#[test]
fn strings_must_be_text() {
    let refused = backend_of(b"\x82\xa3url\xa8http://a\xa4name\xa1\xff");
    assert!(
        matches!(refused, Err(DecodeFault::NotUtf8 { .. })),
        "{refused:?}"
    );
    // Old writers have no string type for all text; binary data that is text counts.
    let binary = backend_of(b"\x82\xa3url\xc4\x08http://a\xc4\x04name\xc4\x01n").unwrap();
    assert_eq!(
        (binary.url.as_str(), binary.name.as_str()),
        ("http://a", "n")
    );
}

#[test]
fn limits_are_exact() {
    let hosts = |count: u32| {
        let mut config = UserConfig::default();
        for number in 0..count {
            config
                .virtual_hosts
                .insert(number.to_string(), VirtualHost::default());
        }
        encode_map(&config)
    };
    assert!(read(&hosts(1024)).is_ok());
    assert_eq!(read(&hosts(1025)), Err(DecodeFault::TooManyVirtualHosts));
    let backends = |count: u32| {
        let mut host = VirtualHost::default();
        for number in 0..count {
            let backend = BackendConfig {
                url: "http://a".into(),
                ..BackendConfig::default()
            };
            host.backends.insert(number.to_string(), backend);
        }
        encode_map(&UserConfig {
            virtual_hosts: [("v".to_owned(), host)].into(),
        })
    };
    assert!(read(&backends(256)).is_ok());
    assert_eq!(read(&backends(257)), Err(DecodeFault::TooManyBackends));
    let bytes = encode_map(&reference());
    let limits = DecodeLimits {
        bytes_max: bytes.len(),
        ..DecodeLimits::default()
    };
    assert!(decode(&bytes, &limits).is_ok());
    let limits = DecodeLimits {
        bytes_max: bytes.len() - 1,
        ..DecodeLimits::default()
    };
    let fault = DecodeFault::TooLong {
        bytes: bytes.len(),
        bytes_max: bytes.len() - 1,
    };
    assert_eq!(decode(&bytes, &limits), Err(fault));
    let limits = DecodeLimits {
        item_count_max: 0,
        ..DecodeLimits::default()
    };
    assert_eq!(decode(&bytes, &limits), Err(DecodeFault::TooManyItems));
    // A claim of four thousand million entries is only a claim.
    let claim = b"\x82\xa3url\xa8http://a\xb2allowed_tool_names\xdd\xff\xff\xff\xff";
    assert_eq!(backend_of(claim), Err(DecodeFault::Truncated));
}

#[test]
fn every_cut_is_noticed() {
    for document in [
        encode_map(&reference()),
        encode_array(&reference(), ArrayLayout::Head),
        encode_array(&reference(), ArrayLayout::Seed),
    ] {
        for length in 0..document.len() {
            assert_eq!(
                read(&document[..length]),
                Err(DecodeFault::Truncated),
                "{length}"
            );
        }
    }
}

#[test]
fn faults_do_not_repeat_the_content() {
    let backend = b"\x82\xabadd_headers\x81\xadauthorization\xa6secret\xa3url\xa6secret";
    let fault = backend_of(backend).unwrap_err();
    let text = format!("{fault} {fault:?}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn the_failure_mode_of_a_virtual_host_is_kept_where_it_has_a_place() {
    let mut config = reference();
    let plain = encode_map(&config);
    let host = config.virtual_hosts.values_mut().next().unwrap();
    host.failure_mode = Some(FailMode::Closed);
    let written = encode_map(&config);
    assert_eq!(read(&written), Ok(config.clone()));
    // 1 + 12 bytes of the key, 1 + 6 of the word.
    assert_eq!(written.len(), plain.len() + 20);
    for layout in [ArrayLayout::Head, ArrayLayout::Seed] {
        assert_eq!(
            encode_array(&config, layout),
            encode_array(&reference(), layout)
        );
    }
}

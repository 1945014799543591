//! Where a declared tool may not lead: this host, its networks, and the services clouds keep
//! there (dual-profile.md 2.9).
//!
//! Asked twice: about the name when a tool is loaded, and about every address the name stands for
//! when a connection is made, for a name may mean something else by then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a host name or literal address is refused whatever it resolves to. No brackets.
#[must_use]
pub fn is_forbidden_host(host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_forbidden(address);
    }
    // RFC 1034 section 3.1: a final dot changes nothing.
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    matches!(&*name, "localhost" | "metadata.google.internal") || name.ends_with(".localhost")
}

/// Whether an address is not one of the public internet.
#[must_use]
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_forbidden_v4(address),
        IpAddr::V6(address) => is_forbidden_v6(address),
    }
}

fn is_forbidden_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && matches!(b, 18 | 19))
        || (a, b, c) == (192, 0, 0)
        || a >= 224
}

fn is_forbidden_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let [first, second, ..] = segments;
    // An IPv4 address in IPv6 clothes is that address: mapped, compatible, translated (RFC 6052),
    // 6to4 (RFC 3056).
    let low = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    let carried = match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => Some(low),
        [0x64, 0xff9b, ..] => Some(low),
        [0x2002, high, next, ..] => Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(next))),
        _ => None,
    };
    carried.is_some_and(is_forbidden_v4)
        || address.is_loopback()
        || address.is_unspecified()
        || address.is_multicast()
        || first & 0xfe00 == 0xfc00
        || first & 0xffc0 == 0xfe80
        || first & 0xffc0 == 0xfec0
        || (first == 0x100 && second == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_places_are_forbidden_in_every_spelling() {
        for address in [
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "198.18.0.1",
            "198.19.255.255",
            "192.0.0.8",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::10.0.0.1",
            "2002:7f00:1::",
        ] {
            assert!(is_forbidden_host(address), "{address}");
        }
        for name in [
            "localhost",
            "LOCALHOST.",
            "a.localhost",
            "Metadata.Google.Internal",
        ] {
            assert!(is_forbidden_host(name), "{name}");
        }
    }

    #[test]
    fn public_places_are_not() {
        for host in [
            "1.1.1.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.1.0.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "api.example.com",
            "notlocalhost",
            "localhost.example.com",
        ] {
            assert!(!is_forbidden_host(host), "{host}");
        }
    }
}

//! What a token is restricted to: permissions, one server, addresses, hours, teams.
//!
//! The rules are those the control plane keeps for its own endpoints, claim by claim (its
//! `token_scoping` middleware). All of them are pure: the address and the time are arguments. They
//! count only where `--enforce-scopes` says so (`auth::scope`).

use std::net::IpAddr;

use serde_json::Value;

/// What a token is restricted to. The default is a token that says nothing: no restriction but
/// that it belongs to no team.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restrictions {
    /// What it may do.
    pub permissions: Permissions,
    /// The one virtual host it is for.
    pub server_id: Option<Box<str>>,
    /// Where it may come from; `None`: from anywhere.
    pub addresses: Option<Box<[AddressRange]>>,
    /// When it may be used.
    pub hours: Hours,
    /// Whose things it may see.
    pub teams: Teams,
}

/// What a token may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Permissions {
    /// Everything: the control plane takes an empty list for one that narrows nothing.
    #[default]
    All,
    /// These, as `tools.read`, a whole category as `tools.*`, or everything as `*`.
    Listed(Box<[Box<str>]>),
}

/// Permissions without which no MCP method can be used imply the one to use a server at all.
const METHOD_CATEGORIES: [&str; 3] = ["tools.", "resources.", "prompts."];
/// The permission to use a server at all.
pub(super) const SERVERS_USE: &str = "servers.use";

impl Permissions {
    /// The list of a token that must name what it may do; an empty one allows nothing.
    pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Listed(names.into_iter().map(Box::from).collect())
    }

    /// Whether the permission `wanted` is among them.
    #[must_use]
    pub fn grant(&self, wanted: &str) -> bool {
        let Self::Listed(names) = self else {
            return true;
        };
        let category = wanted.split_once('.').map(|(category, _)| category);
        names.iter().any(|name| {
            let whole_category = name.strip_suffix(".*").filter(|name| !name.is_empty());
            **name == *wanted
                || **name == *"*"
                || whole_category.is_some() && whole_category == category
                || wanted == SERVERS_USE
                    && METHOD_CATEGORIES.iter().any(|one| name.starts_with(one))
        })
    }
}

/// An address or a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    prefix: u32,
}

impl AddressRange {
    /// Reads `10.0.0.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0` or the same of IPv6. Bits behind the
    /// prefix may be set.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, mask) = match text.split_once('/') {
            Some((address, mask)) => (address, Some(mask)),
            None => (text, None),
        };
        let network: IpAddr = address.parse().ok()?;
        let bits = if network.is_ipv4() { 32 } else { 128 };
        let prefix = match mask {
            None => bits,
            Some(mask) if mask.bytes().all(|byte| byte.is_ascii_digit()) => {
                mask.parse().ok().filter(|prefix| *prefix <= bits)?
            }
            Some(mask) if network.is_ipv4() => {
                let mask: std::net::Ipv4Addr = mask.parse().ok()?;
                let mask = u32::from(mask);
                // Ones and then zeros, or it is no mask.
                (mask.leading_ones() == mask.count_ones()).then_some(mask.count_ones())?
            }
            Some(_) => return None,
        };
        Some(Self { network, prefix })
    }

    /// Whether `address` is in it. An IPv4 address is one, however it is written.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.network, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differ = u32::from(network) ^ u32::from(address);
                differ.leading_zeros() >= self.prefix
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differ = u128::from(network) ^ u128::from(address);
                differ.leading_zeros() >= self.prefix
            }
            // `::ffff:0:0/96` and what is in it.
            (IpAddr::V6(network), IpAddr::V4(address)) => {
                let differ = u128::from(network) ^ u128::from(address.to_ipv6_mapped());
                differ.leading_zeros() >= self.prefix
            }
            (IpAddr::V4(_), IpAddr::V6(_)) => false,
        }
    }
}

/// When a token may be used. Times are UTC, as the control plane has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hours {
    /// From 9 to 17 only.
    pub business_hours_only: bool,
    /// Monday to Friday only.
    pub weekdays_only: bool,
    /// The claim says something that is not understood.
    pub never: bool,
}

const DAY_S: u64 = 86_400;
const HOUR_S: u64 = 3_600;

impl Hours {
    /// Reads `time_restrictions`: an object of which two members are known. Another type that says
    /// something restricts to never.
    #[must_use]
    pub fn read(claim: &Value) -> Self {
        match claim {
            Value::Object(members) => Self {
                business_hours_only: members.get("business_hours_only").is_some_and(says_yes),
                weekdays_only: members.get("weekdays_only").is_some_and(says_yes),
                never: false,
            },
            other => Self {
                never: says_yes(other),
                ..Self::default()
            },
        }
    }

    /// Whether the token may be used at this time.
    #[must_use]
    pub fn hold(self, now_unix_s: u64) -> bool {
        let hour = now_unix_s % DAY_S / HOUR_S;
        // 1 January 1970 was a Thursday; 0 is Monday.
        let weekday = (now_unix_s / DAY_S + 3) % 7;
        !self.never
            && (!self.business_hours_only || (9..17).contains(&hour))
            && (!self.weekdays_only || weekday < 5)
    }
}

/// What the control plane's language takes for true.
fn says_yes(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// The teams a token speaks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Teams {
    /// All: an administrator's token that says so by `null`.
    All,
    /// These; none: it sees what is public.
    Listed(Box<[Box<str>]>),
}

impl Default for Teams {
    fn default() -> Self {
        Self::Listed(Box::default())
    }
}

impl Teams {
    /// Reads `teams`: absent is none, `null` is all for an administrator and none for others.
    /// Members may be ids or objects with one.
    #[must_use]
    pub fn read(claim: Option<&Value>, is_admin: bool) -> Self {
        match claim {
            Some(Value::Null) if is_admin => Self::All,
            Some(Value::Array(teams)) => {
                let id = |team: &Value| match team {
                    Value::String(id) => Some(id.as_str().into()),
                    other => other.get("id")?.as_str().map(Box::from),
                };
                Self::Listed(teams.iter().filter_map(id).collect())
            }
            _ => Self::default(),
        }
    }

    /// Whether one of `owners` is among them; what nobody owns is everyone's.
    #[must_use]
    pub fn may_see(&self, owners: &[Box<str>]) -> bool {
        match self {
            Self::All => true,
            Self::Listed(teams) => {
                owners.is_empty() || owners.iter().any(|owner| teams.contains(owner))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn permissions_are_exact_or_a_category_or_all() {
        for (held, wanted, granted) in [
            (&["tools.read"][..], "tools.read", true),
            (&["tools.read"], "tools.execute", false),
            (&["tools.*"], "tools.execute", true),
            (&["tools.*"], "resources.read", false),
            (&["*"], "admin.system_config", true),
            (&[".*"], "tools.read", false),
            (&["tools"], "tools.read", false),
            (&["Tools.read"], "tools.read", false),
            (&["servers.use"], "servers.use", true),
            (&["tools.execute"], "servers.use", true),
            (&["prompts.read"], "servers.use", true),
            (&["resources.*"], "servers.use", true),
            (&["a2a.read"], "servers.use", false),
            (&["servers.use"], "tools.read", false),
            (&[], "servers.use", false),
        ] {
            let permissions = Permissions::listed(held.iter().copied());
            assert_eq!(permissions.grant(wanted), granted, "{held:?} {wanted}");
        }
        assert!(Permissions::All.grant("anything"));
    }

    #[test]
    fn addresses_are_in_their_ranges() {
        for (range, address, holds) in [
            ("192.168.1.10", "192.168.1.10", true),
            ("192.168.1.10", "192.168.1.11", false),
            ("10.0.0.0/24", "10.0.0.5", true),
            ("10.0.0.0/24", "10.0.1.5", false),
            ("10.0.0.77/24", "10.0.0.5", true),
            ("10.0.0.0/255.255.255.0", "10.0.0.5", true),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("10.0.0.5", "::ffff:10.0.0.5", true),
            ("::ffff:10.0.0.0/120", "10.0.0.5", true),
            ("2001:db8::/32", "2001:db8:1::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("10.0.0.0/8", "2001:db8::1", false),
        ] {
            let range_read = AddressRange::parse(range).unwrap();
            assert_eq!(
                range_read.holds(address.parse().unwrap()),
                holds,
                "{range} {address}"
            );
        }
        for bad in [
            "",
            "i",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/255.0.255.0",
            "10.0.0",
            "::/129",
            "::/255.0.0.0",
            "10.0.0.0/8/8",
            " 10.0.0.1",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
        ] {
            assert_eq!(AddressRange::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn hours_are_those_of_the_control_plane() {
        // 1 January 2024 was a Monday.
        let monday = 1_704_067_200;
        let at = |day: u64, hour: u64| monday + day * DAY_S + hour * HOUR_S;
        let business = Hours::read(&json!({"business_hours_only": true}));
        for (hour, holds) in [(8, false), (9, true), (16, true), (17, false), (0, false)] {
            assert_eq!(business.hold(at(6, hour)), holds, "{hour}");
        }
        let weekdays = Hours::read(&json!({"weekdays_only": 1}));
        for (day, holds) in [(0, true), (4, true), (5, false), (6, false), (7, true)] {
            assert_eq!(weekdays.hold(at(day, 23)), holds, "{day}");
        }
        for open in [
            json!({}),
            json!(null),
            json!([]),
            json!({"any": [1]}),
            json!(""),
            json!(0),
        ] {
            assert!(Hours::read(&open).hold(at(6, 3)), "{open}");
        }
        for closed in [json!("nights"), json!([1]), json!(7), json!(true)] {
            assert!(!Hours::read(&closed).hold(at(1, 10)), "{closed}");
        }
    }

    #[test]
    fn teams_see_what_is_theirs_and_what_is_nobodys() {
        let own: Box<[Box<str>]> = ["a".into(), "b".into()].into();
        for (claim, is_admin, sees) in [
            (None, true, false),
            (Some(json!(null)), false, false),
            (Some(json!(null)), true, true),
            (Some(json!([])), true, false),
            (Some(json!(["b"])), false, true),
            (Some(json!([{"id": "a"}])), false, true),
            (Some(json!(["c"])), true, false),
        ] {
            let teams = Teams::read(claim.as_ref(), is_admin);
            assert_eq!(teams.may_see(&own), sees, "{claim:?}");
            assert!(teams.may_see(&[]));
        }
    }

    proptest! {
        #[test]
        fn no_range_panics(text in "[0-9a-f.:/]{0,24}", address in any::<[u8; 16]>()) {
            if let Some(range) = AddressRange::parse(&text) {
                let _ = range.holds(address.into());
                prop_assert!(range.holds(range.network));
            }
        }
    }
}

//! One trusted issuer as an operator writes it: its name and then what is to be known of it.
//!
//! `https://idp.example jwks=https://idp.example/keys audience=mcp algorithms=ES256+EdDSA`

use std::net::IpAddr;

use url::{Host, Url};

use crate::auth::{Audience, IssuerRules, SignatureAlgorithm};

use super::nearest::nearest;

/// Issuers at the most: each has its keys fetched.
pub(super) const ISSUERS_MAX: usize = 16;
/// What may follow the name.
const KEYS: [&str; 4] = ["jwks", "audience", "algorithms", "subject-prefix"];

/// Reads one issuer.
pub(super) fn trusted_issuer(text: &str) -> Result<IssuerRules, String> {
    let mut words = text.split_ascii_whitespace();
    let issuer = words.next().filter(|word| !word.contains('='));
    let issuer = issuer.ok_or("must begin with the issuer, as its tokens name it in `iss`")?;
    let mut said: [Option<&str>; KEYS.len()] = Default::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let Some(at) = KEYS.iter().position(|known| *known == key) else {
            let meant = nearest(key, KEYS)
                .map_or_else(String::new, |key| format!("; did you mean {key}=?"));
            return Err(format!(
                "has {key}, which is none of {}{meant}",
                KEYS.join(", ")
            ));
        };
        if value.is_empty() {
            return Err(format!("has {key}= without a value"));
        }
        if said
            .get_mut(at)
            .and_then(|place| place.replace(value))
            .is_some()
        {
            return Err(format!("has {key}= twice"));
        }
    }
    let [jwks, audience, algorithms, prefix] = said;
    let jwks = jwks.ok_or("has no jwks=URL, the address of the issuer's keys")?;
    Ok(IssuerRules {
        issuer: issuer.into(),
        jwks_url: jwks_url(jwks)?,
        audience: audience.map_or(Audience::Resource, |name| Audience::Exact(name.into())),
        algorithms: self::algorithms(algorithms)?,
        subject_prefix: prefix.unwrap_or_default().into(),
    })
}

fn jwks_url(text: &str) -> Result<Url, String> {
    let wrong =
        || format!("has jwks={text}, which is no address: https://, or http:// on loopback");
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_plain =
        !url.username().is_empty() || url.password().is_some() || url.fragment().is_some();
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::from(address).to_canonical().is_loopback(),
        None => return Err(wrong()),
    };
    match url.scheme() {
        _ if is_plain => Err(wrong()),
        "https" => Ok(url),
        "http" if is_local => Ok(url),
        // Whoever can change the answer on its way makes tokens.
        "http" => Err(format!(
            "has jwks={text}: plain http is only for loopback, write https://"
        )),
        _ => Err(wrong()),
    }
}

fn algorithms(said: Option<&str>) -> Result<Box<[SignatureAlgorithm]>, String> {
    let asymmetric = || {
        SignatureAlgorithm::ALL
            .into_iter()
            .filter(|(_, one)| !one.is_hmac())
    };
    let Some(said) = said else {
        return Ok(asymmetric().map(|(_, algorithm)| algorithm).collect());
    };
    let find = |name: &str| {
        let found = asymmetric().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| algorithm).ok_or_else(|| {
            let known: Vec<&str> = asymmetric().map(|(name, _)| name).collect();
            format!(
                "has the algorithm {name}, which is none of {}",
                known.join(", ")
            )
        })
    };
    said.split('+').map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_issuer_is_its_name_and_what_is_said_of_it() {
        let rules =
            trusted_issuer("https://idp.example jwks=https://idp.example/keys?v=1").unwrap();
        assert_eq!(&*rules.issuer, "https://idp.example");
        assert_eq!(rules.jwks_url.as_str(), "https://idp.example/keys?v=1");
        assert_eq!(rules.audience, Audience::Resource);
        assert_eq!(rules.algorithms.len(), 6);
        assert!(
            rules
                .algorithms
                .iter()
                .all(|algorithm| !algorithm.is_hmac())
        );
        assert_eq!(&*rules.subject_prefix, "");
        let text = "corp  audience=mcp algorithms=ES256+EdDSA subject-prefix=corp: \
                    jwks=http://[::1]:8080/keys";
        let rules = trusted_issuer(text).unwrap();
        assert_eq!(rules.audience, Audience::Exact("mcp".into()));
        assert_eq!(
            *rules.algorithms,
            [SignatureAlgorithm::Es256, SignatureAlgorithm::EdDsa]
        );
        assert_eq!(&*rules.subject_prefix, "corp:");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("", "must begin with the issuer"),
            ("jwks=https://a/", "must begin with the issuer"),
            ("i", "has no jwks=URL"),
            ("i jwks=", "has jwks= without a value"),
            ("i jwks=https://a/ jwks=https://b/", "has jwks= twice"),
            ("i jwsk=https://a/", "did you mean jwks=?"),
            ("i jwks=https://a/ hello", "has hello, which is none of"),
            ("i jwks=a", "which is no address"),
            ("i jwks=ftp://a/", "which is no address"),
            ("i jwks=file:///etc/keys", "which is no address"),
            ("i jwks=https://me:secret@a/", "which is no address"),
            ("i jwks=https://a/#b", "which is no address"),
            (
                "i jwks=http://a.example/",
                "plain http is only for loopback",
            ),
            ("i jwks=http://10.0.0.1/", "plain http is only for loopback"),
            (
                "i jwks=http://169.254.169.254/",
                "plain http is only for loopback",
            ),
            (
                "i jwks=http://localhost.example/",
                "plain http is only for loopback",
            ),
            (
                "i jwks=https://a/ algorithms=HS256",
                "has the algorithm HS256",
            ),
            (
                "i jwks=https://a/ algorithms=RS256,ES256",
                "has the algorithm RS256,ES256",
            ),
            (
                "i jwks=https://a/ algorithms=none",
                "has the algorithm none",
            ),
        ] {
            let fault = trusted_issuer(text).unwrap_err();
            assert!(fault.contains(problem), "{text}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z=:/@#+. \\-\\[\\]%]{0,60}") {
            let _ = trusted_issuer(&text);
            if let Ok(rules) = trusted_issuer(&format!("i jwks={text}")) {
                prop_assert!(rules.jwks_url.scheme() == "https" || text.starts_with("http:"));
            }
        }
    }
}

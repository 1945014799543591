//! One fetch of an issuer's keys: a GET with a limit on everything, which follows nobody anywhere.

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, AGE, CACHE_CONTROL, HeaderValue, USER_AGENT},
};
use tokio::time::timeout;
use url::Url;

use crate::{
    auth::{
        KeySet,
        jwks::{JWKS_BYTES_MAX, JwksFault},
    },
    dial::{self, DialFault},
};

/// All of it, from the name to the last byte. Requests wait for this: the shards' patience is more.
const LIMIT: Duration = Duration::from_secs(5);

/// Keys, and how long they may be used by the word of who gave them.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) set: KeySet,
    /// `max-age` of `Cache-Control` (RFC 9111), less the `Age` they have already.
    pub(super) age_max: Option<Duration>,
}

/// Why there are no keys: one line for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FetchFault {
    #[error(transparent)]
    Dial(#[from] DialFault),
    #[error("no answer came in time")]
    Late,
    #[error("the connection ended before the answer did")]
    Cut,
    #[error("the answer has status {0}; redirects are not followed")]
    Status(u16),
    #[error(transparent)]
    Document(#[from] JwksFault),
}

/// Fetches the keys at `url`.
pub(super) async fn fetch(
    url: &Url,
    tls: &Arc<rustls::ClientConfig>,
) -> Result<Fetched, FetchFault> {
    timeout(LIMIT, fetch_now(url, tls))
        .await
        .unwrap_or(Err(FetchFault::Late))
}

async fn fetch_now(url: &Url, tls: &Arc<rustls::ClientConfig>) -> Result<Fetched, FetchFault> {
    let is_tls = url.scheme() == "https";
    let mut connection = dial::connect(url, tls, |address| may_reach(address, is_tls)).await?;
    let mut headers = HeaderMap::new();
    let json = "application/jwk-set+json, application/json";
    headers.insert(ACCEPT, HeaderValue::from_static(json));
    headers.insert(USER_AGENT, HeaderValue::from_static("shardgate"));
    let request = dial::request(Method::GET, url, &headers, Bytes::new());
    let answered = connection.send_request(request).await;
    let response = answered.map_err(|_| FetchFault::Cut)?;
    if response.status() != StatusCode::OK {
        return Err(FetchFault::Status(response.status().as_u16()));
    }
    let age_max = age_max(response.headers());
    let mut body = response.into_body();
    let mut document = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| FetchFault::Cut)?;
        let data = frame.data_ref().map_or(&b""[..], |data| data);
        if document.len() + data.len() > JWKS_BYTES_MAX {
            return Err(JwksFault::TooLong.into());
        }
        document.extend_from_slice(data);
    }
    let set = KeySet::parse(&document)?;
    Ok(Fetched { set, age_max })
}

/// Plain text stays on this host. Nothing is asked of addresses that no issuer has: those of links
/// alone, where clouds keep their secrets, of groups, and of nobody.
fn may_reach(address: IpAddr, is_tls: bool) -> bool {
    if !is_tls {
        return address.is_loopback();
    }
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_of_link && !address.is_multicast() && !address.is_unspecified()
}

fn age_max(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(CACHE_CONTROL)?.to_str().ok()?;
    let mut directives = value.split(',').map(str::trim);
    let word = |directive: &str, word: &str| directive.eq_ignore_ascii_case(word);
    if directives
        .clone()
        .any(|directive| word(directive, "no-store") || word(directive, "no-cache"))
    {
        return Some(Duration::ZERO);
    }
    let seconds = directives.find_map(|directive| {
        let (name, seconds) = directive.split_once('=')?;
        word(name.trim(), "max-age")
            .then(|| seconds.trim().trim_matches('"').parse::<u64>().ok())?
    })?;
    let age = headers
        .get(AGE)
        .and_then(|age| age.to_str().ok()?.parse::<u64>().ok());
    Some(Duration::from_secs(
        seconds.saturating_sub(age.unwrap_or(0)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_an_issuer_can_have_are_reached() {
        for (address, with_tls, without) in [
            ("127.0.0.1", true, true),
            ("::1", true, true),
            ("10.0.0.1", true, false),
            ("203.0.113.7", true, false),
            ("2001:db8::1", true, false),
            ("169.254.169.254", false, false),
            ("fe80::1", false, false),
            ("0.0.0.0", false, false),
            ("::", false, false),
            ("224.0.0.1", false, false),
            ("ff02::1", false, false),
            ("255.255.255.255", false, false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(may_reach(address, true), with_tls, "{address}");
            assert_eq!(may_reach(address, false), without, "{address}");
        }
    }

    #[test]
    fn an_issuer_says_how_long_its_keys_are_good() {
        for (value, age, seconds) in [
            ("max-age=600", None, Some(600)),
            (
                "public, Max-Age=600, must-revalidate",
                Some("100"),
                Some(500),
            ),
            ("max-age=\"60\"", Some("100"), Some(0)),
            ("no-store, max-age=600", None, Some(0)),
            ("public", None, None),
            ("s-maxage=600", None, None),
            ("max-age=", None, None),
            ("max-age=-1", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CACHE_CONTROL, value.parse().unwrap());
            if let Some(age) = age {
                headers.insert(AGE, age.parse().unwrap());
            }
            assert_eq!(
                age_max(&headers),
                seconds.map(Duration::from_secs),
                "{value}"
            );
        }
        assert_eq!(age_max(&HeaderMap::new()), None);
    }
}

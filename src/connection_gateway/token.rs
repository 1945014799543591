//! Connect tokens: three segments as a JWT has, with `typ` of their own and times in milliseconds.
//!
//! Whoever runs the programs behind this gateway signs them; here they are checked. The order of
//! the checks is part of the contract: signature, header, claims, time, capability.

use base64::{
    Engine, alphabet,
    engine::{
        DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::URL_SAFE_NO_PAD,
    },
};
use ring::hmac;

use super::json::{self, INTEGER_MAX};

/// What signed tokens begin with: `{"alg":"HS256","typ":"CGT"}`.
const HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkNHVCJ9";
/// The capability without which nobody binds.
const BIND: &str = "gateway.bind";
/// Letters of a consumer type or a capability, as JavaScript counts them.
pub(super) const WORD_UNITS_MAX: usize = 64;

/// Takes what Node's decoder takes: padding or none.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// What a token says about who may bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// Kind of consumer the session is for.
    pub consumer_type: Box<str>,
    /// Whose session it is.
    pub subject: Box<str>,
    /// `sessionScope` as it is shown, in the contract's order.
    pub scope: Box<str>,
    /// What the session claims for itself alone; sorted, each once.
    pub sources: Vec<Box<str>>,
    /// What the session may do.
    pub capabilities: Vec<Box<str>>,
    /// When the token ends, ms since 1970.
    pub expires_at: u64,
    /// Makes the token one of a kind.
    pub nonce: Option<Box<str>>,
}

/// Why a token does not bind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenFault {
    /// Form, signature or header.
    Invalid,
    /// These claims are missing or wrong.
    Claims(Vec<&'static str>),
    /// Its time is over.
    Expired,
    /// It does not let anybody bind.
    Capability,
}

/// The key of a secret.
pub fn key(secret: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret)
}

/// Signs a payload, which is the JSON of the claims.
pub fn sign(key: &hmac::Key, payload: &str) -> String {
    let signed = format!("{HEADER}.{}", URL_SAFE_NO_PAD.encode(payload));
    let signature = hmac::sign(key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Checks a token at `now_ms`, milliseconds since 1970.
pub fn verify(key: &hmac::Key, token: &str, now_ms: u64) -> Result<Claims, TokenFault> {
    // What follows a fourth dot has no say.
    let mut segments = token.split('.');
    let mut segment = || segments.next().filter(|segment| !segment.is_empty());
    let (Some(header), Some(payload), Some(signature)) = (segment(), segment(), segment()) else {
        return Err(TokenFault::Invalid);
    };
    let signed = &token[..header.len() + 1 + payload.len()];
    // This decoder takes one spelling only, so the texts are equal when the bytes are.
    let signature = URL_SAFE_NO_PAD.decode(signature);
    let signature = signature.map_err(|_| TokenFault::Invalid)?;
    hmac::verify(key, signed.as_bytes(), &signature).map_err(|_| TokenFault::Invalid)?;
    let header = decode(header).ok_or(TokenFault::Invalid)?;
    let [algorithm, kind] = json::members(&header, ["alg", "typ"]).ok_or(TokenFault::Invalid)?;
    let says = |raw: Option<&str>, word: &str| raw.and_then(json::text).as_deref() == Some(word);
    if !says(algorithm, "HS256") || !says(kind, "CGT") {
        return Err(TokenFault::Invalid);
    }
    let payload = decode(payload).ok_or(TokenFault::Invalid)?;
    if serde_json::from_str::<serde::de::IgnoredAny>(&payload).is_err() {
        return Err(TokenFault::Invalid);
    }
    let claims = read(&payload).map_err(TokenFault::Claims)?;
    if claims.expires_at <= now_ms {
        return Err(TokenFault::Expired);
    }
    if !claims.capabilities.iter().any(|held| &**held == BIND) {
        return Err(TokenFault::Capability);
    }
    Ok(claims)
}

/// Decodes base64 of either alphabet, padded or not, to a text.
fn decode(segment: &str) -> Option<String> {
    let standard: String = segment
        .chars()
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    String::from_utf8(LENIENT.decode(standard).ok()?).ok()
}

/// Whether a text has 1 to 64 letters, as JavaScript counts.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty()
        && (text.len() <= WORD_UNITS_MAX || text.encode_utf16().count() <= WORD_UNITS_MAX)
}

/// Reads the claims, or names those that are wrong.
fn read(payload: &str) -> Result<Claims, Vec<&'static str>> {
    let names = [
        "consumerType",
        "subject",
        "sessionScope",
        "transport",
        "capabilities",
        "expiresAt",
        "issuedAt",
        "nonce",
    ];
    let Some(found) = json::members(payload, names) else {
        return Err(vec!["the whole"]);
    };
    let [
        consumer_type,
        subject,
        scope,
        transport,
        capabilities,
        expires_at,
        issued_at,
        nonce,
    ] = found;
    let mut wrong = Vec::new();
    let mut or_wrong = |value: Option<Box<str>>, name| {
        value.unwrap_or_else(|| {
            wrong.push(name);
            Box::default()
        })
    };
    let some_text = |raw: Option<&str>| {
        let text = raw.and_then(json::text).filter(|text| !text.is_empty())?;
        Some(Box::<str>::from(text))
    };
    let word = some_text(consumer_type).filter(|text| is_word(text));
    let consumer_type = or_wrong(word, "consumerType");
    let subject = or_wrong(some_text(subject), "subject");
    let (scope_text, sources) = match scope.and_then(read_scope) {
        Some(scope) => scope,
        None => (or_wrong(None, "sessionScope"), Vec::new()),
    };
    if transport.and_then(json::text).as_deref() != Some("websocket") {
        or_wrong(None, "transport");
    }
    let held = match capabilities {
        None => Some(Vec::new()),
        Some(raw) => texts(raw).filter(|held| held.iter().all(|text| is_word(text))),
    };
    let capabilities = held.unwrap_or_else(|| {
        or_wrong(None, "capabilities");
        Vec::new()
    });
    let expires_at = expires_at.and_then(|raw| json::integer(raw, 1));
    let expires_at = expires_at.unwrap_or_else(|| {
        or_wrong(None, "expiresAt");
        INTEGER_MAX
    });
    if issued_at.is_some_and(|raw| json::integer(raw, 1).is_none()) {
        or_wrong(None, "issuedAt");
    }
    let is_bad_nonce = nonce.is_some() && some_text(nonce).is_none();
    if is_bad_nonce {
        or_wrong(None, "nonce");
    }
    if wrong.is_empty() {
        Ok(Claims {
            consumer_type,
            subject,
            scope: scope_text,
            sources,
            capabilities,
            expires_at,
            nonce: some_text(nonce),
        })
    } else {
        Err(wrong)
    }
}

/// An array of texts.
fn texts(raw: &str) -> Option<Vec<Box<str>>> {
    serde_json::from_str(raw).ok()
}

/// A session scope as it is shown, and what it claims.
fn read_scope(raw: &str) -> Option<(Box<str>, Vec<Box<str>>)> {
    let [user_id, team_id, source, sources] =
        json::members(raw, ["userId", "teamId", "source", "sources"])?;
    let mut out = b"{".to_vec();
    let mut write = |name: &str, raw: &str| {
        if out.len() > 1 {
            out.push(b',');
        }
        json::write_text(&mut out, name);
        out.push(b':');
        json::write_value(&mut out, raw);
    };
    let mut claimed = Vec::new();
    for (name, raw, is_needed) in [
        ("userId", user_id, true),
        ("teamId", team_id, false),
        ("source", source, false),
    ] {
        match raw {
            None if is_needed => return None,
            None => {}
            Some(raw) => {
                let text = json::text(raw).filter(|text| !text.is_empty())?;
                if name == "source" {
                    claimed.push(text.into());
                }
                write(name, raw);
            }
        }
    }
    if let Some(raw) = sources {
        let all = texts(raw).filter(|all| all.iter().all(|source| !source.is_empty()))?;
        claimed.extend(all);
        write("sources", raw);
    }
    claimed.sort_unstable();
    claimed.dedup();
    out.push(b'}');
    Some((String::from_utf8(out).ok()?.into(), claimed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIMS: &str = r#"{"consumerType":"plugin-debug","subject":"tmb_1","sessionScope":{"userId":"tmb_1","source":"debug:tmbId:tmb_1"},"transport":"websocket","capabilities":["gateway.bind","invoke"],"expiresAt":1760000300000,"issuedAt":1760000000000}"#;
    const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkNHVCJ9.eyJjb25zdW1lclR5cGUiOiJwbHVnaW4tZGVidWciLCJzdWJqZWN0IjoidG1iXzEiLCJzZXNzaW9uU2NvcGUiOnsidXNlcklkIjoidG1iXzEiLCJzb3VyY2UiOiJkZWJ1Zzp0bWJJZDp0bWJfMSJ9LCJ0cmFuc3BvcnQiOiJ3ZWJzb2NrZXQiLCJjYXBhYmlsaXRpZXMiOlsiZ2F0ZXdheS5iaW5kIiwiaW52b2tlIl0sImV4cGlyZXNBdCI6MTc2MDAwMDMwMDAwMCwiaXNzdWVkQXQiOjE3NjAwMDAwMDAwMDB9.xl4x1ZjrTCU8Ei2YUQmd_XZOk1fr-FLJ6KM5YFCMfs0";
    const NOW: u64 = 1_760_000_299_999;

    fn secret() -> hmac::Key {
        key(b"secret")
    }

    fn verdict(payload: &str) -> Result<Claims, TokenFault> {
        verify(&secret(), &sign(&secret(), payload), NOW)
    }

    #[test]
    fn the_vector_of_the_contract() {
        assert_eq!(sign(&secret(), CLAIMS), TOKEN);
        let claims = verify(&secret(), TOKEN, NOW).unwrap();
        assert_eq!(&*claims.consumer_type, "plugin-debug");
        assert_eq!(
            &*claims.scope,
            r#"{"userId":"tmb_1","source":"debug:tmbId:tmb_1"}"#
        );
        assert_eq!(claims.sources, ["debug:tmbId:tmb_1".into()]);
        assert_eq!(
            claims.capabilities,
            ["gateway.bind".into(), "invoke".into()]
        );
        assert_eq!(verify(&secret(), TOKEN, NOW + 1), Err(TokenFault::Expired));
    }

    #[test]
    fn form_and_signature_come_first() {
        let invalid = |token: &str| {
            assert_eq!(
                verify(&secret(), token, NOW),
                Err(TokenFault::Invalid),
                "{token}"
            );
        };
        let (signed, signature) = TOKEN.rsplit_once('.').unwrap();
        let (header, payload) = signed.split_once('.').unwrap();
        for token in [
            "",
            ".",
            "..",
            "a.b",
            signed,
            &format!(".{payload}.{signature}"),
        ] {
            invalid(token);
        }
        invalid(&format!("{TOKEN}="));
        invalid(&format!("{signed}.{}", signature.replacen('x', "y", 1)));
        invalid(&format!("{header}.{payload}x.{signature}"));
        assert_eq!(verify(&key(b"other"), TOKEN, NOW), Err(TokenFault::Invalid));
        assert!(verify(&secret(), &format!("{TOKEN}.extra.more"), NOW).is_ok());
    }

    #[test]
    fn a_header_may_be_written_otherwise_and_must_say_the_same() {
        let with = |header: &str| {
            let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(CLAIMS));
            let signature = hmac::sign(&secret(), signed.as_bytes());
            let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature));
            verify(&secret(), &token, NOW).map(drop)
        };
        let encoded = |text: &str| URL_SAFE_NO_PAD.encode(text);
        assert_eq!(
            with(&encoded(r#"{"typ":"CGT","x":1,"alg":"HS256"}"#)),
            Ok(())
        );
        let padded = base64::engine::general_purpose::STANDARD
            .encode(r#"{"typ":"CGT","x":"??>","alg":"HS256"}"#);
        assert_eq!(with(&padded), Ok(()));
        for wrong in [
            r#"{"alg":"HS256","typ":"JWT"}"#,
            r#"{"alg":"none","typ":"CGT"}"#,
            r#"["HS256","CGT"]"#,
            "{",
        ] {
            assert_eq!(with(&encoded(wrong)), Err(TokenFault::Invalid), "{wrong}");
        }
    }

    #[test]
    fn wrong_claims_are_named_and_are_no_invalid_token() {
        for (from, to, wanted) in [
            ("\"plugin-debug\"", "\"\"", vec!["consumerType"]),
            ("tmb_1\",\"sess", "\",\"sess", vec!["subject"]),
            ("{\"userId\":\"tmb_1\",", "{", vec!["sessionScope"]),
            ("websocket", "tcp", vec!["transport"]),
            ("[\"gateway.bind\",\"invoke\"]", "[1]", vec!["capabilities"]),
            ("1760000300000", "1.5", vec!["expiresAt"]),
            ("1760000000000", "0", vec!["issuedAt"]),
            ("\"issuedAt\"", "\"nonce\":\"\",\"issuedAt\"", vec!["nonce"]),
        ] {
            let payload = CLAIMS.replacen(from, to, 1);
            assert_eq!(
                verdict(&payload),
                Err(TokenFault::Claims(wanted)),
                "{payload}"
            );
        }
        let wide = CLAIMS.replace("plugin-debug", &"é".repeat(64));
        assert!(verdict(&wide).is_ok());
        let long = CLAIMS.replace("plugin-debug", &"é".repeat(65));
        assert_eq!(
            verdict(&long),
            Err(TokenFault::Claims(vec!["consumerType"]))
        );
        assert!(matches!(verdict("{}"), Err(TokenFault::Claims(wrong)) if wrong.len() == 5));
        assert!(matches!(verdict("[]"), Err(TokenFault::Claims(_))));
        assert_eq!(verdict("{"), Err(TokenFault::Invalid));
    }

    #[test]
    fn time_comes_before_capability_and_a_future_issue_time_is_nobody_s_business() {
        let without = CLAIMS.replace("\"gateway.bind\",", "");
        assert_eq!(verdict(&without), Err(TokenFault::Capability));
        let late = without.replace("1760000300000", "1");
        assert_eq!(verdict(&late), Err(TokenFault::Expired));
        assert!(verdict(&CLAIMS.replace("1760000000000", "9000000000000000")).is_ok());
    }

    #[test]
    fn a_scope_is_shown_in_order_and_claims_each_source_once() {
        let scope = r#"{"x":1,"sources":["b","a","b"],"source":"a","teamId":"t","userId":"u"}"#;
        let (shown, sources) = read_scope(scope).unwrap();
        let wanted = r#"{"userId":"u","teamId":"t","source":"a","sources":["b","a","b"]}"#;
        assert_eq!(&*shown, wanted);
        assert_eq!(sources, ["a".into(), "b".into()]);
        assert_eq!(read_scope(r#"{"userId":"u","sources":[""]}"#), None);
        assert_eq!(read_scope(r#"{"userId":"u","source":null}"#), None);
    }
}

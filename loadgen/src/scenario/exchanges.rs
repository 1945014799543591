//! The part of a scenario that is about a connection gateway.

use super::{
    Plan, Text,
    resolve::{Outcome, fault, read},
};
use crate::{
    exchange::{CHUNKS_MAX, ExchangeOptions, Secret},
    operation::Sizes,
    tokens::read_secret,
    units::{parse_bytes, share},
};

/// Bytes of the text of a part, at the most.
const CHUNK_BYTES_MAX: usize = Sizes::BYTES_MAX;

impl Plan {
    /// What is exchanged; `None`: the target is an MCP endpoint. `secret` is the one that was given
    /// otherwise than by a file.
    pub(super) fn exchange(&self, secret: Option<Secret>) -> Outcome<Option<ExchangeOptions>> {
        let Some(clients_at) = self.clients_at.clone() else {
            return match self
                .of_exchanges()
                .into_iter()
                .find(|(_, is_said)| *is_said)
            {
                Some((key, _)) => Err(fault(key, "needs clients-at: where clients bind")),
                None => Ok(None),
            };
        };
        if let Some((key, _)) = self.of_mcp().into_iter().find(|(_, is_said)| *is_said) {
            return Err(fault(
                key,
                "is about MCP; with clients-at the target is a connection gateway",
            ));
        }
        let secret = match (&self.connect_secret_file, secret) {
            (Some(path), _) => {
                Secret(read_secret(path).map_err(|error| fault("connect-secret-file", error))?)
            }
            (None, Some(secret)) => secret,
            (None, None) => {
                return Err(fault(
                    "clients-at",
                    "needs the gateway's JWT_SECRET: LOADGEN_CONNECT_SECRET or connect-secret-file",
                ));
            }
        };
        let defaults = ExchangeOptions::default();
        let chunks = self.chunks.unwrap_or(defaults.chunks);
        if chunks > CHUNKS_MAX {
            return Err(fault("chunks", "are too many"));
        }
        let bytes = read("chunk-bytes", &self.chunk_bytes, |text| {
            let bytes = parse_bytes(text).filter(|bytes| *bytes <= CHUNK_BYTES_MAX);
            bytes.ok_or_else(|| format!("`{text}` is no size (write 200 or 16k; up to 4m)"))
        })?;
        Ok(Some(ExchangeOptions {
            clients_at,
            secret,
            chunks,
            chunk_bytes: bytes.unwrap_or(defaults.chunk_bytes),
            request: read("payload", &self.payload, str::parse)?.unwrap_or(defaults.request),
            heartbeats: read("heartbeats", &self.heartbeats, share)?.unwrap_or(defaults.heartbeats),
        }))
    }

    /// What only says something of exchanges, and whether it is said.
    fn of_exchanges(&self) -> [(&'static str, bool); 4] {
        [
            ("chunks", self.chunks.is_some()),
            ("chunk-bytes", self.chunk_bytes.is_some()),
            ("heartbeats", self.heartbeats.is_some()),
            ("connect-secret-file", self.connect_secret_file.is_some()),
        ]
    }

    /// What says nothing of exchanges, and whether it is said.
    fn of_mcp(&self) -> [(&'static str, bool); 13] {
        let is_shared = |Text(text): &Text| text == "spread" || text == "pooled";
        [
            ("era", self.era.is_some()),
            ("mix", self.mix.is_some()),
            ("operation", !self.operation.is_empty()),
            ("tool", self.tool.is_some()),
            ("arguments", self.arguments.is_some()),
            ("expect", self.expect.is_some()),
            ("profile", self.profile.is_some()),
            ("session-life", self.session_life.is_some()),
            ("streams", self.streams.is_some()),
            ("check-affinity", self.check_affinity.is_some()),
            ("jwt-key-file", self.jwt_key_file.is_some()),
            ("users", self.users.is_some()),
            (
                "connections",
                self.connections.as_ref().is_some_and(is_shared),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Secrets;

    const START: &str = "url = \"http://127.0.0.1:1\"\n\
        clients-at = \"ws://127.0.0.1:2/connection-gateway/v1\"\n";

    fn resolve(text: &str, secret: Option<&str>) -> Result<ExchangeOptions, String> {
        let plan = Plan::parse(text).map_err(|fault| fault.to_string())?;
        let secrets = Secrets {
            token: None,
            connect: secret.map(|secret| Secret(secret.as_bytes().to_vec())),
        };
        let resolved = plan.resolve(secrets).map_err(|fault| fault.to_string())?;
        Ok(resolved.options.exchange.unwrap())
    }

    #[test]
    fn what_is_said_is_taken_and_the_rest_has_its_default() {
        let plain = resolve(START, Some("s")).unwrap();
        assert_eq!((plain.chunks, plain.chunk_bytes), (3, 64));
        let text = format!(
            "{START}chunks = 9\nchunk-bytes = \"2k\"\nheartbeats = \"25%\"\npayload = \"10..20\"\n"
        );
        let full = resolve(&text, Some("s")).unwrap();
        assert_eq!((full.chunks, full.chunk_bytes), (9, 2048));
        assert_eq!((full.heartbeats, full.request.max), (0.25, 20));
        assert_eq!(full.secret, Secret(b"s".to_vec()));
        assert!(
            !format!("{full:?}").contains("115"),
            "the secret is shown nowhere"
        );
    }

    #[test]
    fn faults_name_their_key() {
        let with = |more: &str| format!("{START}{more}\n");
        for (text, secret, part) in [
            (START.to_owned(), None, "LOADGEN_CONNECT_SECRET"),
            (
                with("connect-secret-file = \"/nowhere\""),
                Some("s"),
                "connect-secret-file",
            ),
            (with("era = \"legacy\""), Some("s"), "era is about MCP"),
            (with("streams = 1"), Some("s"), "streams is about MCP"),
            (
                with("connections = \"spread\""),
                Some("s"),
                "connections is about MCP",
            ),
            (with("heartbeats = \"200%\""), Some("s"), "heartbeats"),
            (with("chunk-bytes = \"5m\""), Some("s"), "chunk-bytes"),
            (with("chunks = 1000000"), Some("s"), "chunks"),
            (
                "url = \"http://127.0.0.1:1\"\nchunks = 1\n".to_owned(),
                None,
                "clients-at",
            ),
        ] {
            let fault = resolve(&text, secret).unwrap_err();
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }
}

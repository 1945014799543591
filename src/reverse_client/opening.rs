//! Opens a WebSocket to the gateway, and reads why it is refused.

use std::{sync::Arc, time::Duration};

use ring::rand::{SecureRandom, SystemRandom};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use url::{Position, Url};

use crate::{
    dial::{self, DialFault, Stream},
    http::{Parsed, parse_response},
    settings::Secret,
    websocket::handshake,
};

/// Time for a connection, TLS included, and again for the answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of the answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenFault {
    /// The network's reasons.
    Dial(DialFault),
    /// Not in time.
    Late,
    /// It is no WebSocket that answers.
    NoWebSocket,
    /// The system has no random numbers.
    NoRandom,
    /// An HTTP status, and `Retry-After`.
    Refused(u16, Option<Duration>),
}

/// Where the gateway is and what every attempt says.
#[derive(Debug)]
pub(super) struct Door {
    pub(super) url: Url,
    pub(super) tls: Arc<rustls::ClientConfig>,
    /// Whole header lines.
    pub(super) headers: String,
}

/// A connection that is a WebSocket.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Stream>,
    /// What the gateway has said already.
    pub(super) input: Vec<u8>,
}

impl Door {
    /// Opens a connection with this token.
    pub(super) async fn open(&self, token: &Secret) -> Result<Opened, OpenFault> {
        let mut key = [0; 16];
        SystemRandom::new()
            .fill(&mut key)
            .map_err(|_| OpenFault::NoRandom)?;
        let mut extra = String::from_utf8_lossy(token.bytes()).into_owned();
        extra.insert_str(0, "Authorization: Bearer ");
        extra.push_str("\r\n");
        extra.push_str(&self.headers);
        let host = &self.url[Position::BeforeHost..Position::AfterPort];
        let target = &self.url[Position::BeforePath..Position::AfterQuery];
        let request = handshake::request(host, target, key, &extra);
        // Where the gateway is, is the operator's business.
        let dialing = timeout(PATIENCE, dial::open(&self.url, &self.tls, |_| true));
        let mut stream = dialing
            .await
            .map_err(|_| OpenFault::Late)?
            .map_err(OpenFault::Dial)?;
        let asking = async {
            let cut = |_| OpenFault::Dial(DialFault::Connect);
            stream.write_all(&request).await.map_err(cut)?;
            stream.flush().await.map_err(cut)?;
            let mut input = Vec::new();
            loop {
                if let Some(length) = judge(&input, key)? {
                    input.drain(..length);
                    return Ok(input);
                }
                if stream.read_buf(&mut input).await.map_err(cut)? == 0 {
                    return Err(OpenFault::NoWebSocket);
                }
            }
        };
        let answered = timeout(PATIENCE, asking).await;
        let input = answered.unwrap_or(Err(OpenFault::Late))?;
        Ok(Opened { stream, input })
    }
}

/// Judges an answer so far: the length of the head of one that opens, `None` when it is not whole.
fn judge(input: &[u8], key: [u8; 16]) -> Result<Option<usize>, OpenFault> {
    match parse_response(input, HEAD_BYTES_MAX) {
        Ok(Parsed::Partial) => Ok(None),
        Ok(Parsed::Complete(head)) if head.status == 101 => {
            if handshake::is_opened(&input[..head.len], key) {
                Ok(Some(head.len))
            } else {
                Err(OpenFault::NoWebSocket)
            }
        }
        Ok(Parsed::Complete(head)) => {
            // A date is not read: the pauses of this side do.
            let seconds = head.retry_after.and_then(|value| {
                let text = std::str::from_utf8(value.slice(input)).ok()?;
                text.trim().parse().ok()
            });
            let after = seconds.map(Duration::from_secs);
            Err(OpenFault::Refused(head.status, after))
        }
        Err(_) => Err(OpenFault::NoWebSocket),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: [u8; 16] = *b"0123456789abcdef";

    fn accepted() -> Vec<u8> {
        use base64::{Engine, engine::general_purpose::STANDARD};
        let key = STANDARD.encode(KEY);
        handshake::accepted(&handshake::accept_for(key.as_bytes()))
    }

    #[test]
    fn an_answer_opens_or_says_why_not() {
        let whole = accepted();
        for end in 0..whole.len() {
            assert_eq!(judge(&whole[..end], KEY), Ok(None));
        }
        let more = [&whole[..], b"\x81\x02{}"].concat();
        assert_eq!(judge(&more, KEY), Ok(Some(whole.len())));
        assert_eq!(judge(&whole, [0; 16]), Err(OpenFault::NoWebSocket));
        for (answer, fault) in [
            (
                "HTTP/1.1 503 x\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n",
                OpenFault::Refused(503, Some(Duration::from_secs(7))),
            ),
            (
                "HTTP/1.1 503 x\r\nRetry-After: Tue, 01 Dec 2026 00:00:00 GMT\r\n\r\n",
                OpenFault::Refused(503, None),
            ),
            (
                "HTTP/1.1 401 x\r\nWWW-Authenticate: Bearer\r\n\r\n",
                OpenFault::Refused(401, None),
            ),
            ("SSH-2.0-x\r\n\r\n", OpenFault::NoWebSocket),
        ] {
            assert_eq!(judge(answer.as_bytes(), KEY), Err(fault), "{answer}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_is_read_without_end(answer in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut answer = answer;
            answer.resize(HEAD_BYTES_MAX + 1, b'x');
            prop_assert!(judge(&answer, KEY).is_err());
        }
    }
}

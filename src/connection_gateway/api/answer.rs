//! Answers of the internal API: `{"data":...}`, `{"error":...}`, or a few words of text.

use serde_json::{Value, json};

use super::validate::Issue;
use crate::{
    connection_gateway::{fault::Fault, session_id::SessionId},
    http::{Method, header_values},
    reply::{ClientGone, Reply},
    request::Request,
    shard_state::ShardState,
};

const JSON: &str = "application/json";
/// Of texts that the original's framework writes.
const TEXT: &str = "text/plain; charset=UTF-8";
/// Longest request id of a caller that is echoed.
const REQUEST_ID_BYTES_MAX: usize = 255;

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    content_type: &'static str,
    body: Vec<u8>,
}

impl Answer {
    /// 200 with data.
    pub(super) fn data(data: &Value) -> Self {
        Self::view(|out| out.extend_from_slice(data.to_string().as_bytes()))
    }

    /// 200 with data that `write` appends as JSON.
    pub(super) fn view(write: impl FnOnce(&mut Vec<u8>)) -> Self {
        Self::with_data(200, write)
    }

    /// The same with another status.
    pub(super) fn with_data(status: u16, write: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut body = br#"{"data":"#.to_vec();
        write(&mut body);
        body.push(b'}');
        Self {
            status,
            content_type: JSON,
            body,
        }
    }

    /// A text.
    pub(super) fn text(status: u16, text: &str) -> Self {
        Self {
            status,
            // The contract has it without a blank here and with one elsewhere.
            content_type: if status == 401 {
                "text/plain;charset=UTF-8"
            } else {
                TEXT
            },
            body: text.as_bytes().to_vec(),
        }
    }

    /// Metrics for Prometheus.
    pub(super) fn metrics_text(text: String) -> Self {
        Self {
            status: 200,
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            body: text.into_bytes(),
        }
    }

    fn error(status: u16, code: &str, message: &str, data: Option<Value>) -> Self {
        let mut error = json!({
            "code": code,
            "message": message,
            "reason": {"en": message, "zh-CN": message},
        });
        if let Some(data) = data {
            error["data"] = data;
        }
        Self {
            status,
            content_type: JSON,
            body: json!({"error": error}).to_string().into_bytes(),
        }
    }

    /// A fault with its status.
    pub(super) fn fault(fault: &Fault) -> Self {
        Self::error(fault.status(), fault.code(), &fault.message(), fault.data())
    }

    /// A fault with data of the caller's knowledge.
    pub(super) fn fault_with(fault: &Fault, data: Value) -> Self {
        Self::error(fault.status(), fault.code(), &fault.message(), Some(data))
    }

    /// 404: no such session, as the status routes say it.
    pub(super) fn no_session() -> Self {
        Self::error(404, "http.not_found", "Gateway session not found", None)
    }

    /// 500.
    pub(super) fn internal() -> Self {
        Self::error(500, "INTERNAL_ERROR", "Internal error", None)
    }

    /// 400: the body breaks its schema.
    pub(super) fn invalid(issues: &[Issue]) -> Self {
        let texts: Vec<String> = issues.iter().map(Issue::text).collect();
        let message = format!("Validation failed: {}", texts.join("; "));
        let data = json!({"issues": issues.iter().map(Issue::value).collect::<Vec<_>>()});
        Self::error(400, "http.validation_failed", &message, Some(data))
    }

    /// Writes it as the answer to a request.
    pub(super) async fn write(
        self,
        state: &ShardState,
        request: &Request,
        reply: &mut Reply<'_>,
    ) -> Result<(), ClientGone> {
        let mut out = state.shard.buffers.take();
        reply.head(&mut out, self.status);
        write_request_id(state, request, &mut out);
        let is_bodiless = request.head.method == Method::Head;
        self.finish(out, is_bodiless, reply).await
    }

    /// Writes it as the answer to something that was no request.
    pub(super) async fn write_closing(self, reply: &mut Reply<'_>) -> Result<(), ClientGone> {
        let mut out = Vec::with_capacity(256 + self.body.len());
        reply.head(&mut out, self.status);
        self.finish(out, false, reply).await
    }

    async fn finish(
        self,
        mut out: Vec<u8>,
        is_bodiless: bool,
        reply: &mut Reply<'_>,
    ) -> Result<(), ClientGone> {
        if self.status == 503 {
            out.extend_from_slice(b"retry-after: 1\r\n");
        }
        out.extend_from_slice(b"content-type: ");
        out.extend_from_slice(self.content_type.as_bytes());
        out.extend_from_slice(b"\r\n");
        reply.length(&mut out, self.body.len());
        if !is_bodiless {
            out.extend_from_slice(&self.body);
        }
        reply.last(out).await.map(drop)
    }
}

/// Appends the line that names the request: as its caller did, or made up.
pub(super) fn write_request_id(state: &ShardState, request: &Request, out: &mut Vec<u8>) {
    let said = header_values(request.head_bytes(), "x-request-id").next();
    let is_fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'=');
    let said = said.filter(|said| {
        (1..=REQUEST_ID_BYTES_MAX).contains(&said.len()) && said.iter().all(is_fine)
    });
    out.extend_from_slice(b"x-request-id: ");
    match said {
        Some(said) => out.extend_from_slice(said),
        None => out.extend_from_slice(made_up(state).as_str().as_bytes()),
    }
    out.extend_from_slice(b"\r\n");
}

/// A UUID that is no secret.
pub(super) fn made_up(state: &ShardState) -> SessionId {
    let (high, low) = (state.random(), state.random());
    SessionId::of((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
}

/// Milliseconds since 1970 as JavaScript's `toISOString` writes them.
pub(super) fn timestamp(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // The civil calendar from a count of days, in years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (ms / 3_600_000, ms / 60_000 % 60);
    let (second, ms) = (ms / 1_000 % 60, ms % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_one_form_and_one_of_ours_says_nothing_of_its_cause() {
        for (answer, status, code, message) in [
            (Answer::internal(), 500, "INTERNAL_ERROR", "Internal error"),
            (
                Answer::no_session(),
                404,
                "http.not_found",
                "Gateway session not found",
            ),
        ] {
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            let reason = json!({"en": message, "zh-CN": message});
            let wanted = json!({"error": {"code": code, "message": message, "reason": reason}});
            assert_eq!((answer.status, body), (status, wanted));
        }
    }

    #[test]
    fn times_are_written_as_javascript_writes_them() {
        for (ms, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_012_821_440, "2026-11-30T04:27:01.440Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(ms), wanted);
        }
    }
}

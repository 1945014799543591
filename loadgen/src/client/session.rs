//! A session: opened with `initialize`, ended with DELETE (mcp.md 1.2); or what stands for one with
//! clients that have none.

use super::{
    CallFault, Called, Connection, Form, Script, check,
    request::{Said, head_of, put_request},
};
use crate::{
    affinity::{Count, ViolationKind},
    era::{Era, STATELESS_REVISION},
    random::Random,
};

/// Revision the client asks for.
const REVISION: &str = "2025-11-25";

/// A session, or one client without.
pub(crate) struct Session {
    /// The head of every request, all but the lines of each and its length.
    head: Vec<u8>,
    next_id: u64,
    count: Count,
    /// The target's shard that owns it, where known.
    pub(crate) owner: Option<u16>,
    /// How the last number did not follow: how, what had to come, what came.
    pub(crate) mismatch: Option<(ViolationKind, u64, u64)>,
}

impl Session {
    /// A client of the script's era, ready to call: its session is open, if it has one.
    pub(crate) async fn begin(
        script: &Script,
        number: u64,
        connection: &mut Connection,
    ) -> Result<Self, CallFault> {
        if script.era == Era::Stateless {
            let revision = Some(STATELESS_REVISION);
            let said = Said {
                revision,
                ..Said::default()
            };
            return Ok(Self::new(head_of(script, "POST", number, said)));
        }
        let (session, _) = Self::open(script, number, connection).await?;
        session.announce(script, connection).await?;
        Ok(session)
    }

    fn new(head: Vec<u8>) -> Self {
        Self {
            head,
            next_id: 1,
            count: Count::default(),
            owner: None,
            mismatch: None,
        }
    }

    /// `initialize` over `connection`, for the session of this number in the run.
    pub(crate) async fn open(
        script: &Script,
        number: u64,
        connection: &mut Connection,
    ) -> Result<(Self, Called), CallFault> {
        let body = format!(
            concat!(
                r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"#,
                r#""protocolVersion":"{}","capabilities":{{}},"#,
                r#""clientInfo":{{"name":"loadgen","version":"{}"}}}}}}"#
            ),
            REVISION,
            env!("CARGO_PKG_VERSION")
        );
        let first = head_of(script, "POST", number, Said::default());
        let response = connection
            .exchange(script.limit, |out| {
                put_request(out, &first, body.as_bytes())
            })
            .await?;
        let called = connection.called(&response);
        let (id, revision) = check::opened(&response, connection.inbound())?;
        let owner = script.slots.as_ref();
        let said = Said {
            session: Some(&id),
            revision: Some(&revision),
        };
        let mut session = Self::new(head_of(script, "POST", number, said));
        session.owner = owner.map(|slots| slots.owner_of(id.as_bytes()));
        Ok((session, called))
    }

    /// `notifications/initialized`.
    pub(crate) async fn announce(
        &self,
        script: &Script,
        connection: &mut Connection,
    ) -> Result<(), CallFault> {
        let note = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let response = connection
            .exchange(script.limit, |out| {
                put_request(out, &self.head, note.as_bytes())
            })
            .await?;
        match response.status {
            202 => Ok(()),
            other => Err(CallFault::Status(other)),
        }
    }

    /// One request of this form, its reply checked.
    pub(crate) async fn perform(
        &mut self,
        script: &Script,
        form: &Form,
        random: &std::cell::RefCell<Random>,
        connection: &mut Connection,
    ) -> Result<Called, CallFault> {
        let id = self.next_id;
        self.next_id += 1;
        let sizes = form.payload;
        let payload = sizes.map_or(0, |sizes| sizes.draw(&mut random.borrow_mut()));
        let response = connection
            .exchange(script.limit, |out| form.put(out, &self.head, id, payload))
            .await
            .inspect_err(|_| self.count.unsure())?;
        let called = connection.called(&response);
        let content = form.content(payload);
        let marks = form.marks(script.era);
        let number = content.check(marks, &response, connection.inbound(), id)?;
        if let Some(number) = number.filter(|_| content == check::Content::Number) {
            let expected = self.count.expected();
            if let Err(kind) = self.count.take(number) {
                self.mismatch = Some((kind, expected, number));
                return Err(CallFault::WrongSequence);
            }
        }
        Ok(called)
    }

    /// The number that a counter has to give next.
    pub(crate) fn expected(&self) -> u64 {
        self.count.expected()
    }

    /// DELETE; a server that keeps its sessions (405) has answered as well.
    pub(crate) async fn close(
        self,
        script: &Script,
        connection: &mut Connection,
    ) -> Result<Called, CallFault> {
        let head = self.head_for("DELETE");
        let response = connection
            .exchange(script.limit, |out| put_request(out, &head, b""))
            .await?;
        match response.status {
            200..=299 | 405 => Ok(connection.called(&response)),
            other => Err(CallFault::Status(other)),
        }
    }

    /// The head of a request with another method.
    pub(super) fn head_for(&self, method: &str) -> Vec<u8> {
        let rest = self.head.strip_prefix(b"POST").unwrap_or(&self.head);
        [method.as_bytes(), rest].concat()
    }
}

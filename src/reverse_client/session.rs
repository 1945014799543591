//! One connection with one local server: the thin skin around [`Channel`] and [`Calls`].
//!
//! One task reads, writes and waits. At most one message of the gateway waits for the local server,
//! and while it does nothing is read; at most one of the local server is being written, and while
//! it is no other is taken. So each side slows the other down and nothing grows.

use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{mpsc, watch},
    time::{sleep_until, timeout},
};

use super::{
    calls::{Calls, FromGateway, FromLocal},
    channel::{Channel, Heard, Lost},
    local::{Letter, Local, Said},
    opening::Opened,
    retry::Ended,
};
use crate::{dial::Stream, websocket::CloseCode};

/// How long a message may wait for the local server.
const LOCAL_PATIENCE: Duration = Duration::from_secs(30);
/// How long the end of our output may take.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Said to the operator, once for each connection.
const IGNORED: &str =
    "the local server writes something that is no JSON-RPC message; it is left out";

struct Session {
    reader: ReadHalf<Box<dyn Stream>>,
    writer: WriteHalf<Box<dyn Stream>>,
    /// TLS may hold back what was written.
    must_flush: bool,
    channel: Channel,
    calls: Calls,
    input: Vec<u8>,
    /// Bytes of `input` that were taken.
    taken: usize,
    /// Waits for the local server, since when.
    waiting: Option<(Letter, Instant)>,
    /// How it ends, when that is known.
    ended: Option<Ended>,
}

/// Carries messages until the connection ends. `stop` becoming true ends it too. The local server
/// is to be ended afterwards.
pub(super) async fn run(
    opened: Opened,
    local: &mut Local,
    stop: &mut watch::Receiver<bool>,
    tell: &impl Fn(&str),
) -> Ended {
    let now = Instant::now();
    let (reader, writer) = tokio::io::split(opened.stream);
    let mut session = Session {
        reader,
        writer,
        must_flush: false,
        channel: Channel::new(now),
        calls: Calls::default(),
        input: opened.input,
        taken: 0,
        waiting: None,
        ended: None,
    };
    let mut has_told = false;
    loop {
        let now = Instant::now();
        session.take_input(now);
        if let Some(lost) = session.look_at_time(now) {
            return session.ended.unwrap_or(Ended::Lost(lost));
        }
        if session.channel.is_done() && !session.must_flush {
            // The end of our output; who is gone does not hear it.
            let _ = timeout(SHUTDOWN_PATIENCE, session.writer.shutdown()).await;
            return session.ended.unwrap_or(Ended::Cut);
        }
        let is_open = session.channel.is_open();
        let has_output = !session.channel.pending().is_empty();
        let may_read = session.may_read();
        let due = session.next_due(now);
        tokio::select! {
            read = session.reader.read_buf(&mut session.input), if may_read => {
                if !matches!(read, Ok(count) if count > 0) {
                    return session.ended.unwrap_or(Ended::Cut);
                }
            }
            written = write(&mut session.writer, session.channel.pending()),
                if has_output || session.must_flush =>
            {
                match written {
                    Ok(count) if has_output && count > 0 => {
                        session.channel.wrote(count, Instant::now());
                        session.must_flush = true;
                    }
                    Ok(_) if !has_output => session.must_flush = false,
                    _ => return session.ended.unwrap_or(Ended::Cut),
                }
            }
            room = local.input.reserve(), if is_open && session.waiting.is_some() => {
                session.pass_on(room.ok());
            }
            said = local.said.recv(), if is_open && !has_output => {
                let is_message = session.hear_local(said);
                if !is_message && !has_told {
                    tell(IGNORED);
                    has_told = true;
                }
            }
            _ = stop.wait_for(|is_stopped| *is_stopped), if is_open => session.go_away(),
            () = sleep_until(due.into()) => {}
        }
    }
}

/// Writes some of what is pending, or has all that was written go out.
async fn write(writer: &mut WriteHalf<Box<dyn Stream>>, pending: &[u8]) -> std::io::Result<usize> {
    if pending.is_empty() {
        writer.flush().await.map(|()| 0)
    } else {
        writer.write(pending).await
    }
}

impl Session {
    /// Takes in what was read, until a message waits.
    fn take_input(&mut self, now: Instant) {
        while self.waiting.is_none() && self.channel.may_read() && self.taken < self.input.len() {
            let (taken, heard) = self.channel.read(&self.input[self.taken..], now);
            self.taken += taken;
            match heard {
                None => {}
                Some(Heard::Message(text)) => {
                    let message = text.as_bytes();
                    match self.calls.hear_gateway(message, now) {
                        FromGateway::Pass(kind) => {
                            let message = message.to_vec();
                            self.waiting = Some((Letter { message, kind }, now));
                        }
                        FromGateway::Answer(error) => self.channel.answer(error, now),
                        FromGateway::Malformed => {
                            self.ended = Some(Ended::Malformed);
                            self.channel
                                .close(CloseCode::POLICY, "no JSON-RPC message", now);
                        }
                    }
                }
                Some(Heard::Closed(code)) => {
                    self.ended.get_or_insert(Ended::Closed(code));
                }
                Some(Heard::Broken(violation)) => {
                    self.ended.get_or_insert(Ended::Broken(violation));
                }
            }
        }
        if self.taken == self.input.len() {
            self.taken = 0;
            self.input.clear();
            self.input.reserve(READ_BYTES);
        }
    }

    fn may_read(&self) -> bool {
        // All that was read must be taken before more is.
        self.input.is_empty() && self.waiting.is_none() && self.channel.may_read()
    }

    /// Does what is due; why the connection is to be given up.
    fn look_at_time(&mut self, now: Instant) -> Option<Lost> {
        if !self.may_read() {
            self.channel.is_not_listening(now);
        }
        for error in self.calls.expire(now) {
            self.channel.send(error, now);
        }
        if let Some((_, since)) = self.waiting
            && now >= since + LOCAL_PATIENCE
        {
            self.give_up(Some("takes no messages".to_owned()), now);
        }
        self.channel.tick(now)
    }

    /// Hands the waiting letter to the local server.
    fn pass_on(&mut self, room: Option<mpsc::Permit<'_, Letter>>) {
        // Without room the server has ended, which its own side tells.
        if let Some((letter, _)) = self.waiting.take()
            && let Some(room) = room
        {
            room.send(letter);
        }
    }

    /// Takes in what comes of the local server; false: it was no message.
    fn hear_local(&mut self, said: Option<Said>) -> bool {
        let now = Instant::now();
        match said {
            Some(Said::Message(message)) => match self.calls.hear_local(&message) {
                FromLocal::Pass => self.channel.send(message, now),
                FromLocal::Stray => {}
                FromLocal::Malformed => return false,
            },
            Some(Said::Failed(id, why)) => {
                if let Some(error) = self.calls.fail(&id, &why) {
                    self.channel.send(error, now);
                }
            }
            None => self.give_up(None, now),
        }
        true
    }

    /// The local server is of no use any more.
    fn give_up(&mut self, how: Option<String>, now: Instant) {
        self.fail_calls("the local server has ended", now);
        self.channel
            .close(CloseCode::INTERNAL, "the local server has ended", now);
        self.ended.get_or_insert(Ended::Local(how));
    }

    /// This side is to stop.
    fn go_away(&mut self) {
        let now = Instant::now();
        self.fail_calls("the local server is being stopped", now);
        self.channel.close(CloseCode::GOING_AWAY, "stopped", now);
        self.ended.get_or_insert(Ended::Closed(Some(1001)));
    }

    fn fail_calls(&mut self, why: &str, now: Instant) {
        self.waiting = None;
        for error in self.calls.fail_all(why) {
            self.channel.send(error, now);
        }
    }

    fn next_due(&self, now: Instant) -> Instant {
        let mut due = self.channel.next_due();
        if let Some(expiry) = self.calls.next_due() {
            due = due.min(expiry);
        }
        if let Some((_, since)) = &self.waiting {
            due = due.min(*since + LOCAL_PATIENCE);
        }
        // Never a loop without a pause, whatever is due.
        due.max(now + Duration::from_millis(1))
    }
}

//! The sockets of exchanges: clients that hold their WebSocket, callers that request.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::{Duration, Instant},
};

use shards::{Stream, notify::Notify};

use super::{
    Pattern,
    team::{Line, Team, Turn},
};
use crate::{
    client::{CallFault, Called},
    exchange::{self, Answerer, Bound, Greeting, Heard, Plan},
};

/// How often a client says that it is there, as the real one does (connection-gateway.md 2.7).
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a shard looks which of its clients have to say so, and whether the run is over.
const LOOK: Duration = Duration::from_millis(100);
/// Pause of a client that lost its session before it binds again.
const BIND_PAUSE: Duration = Duration::from_millis(100);
/// Time that a client which ends has until the gateway has ended as well.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes a client reads at once, when there are as many.
const READ_BYTES: usize = 8 * 1024;

/// One client, as its callers and its own task see it.
pub(crate) struct Client {
    number: u64,
    /// Its session; `None` while it has none.
    bound: RefCell<Option<Bound>>,
    /// Something is to be said, or the end.
    changed: Notify,
    wants_heartbeat: Cell<bool>,
    /// When it last said that it is there.
    said_at: Cell<Instant>,
}

/// A caller and the client it asks.
pub(crate) type Pair = (Caller, Rc<Client>);

/// Opens this shard's clients, and so many callers that share them.
pub(crate) async fn open(
    team: &Rc<Team>,
    plan: &Plan,
    (callers, clients): (usize, usize),
) -> Result<Vec<Pair>, CallFault> {
    let clients = open_clients(team, plan, clients).await?;
    let mut pairs = Vec::new();
    for (index, client) in (0..callers).zip(clients.iter().cycle()) {
        let caller = Caller::open(team, team.number(index)).await?;
        pairs.push((caller, client.clone()));
    }
    Ok(pairs)
}

/// Opens this shard's clients one after the other, and starts to answer for them.
async fn open_clients(
    team: &Rc<Team>,
    plan: &Plan,
    count: usize,
) -> Result<Vec<Rc<Client>>, CallFault> {
    let mut clients = Vec::new();
    for index in 0..count {
        let client = Rc::new(Client {
            number: team.number(index),
            bound: RefCell::default(),
            changed: Notify::default(),
            wants_heartbeat: Cell::new(false),
            said_at: Cell::new(Instant::now()),
        });
        let socket = bind(team, plan, &client).await?;
        clients.push(client.clone());
        let (team, pass) = (team.clone(), team.shard.gate.enter());
        shards::spawn(async move {
            if let Some(plan) = &team.common.exchange {
                live(&team, plan, &client, socket).await;
            }
            drop(pass);
        });
    }
    let (team, watched) = (team.clone(), clients.clone());
    shards::spawn(async move { watch(&team, &watched).await });
    Ok(clients)
}

/// A bound WebSocket and what came behind `bound`.
struct Socket {
    stream: Stream,
    inbound: Vec<u8>,
    answerer: Answerer,
}

/// Connects and binds a client.
async fn bind(team: &Team, plan: &Plan, client: &Client) -> Result<Socket, CallFault> {
    let limit = team.common.options.limit;
    let connected = Stream::connect(plan.target.address, limit, &team.shard.deadlines).await;
    let mut stream = connected.map_err(|_| CallFault::Connect)?;
    let mut out = Vec::new();
    Greeting::put(plan, client.number, &mut team.random.borrow_mut(), &mut out);
    stream.deadline().arm(limit);
    let fault = |stream: &Stream| {
        if stream.deadline().has_passed() {
            CallFault::Timeout
        } else {
            CallFault::Ended
        }
    };
    if stream.write_all(out).await.0.is_err() {
        return Err(fault(&stream));
    }
    let (mut greeting, mut inbound) = (Greeting::default(), Vec::with_capacity(READ_BYTES));
    loop {
        let result;
        (result, inbound) = stream.read(inbound).await;
        if !matches!(result, Ok(1..)) {
            return Err(fault(&stream));
        }
        if let Some(bound) = greeting.take(&mut inbound)? {
            // It may be silent for ever; the end of the run ends it.
            stream.deadline().disarm();
            team.note_client(&bound.session);
            let answerer = Answerer::new(bound.clone());
            *client.bound.borrow_mut() = Some(bound);
            return Ok(Socket {
                stream,
                inbound,
                answerer,
            });
        }
    }
}

/// A client from its first session to the end of the run.
async fn live(team: &Team, plan: &Plan, client: &Client, first: Socket) {
    let mut next = Some(first);
    while !team.is_over() {
        if let Some(socket) = next.take() {
            let outcome = serve(team, plan, client, socket).await;
            *client.bound.borrow_mut() = None;
            let Err(fault) = outcome else { continue };
            let sent = team.elapsed();
            team.record_extra("client", None, sent, Err(fault));
        }
        if team.is_over() {
            return;
        }
        shards::sleep(BIND_PAUSE).await;
        team.tally.borrow_mut().recorder.reconnect();
        let sent = team.elapsed();
        match bind(team, plan, client).await {
            Ok(socket) => next = Some(socket),
            Err(fault) => team.record_extra("bind", None, sent, Err(fault)),
        }
    }
    if let Some(mut socket) = next {
        close(team, &mut socket).await;
    }
}

/// Answers what a client hears until its session or the run ends.
async fn serve(
    team: &Team,
    plan: &Plan,
    client: &Client,
    mut socket: Socket,
) -> Result<(), CallFault> {
    let mut out = Vec::new();
    loop {
        let heard = {
            let random = &mut team.random.borrow_mut();
            if client.wants_heartbeat.take() {
                socket.answerer.put_heartbeat(&mut out, random);
            }
            socket
                .answerer
                .hear(plan, &mut socket.inbound, &mut out, random)?
        };
        if !out.is_empty() {
            client.said_at.set(Instant::now());
            socket.stream.deadline().arm(team.common.options.limit);
            let result;
            (result, out) = socket.stream.write_all(out).await;
            socket.stream.deadline().disarm();
            if result.is_err() {
                return Err(CallFault::Ended);
            }
            out.clear();
        }
        if team.is_over() {
            close(team, &mut socket).await;
            return Ok(());
        }
        if heard == Heard::Closed {
            return Err(CallFault::Ended);
        }
        if !is_readable(&socket.stream, &client.changed).await {
            continue;
        }
        let result;
        (result, socket.inbound) = socket.stream.read(socket.inbound).await;
        if !matches!(result, Ok(1..)) {
            return Err(CallFault::Ended);
        }
    }
}

/// Waits until something can be read, or until there is something to say; true for the former.
async fn is_readable(stream: &Stream, changed: &Notify) -> bool {
    // Both can be dropped before they are over.
    let (mut readable, mut changed) = (pin!(stream.readable()), pin!(changed.wait()));
    poll_fn(|context| {
        if changed.as_mut().poll(context).is_ready() {
            return Poll::Ready(false);
        }
        readable.as_mut().poll(context).map(|()| true)
    })
    .await
}

/// Says the end and reads until the gateway has ended too, so that the session is gone with the
/// run.
async fn close(team: &Team, socket: &mut Socket) {
    let mut out = Vec::new();
    Answerer::put_close(&mut out, &mut team.random.borrow_mut());
    socket.stream.deadline().arm(LINGER);
    if socket.stream.write_all(out).await.0.is_err() {
        return;
    }
    loop {
        socket.inbound.clear();
        let result;
        (result, socket.inbound) = socket
            .stream
            .read(std::mem::take(&mut socket.inbound))
            .await;
        if !matches!(result, Ok(1..)) {
            return;
        }
    }
}

/// Reminds clients of their heartbeats, and of the end.
async fn watch(team: &Team, clients: &[Rc<Client>]) {
    while !team.is_over() {
        shards::sleep(LOOK).await;
        let now = Instant::now();
        for client in clients {
            if now.duration_since(client.said_at.get()) >= HEARTBEAT {
                client.said_at.set(now);
                client.wants_heartbeat.set(true);
                client.changed.notify();
            }
        }
    }
    for client in clients {
        client.changed.notify();
    }
}

/// One caller of a client, until no more requests are given out.
pub(crate) async fn work(team: &Team, (mut caller, client): Pair) {
    let Some(plan) = &team.common.exchange else {
        return;
    };
    let mut rest = team.first_rest().await;
    while let Some(turn) = team.next_call().await {
        caller.request(team, plan, &client, turn).await;
        team.rest(&mut rest).await;
    }
}

/// A caller's connection and what it composes requests with.
pub(crate) struct Caller {
    line: Line,
    number: u64,
    count: u64,
    request_id: String,
    body: Vec<u8>,
    /// Header lines of every request.
    common: Vec<u8>,
}

impl Caller {
    /// Caller `number` of the run, with its first connection.
    pub(crate) async fn open(team: &Team, number: u64) -> Result<Self, CallFault> {
        Ok(Self {
            line: Line::of(team.connect().await?),
            number,
            count: 0,
            request_id: String::new(),
            body: Vec::new(),
            common: exchange::common_lines(&team.common.script),
        })
    }

    async fn request(&mut self, team: &Team, plan: &Plan, client: &Client, turn: Turn) {
        let sent = team.sent_at(turn);
        let bound = client.bound.borrow().clone();
        let owner = bound
            .as_ref()
            .and_then(|bound| team.owner_of(&bound.session));
        if team.common.options.pattern == Pattern::Fresh {
            self.line = Line::default();
        }
        let result = match &bound {
            Some(bound) => self.exchange(team, plan, bound).await,
            // Its client has lost its session: there is nobody to ask.
            None => Err(CallFault::NoSession),
        };
        team.note_exchange(turn, sent, result, owner);
        if let Err(fault) = result {
            team.after_fault(fault, &mut self.line).await;
        }
    }

    /// One request and its answer, checked.
    async fn exchange(
        &mut self,
        team: &Team,
        plan: &Plan,
        bound: &Bound,
    ) -> Result<Called, CallFault> {
        team.ready(&mut self.line).await?;
        let connection = self.line.connection.as_mut().ok_or(CallFault::Connect)?;
        self.count += 1;
        self.request_id.clear();
        self.request_id
            .push_str(&format!("{}-{}-{}", plan.run, self.number, self.count));
        let bytes = plan.options.request.draw(&mut team.random.borrow_mut());
        let limit = team.common.options.limit;
        let response = connection
            .exchange(limit, |out| {
                let request = (&*self.request_id, bytes);
                let common = (&*self.common, limit.as_millis());
                exchange::put_request(out, &mut self.body, bound, request, common);
            })
            .await?;
        if response.status != 200 {
            return Err(CallFault::Status(response.status));
        }
        let called = connection.called_by_chunks(&response);
        let lines = &connection.inbound()[response.body];
        exchange::check(plan, &self.request_id, lines)?;
        Ok(called)
    }
}

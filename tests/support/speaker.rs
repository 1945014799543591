//! Event streams of a scripted backend: what they say, and when, is the test's word.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{Asked, PATIENCE, Wire};

/// How often a silent stream looks whether its listener has left.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How long one that must be heard waits before it says the same again.
const SAY_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Holds a stream of a backend open and says on it what the test says here.
#[derive(Default)]
pub struct Speaker {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    unsaid: VecDeque<String>,
    listeners: usize,
    ends: usize,
}

impl Speaker {
    /// Says this, in one TCP write, on the stream that is open or will be.
    pub fn say(&self, events: impl Into<String>) {
        self.state.lock().unwrap().unsaid.push_back(events.into());
        self.changed.notify_all();
    }

    /// Says this again and again until `hear` has heard it: what is said while the gateway stops
    /// listening, because nobody listens to it, is lost.
    pub fn say_until<T>(&self, events: &str, hear: impl FnOnce() -> T) -> T {
        let is_heard = AtomicBool::new(false);
        thread::scope(|scope| {
            let saying = scope.spawn(|| {
                for _ in 0..60 {
                    self.say(events);
                    thread::park_timeout(SAY_AGAIN_AFTER);
                    if is_heard.load(Ordering::SeqCst) {
                        return;
                    }
                }
            });
            let heard = hear();
            is_heard.store(true, Ordering::SeqCst);
            saying.thread().unpark();
            heard
        })
    }

    /// Ends one stream after what was said so far.
    pub fn end(&self) {
        self.state.lock().unwrap().ends += 1;
        self.changed.notify_all();
    }

    /// Waits until `count` streams in all have been opened.
    pub fn await_listeners(&self, count: usize) {
        let state = self.state.lock().unwrap();
        let (state, late) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| state.listeners < count)
            .unwrap();
        assert!(!late.timed_out(), "{} of {count} listen", state.listeners);
    }

    /// Waits until all of it has been said.
    pub fn await_said(&self) {
        let state = self.state.lock().unwrap();
        let (state, late) = self
            .changed
            .wait_timeout_while(state, PATIENCE, |state| !state.unsaid.is_empty())
            .unwrap();
        assert!(!late.timed_out(), "{} are unsaid", state.unsaid.len());
    }

    /// For a script: answers with an event stream and says on it what the test says, until the test
    /// ends it or the other side has left.
    pub fn speak(&self, wire: &mut Wire<'_>) {
        wire.stream_head();
        self.go_on(wire);
    }

    /// The same on a stream that has begun.
    pub fn go_on(&self, wire: &mut Wire<'_>) {
        let started = Instant::now();
        self.state.lock().unwrap().listeners += 1;
        self.changed.notify_all();
        // One whose listener has left must not take what the next one is to say.
        while !wire.has_left() && started.elapsed() < 2 * PATIENCE {
            let state = self.state.lock().unwrap();
            let (mut state, _) = self
                .changed
                .wait_timeout_while(state, LOOK_EVERY, |state| {
                    state.unsaid.is_empty() && state.ends == 0
                })
                .unwrap();
            if wire.has_left() {
                return;
            }
            if let Some(events) = state.unsaid.pop_front() {
                let is_last = state.unsaid.is_empty();
                drop(state);
                if is_last {
                    self.changed.notify_all();
                }
                wire.send(events);
            } else if state.ends > 0 {
                state.ends -= 1;
                return;
            }
        }
    }
}

/// An event with one line of data.
pub fn event(id: Option<&str>, data: &str) -> String {
    match id {
        Some(id) => format!("id: {id}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// A request or, without an id, a notification.
pub fn request(id: Option<&str>, method: &str, params: &str) -> String {
    let id = id.map_or_else(String::new, |id| format!(r#""id":{id},"#));
    format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#)
}

/// The response to a `tools/call`, with one text.
pub fn response(asked: &Asked, text: &str) -> String {
    let id = asked.id();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
    )
}

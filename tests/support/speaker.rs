//! Event streams of a scripted backend: what they say, and when, is the test's word.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex},
};

use super::{Asked, PATIENCE, Wire};

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

    /// For a script: answers with an event stream and says on it what the test says, until the test
    /// ends it or the other side has left.
    pub fn speak(&self, wire: &mut Wire<'_>) {
        wire.stream_head();
        self.go_on(wire);
    }

    /// The same on a stream that has begun.
    pub fn go_on(&self, wire: &mut Wire<'_>) {
        let mut state = self.state.lock().unwrap();
        state.listeners += 1;
        self.changed.notify_all();
        loop {
            let (mut held, late) = self
                .changed
                .wait_timeout_while(state, PATIENCE, |state| {
                    state.unsaid.is_empty() && state.ends == 0
                })
                .unwrap();
            if let Some(events) = held.unsaid.pop_front() {
                drop(held);
                wire.send(events);
                state = self.state.lock().unwrap();
                continue;
            }
            if !late.timed_out() {
                held.ends -= 1;
            }
            return;
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

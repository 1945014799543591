//! Giving up requests whose caller does not want the reply any more.
//!
//! A pending operation is never dropped: its connection is shut down, so that it ends by itself
//! (engine rule D3), and whoever waits for it finds out why.

use std::cell::{Cell, RefCell};

use shards::{Cutter, Deadline};
use smallvec::SmallVec;

/// Cutters kept before those of ended connections are cleared away.
const CUTTERS_KEPT: usize = 16;

/// Whether the requests sent for one caller are given up, and how to end them.
#[derive(Debug, Default)]
pub struct Cancel {
    is_cancelled: Cell<bool>,
    cutters: RefCell<SmallVec<[Cutter; 1]>>,
}

impl Cancel {
    /// Whether it was said that nobody wants the reply.
    pub fn is_cancelled(&self) -> bool {
        self.is_cancelled.get()
    }

    /// Says that nobody wants the reply. What runs is not ended yet: see [`Cancel::cut`].
    pub fn cancel(&self) {
        self.is_cancelled.set(true);
    }

    /// Ends the connections that wait for a reply.
    pub fn cut(&self) {
        for cutter in self.cutters.borrow_mut().drain(..) {
            cutter.cut();
        }
    }

    /// Remembers a connection as one that waits for a reply, until it goes back to its pool
    /// ([`Deadline::renew`]).
    pub fn watch(&self, deadline: &Deadline) {
        let mut cutters = self.cutters.borrow_mut();
        if cutters.len() >= CUTTERS_KEPT {
            cutters.retain(|cutter| cutter.is_live());
        }
        cutters.push(deadline.cutter());
    }
}

//! Wake-ups after one and the same time, for the many that wait for nothing: a place in a queue
//! each, not a runtime timer.
//!
//! All alarms of one queue ring the same time after they were set, so the queue is in order by
//! itself. Whoever owns the queue has to look at it now and then ([`Alarms::ring`]).

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::{Rc, Weak},
    time::Duration,
};

use crate::{clock::coarse_ms, notify::Notify};

/// Alarms that ring after the same time.
#[derive(Debug)]
pub struct Alarms {
    after_ms: u64,
    /// When it rings, which setting of the alarm that is, and the alarm.
    queue: RefCell<VecDeque<(u64, u32, Weak<Alarm>)>>,
}

/// One waiter's alarm.
#[derive(Debug, Default)]
pub struct Alarm {
    setting: Cell<u32>,
    rings: Notify,
}

impl Alarms {
    /// An empty queue of alarms that ring after this time.
    pub fn new(after: Duration) -> Self {
        Self {
            after_ms: u64::try_from(after.as_millis()).unwrap_or(u64::MAX),
            queue: RefCell::default(),
        }
    }

    /// Sets the alarm, again if it was set.
    pub fn set(&self, alarm: &Rc<Alarm>) {
        let setting = alarm.setting.get().wrapping_add(1);
        alarm.setting.set(setting);
        let at_ms = coarse_ms().saturating_add(self.after_ms);
        let entry = (at_ms, setting, Rc::downgrade(alarm));
        self.queue.borrow_mut().push_back(entry);
    }

    /// Rings the alarms whose time has come at `now_ms`.
    pub fn ring(&self, now_ms: u64) {
        let mut queue = self.queue.borrow_mut();
        while let Some((at_ms, ..)) = queue.front()
            && *at_ms <= now_ms
        {
            let Some((_, setting, alarm)) = queue.pop_front() else {
                break;
            };
            if let Some(alarm) = alarm.upgrade()
                && alarm.setting.get() == setting
            {
                alarm.rings.notify();
            }
        }
    }

    /// Alarms in the queue, those of waiters that have gone among them until their time.
    pub fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }
}

impl Alarm {
    /// Waits until it rings. Dropping the wait loses nothing.
    pub async fn rings(&self) {
        self.rings.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn only_the_last_setting_rings_and_only_for_those_who_wait() {
        let alarms = Alarms::new(Duration::from_secs(10));
        let (early, late, gone) = (Rc::default(), Rc::default(), Rc::default());
        let now = coarse_ms();
        alarms.set(&early);
        alarms.set(&gone);
        alarms.set(&late);
        drop(gone);
        alarms.ring(now + 9_000);
        assert!(early.rings().now_or_never().is_none());
        alarms.set(&late);
        alarms.queue.borrow_mut()[3].0 += 5_000;
        alarms.ring(coarse_ms() + 12_000);
        assert!(early.rings().now_or_never().is_some());
        assert!(late.rings().now_or_never().is_none(), "it was set again");
        assert_eq!(alarms.len(), 1);
        alarms.ring(coarse_ms() + 20_000);
        assert!(late.rings().now_or_never().is_some() && alarms.is_empty());
    }
}

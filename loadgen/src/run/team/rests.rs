//! What callers of a closed loop do between their calls.

use std::time::Duration;

use super::Team;
use crate::{delay::Delay, run::Rhythm};

/// A caller that thinks looks this often whether the run is over.
const REST_PIECE: Duration = Duration::from_millis(100);
/// Calls in a burst of an agent, at the least, and how many more there can be.
const BURST_MIN: u32 = 2;
const BURST_MORE: u64 = 4;
/// Mean of the thinking between bursts when nothing is said.
const AGENT_THINK: Delay = Delay::Exponential(Duration::from_secs(1));

/// Calls until a caller rests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rest {
    burst_left: u32,
}

impl Team {
    /// Callers that think do not all begin at once.
    pub(in crate::run) async fn first_rest(&self) -> Rest {
        if let Some(think) = self.think() {
            let random = &mut *self.random.borrow_mut();
            let part = think.draw(random).mul_f64(random.unit());
            self.pause(part)
        } else {
            self.pause(Duration::ZERO)
        }
        .await;
        Rest {
            burst_left: self.burst(),
        }
    }

    /// What a caller does between its calls.
    pub(in crate::run) async fn rest(&self, rest: &mut Rest) {
        let Some(think) = self.think() else { return };
        if self.common.options.rhythm == Rhythm::Agent {
            rest.burst_left = rest.burst_left.saturating_sub(1);
            if rest.burst_left > 0 {
                return;
            }
            rest.burst_left = self.burst();
        }
        let time = think.draw(&mut self.random.borrow_mut());
        self.pause(time).await;
    }

    fn burst(&self) -> u32 {
        // Below BURST_MORE.
        BURST_MIN + self.random.borrow_mut().below(BURST_MORE) as u32
    }

    fn think(&self) -> Option<Delay> {
        let options = &self.common.options;
        match (options.think.is_none(), options.rhythm) {
            (false, _) => Some(options.think),
            (true, Rhythm::Agent) => Some(AGENT_THINK),
            (true, Rhythm::Steady) => None,
        }
    }

    /// Sleeps, but not past the end of the run.
    async fn pause(&self, time: Duration) {
        let until = self.elapsed() + time;
        let until = self.end().map_or(until, |end| until.min(end));
        while !self.is_stopped.get() {
            let left = until.saturating_sub(self.elapsed());
            if left.is_zero() {
                return;
            }
            shards::sleep(left.min(REST_PIECE)).await;
        }
    }
}

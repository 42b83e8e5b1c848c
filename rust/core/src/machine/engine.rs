//! The trait of engines' own schedulers: queue, admission and steps.

use super::{Replica, Slot};
use crate::store::contract::BlockStore;
use crate::store::Answer;

/// A replica as an engine's own scheduler uses it. The replica keeps the requests' times, rows and load; it schedules
/// nothing.
pub struct Desk<'a, S> {
    /// The replica.
    pub replica: &'a mut Replica,
    /// The blocks that the engine's rules manage.
    pub store: &'a mut S,
    /// The current time; running several steps in one call advances it.
    pub now_ns: u64,
}

/// Decides on admission and on the content of each step, by one engine's rules.
pub trait EngineScheduler {
    /// The blocks that the engine's rules manage.
    type Store: BlockStore;

    /// Queues a request that has been looked up.
    fn enqueue(&mut self, desk: &mut Desk<'_, Self::Store>, slot: Slot) -> Answer<()>;

    /// Aborts a request: a waiting request leaves at once, a running request at the end of its step.
    fn abort(&mut self, desk: &mut Desk<'_, Self::Store>, slot: Slot) -> Answer<()>;

    /// Ends the step in flight, if there is one, admits requests, and starts the next step.
    fn at_boundary(&mut self, desk: &mut Desk<'_, Self::Store>) -> Answer<()>;

    /// Runs the next boundary, and then the boundaries before `until_ns`.
    fn run(&mut self, desk: &mut Desk<'_, Self::Store>, until_ns: u64) -> Answer<()> {
        let mut is_first = true;
        while let Some(now_ns) = self.boundary_ns() {
            if !std::mem::take(&mut is_first) && now_ns >= until_ns {
                break;
            }
            desk.now_ns = now_ns;
            self.at_boundary(desk)?;
            desk.replica.plugins.event_passed()?;
        }
        Ok(())
    }

    /// Runs the steps that began before a time, so that the store has its state at that time.
    fn catch_up(&mut self, desk: &mut Desk<'_, Self::Store>, before_ns: u64) -> Answer<()>;

    /// Time of the next boundary; `None` if there is no work.
    fn boundary_ns(&self) -> Option<u64>;

    /// Requests that wait for capacity.
    fn queued(&self) -> usize;

    /// Requests that run.
    fn running(&self) -> usize;
}

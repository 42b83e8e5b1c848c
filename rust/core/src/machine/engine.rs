//! A scheduler of an engine's own, behind one trait: its queue, its admission and its steps.

use super::{Replica, Slot};
use crate::store::contract::BlockStore;
use crate::store::Answer;

/// A replica as an engine's own scheduler uses it: it keeps the requests' times, rows and load; nothing of it is
/// scheduled there.
pub struct Desk<'a, S> {
    /// The replica.
    pub replica: &'a mut Replica,
    /// The blocks that the engine's rules are about.
    pub store: &'a mut S,
    /// The time; what runs ahead moves it on.
    pub now_ns: u64,
}

/// Decides who waits, who is admitted and what each step computes, by one engine's rules.
pub trait EngineScheduler {
    /// The blocks that the engine's rules are about.
    type Store: BlockStore;

    /// Queues a request that has been looked up.
    fn enqueue(&mut self, desk: &mut Desk<'_, Self::Store>, slot: Slot) -> Answer<()>;

    /// Lets a request go that its client has given up: what waits at once, what runs at the end of its step.
    fn abort(&mut self, desk: &mut Desk<'_, Self::Store>, slot: Slot) -> Answer<()>;

    /// Ends the step in flight, if any, admits, and starts the next step.
    fn at_boundary(&mut self, desk: &mut Desk<'_, Self::Store>) -> Answer<()>;

    /// Passes the next boundary, and then those before `until_ns`.
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

    /// Runs the steps that began before a time, so that the store is as it is then.
    fn catch_up(&mut self, desk: &mut Desk<'_, Self::Store>, before_ns: u64) -> Answer<()>;

    /// When the next boundary is due; `None` while there is nothing to do.
    fn boundary_ns(&self) -> Option<u64>;

    /// Requests that wait for room.
    fn queued(&self) -> usize;

    /// Requests that run.
    fn running(&self) -> usize;
}

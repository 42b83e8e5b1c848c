//! The trait of engines' own schedulers: queue, admission and steps.

use super::messages::Incoming;
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

    /// Takes a request whose prompt another machine has computed; an engine that decodes none is given none.
    fn receive(&mut self, _: &mut Desk<'_, Self::Store>, _: Incoming) -> Answer<()> {
        Ok(())
    }

    /// Notes that another machine has read a prompt that was computed here, or needs it no more.
    fn prompt_read(&mut self, _: &mut Desk<'_, Self::Store>, _: Slot) -> Answer<()> {
        Ok(())
    }

    /// Aborts a request: a waiting request leaves at once, a running request at the end of its step.
    fn abort(&mut self, desk: &mut Desk<'_, Self::Store>, slot: Slot) -> Answer<()>;

    /// Ends the step in flight, if there is one, admits requests, and starts the next step.
    fn at_boundary(&mut self, desk: &mut Desk<'_, Self::Store>) -> Answer<()>;

    /// Time of the next end of a copy that is an event of its own, between boundaries; by default there is none.
    fn copy_ns(&self, _replica: &Replica) -> Option<u64> {
        None
    }

    /// Handles the end of a copy, between boundaries.
    fn copy_ended(&mut self, _desk: &mut Desk<'_, Self::Store>) -> Answer<()> {
        Ok(())
    }

    /// Runs the next event, and then the events before `until_ns`; ends of copies come before a boundary.
    fn run(&mut self, desk: &mut Desk<'_, Self::Store>, until_ns: u64) -> Answer<()> {
        let mut is_first = true;
        while let Some(now_ns) = self.next_ns(desk.replica) {
            if !std::mem::take(&mut is_first) && now_ns >= until_ns {
                break;
            }
            desk.now_ns = now_ns;
            if self.copy_ns(desk.replica) == Some(now_ns) {
                self.copy_ended(desk)?;
            } else {
                self.at_boundary(desk)?;
            }
            desk.replica.plugins.event_passed()?;
        }
        Ok(())
    }

    /// Time of the next boundary or end of a copy; `None` if there is no work.
    fn next_ns(&self, replica: &Replica) -> Option<u64> {
        let copy_ns = self.copy_ns(replica);
        copy_ns.into_iter().chain(self.boundary_ns()).min()
    }

    /// Runs the steps that began before a time, so that the store has its state at that time.
    fn catch_up(&mut self, desk: &mut Desk<'_, Self::Store>, before_ns: u64) -> Answer<()>;

    /// Time of the next boundary; `None` if there is no work.
    fn boundary_ns(&self) -> Option<u64>;

    /// Requests that wait for capacity.
    fn queued(&self) -> usize;

    /// Waiting requests that wait for KV of a lower tier.
    fn loading(&self) -> usize {
        0
    }

    /// Requests that run.
    fn running(&self) -> usize;
}

//! The running requests, in the order in which they joined, and the end of their step.

use super::Slot;

/// The running requests of a machine, alongside their batch.
#[derive(Debug, Default)]
pub(super) struct RunningSet {
    /// Requests in the batch, in the order in which they joined.
    pub slots: Vec<Slot>,
    /// Requests that have finished and still hold their slots and blocks (asynchronous scheduling).
    pub leaving: Vec<Slot>,
    /// True if a step runs.
    pub stepping: bool,
    /// Time of the next boundary.
    pub boundary_ns: Option<u64>,
    pub joined: u64,
}

impl RunningSet {
    /// Adds a request at the end; returns its number among all requests that have joined.
    pub fn join(&mut self, slot: Slot) -> u64 {
        self.slots.push(slot);
        self.joined += 1;
        self.joined
    }

    /// Removes a request.
    pub fn remove(&mut self, slot: Slot) {
        self.slots.retain(|&running| running != slot);
    }

    /// True if a request runs.
    pub fn contains(&self, slot: Slot) -> bool {
        self.slots.contains(&slot)
    }
}

//! The requests of the step: who runs, in which order they joined, and when the step ends.

use super::Slot;

/// The running requests of a machine, beside their batch.
#[derive(Debug, Default)]
pub(super) struct RunningSet {
    /// Requests in the batch, in the order in which they joined.
    pub slots: Vec<Slot>,
    /// Requests that have ended and still hold their places and blocks (asynchronous scheduling).
    pub leaving: Vec<Slot>,
    /// Whether a step runs.
    pub stepping: bool,
    /// When the next boundary is due.
    pub boundary_ns: Option<u64>,
    joined: u64,
}

impl RunningSet {
    /// Lets a request join last; returns its number among all that have joined.
    pub fn join(&mut self, slot: Slot) -> u64 {
        self.slots.push(slot);
        self.joined += 1;
        self.joined
    }

    /// Takes a request out.
    pub fn remove(&mut self, slot: Slot) {
        self.slots.retain(|&running| running != slot);
    }

    /// Whether a request runs.
    pub fn contains(&self, slot: Slot) -> bool {
        self.slots.contains(&slot)
    }
}

//! Tiers that vLLM's scheduler reaches through a connector (`OffloadingConnectorScheduler`): it decides copies with a
//! step, and learns of their end when a step has ended.

use super::{Answer, LeaseId, MoveId, Order};

/// Copies of a decided step.
#[derive(Debug, Clone, Default)]
pub struct StepCopies {
    /// Stores of blocks that the step computes; they are sent when the next step begins.
    pub stores: Vec<Order>,
    /// Loads, which are sent when the step begins.
    pub loads: Vec<Order>,
    /// Stores that must have ended before the step begins: their blocks are given to other requests.
    pub flushed: Vec<MoveId>,
    /// Loads that are part of the step: it computes once they have arrived.
    pub first: Vec<Order>,
}

impl StepCopies {
    /// Returns true if the step begins without a copy, and leaves none.
    pub fn is_empty(&self) -> bool {
        self.stores.is_empty()
            && self.loads.is_empty()
            && self.flushed.is_empty()
            && self.first.is_empty()
    }
}

/// Result of a look-up in the tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookUp {
    /// They add nothing to the pool's hit.
    Nothing,
    /// They have the blocks up to this one.
    Found(u32),
    /// Blocks are in transfer.
    Later,
}

/// A request's part of a step.
#[derive(Debug, Clone, Copy)]
pub struct Scheduled {
    /// Lease of its blocks.
    pub lease: LeaseId,
    /// Its tokens that have KV when the step has ended.
    pub computed_tokens: u64,
    /// Its tokens in the step.
    pub tokens: u64,
    /// Its prompt and the tokens of its answer that the scheduler has.
    pub known_tokens: u64,
    /// Its known tokens that have KV when the steps before have ended.
    pub confirmed_tokens: u64,
}

/// A request that ends, before its blocks are released.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// The request.
    pub request: u32,
    /// True if it was scheduled since its last admission.
    pub runs: bool,
    /// Tokens of its prompt that may be stored.
    pub prompt_tokens: u64,
    /// Its tokens that have KV; steps in flight compute further ones.
    pub processed_tokens: u64,
    /// Its known tokens that have KV when the steps in flight have ended.
    pub confirmed_tokens: u64,
}

/// The connector of a scheduler.
pub trait Connector {
    /// Decides the copies of a step, whose parts are in the order in which they were scheduled, and the last ones of
    /// requests that have ended since the last step.
    fn step_decided(&mut self, parts: &[Scheduled], now_ns: u64) -> Answer<StepCopies>;

    /// Returns copies that are part of the oldest step decided, which has been computed: it ends when they have arrived.
    fn step_computed(&mut self, _now_ns: u64) -> Answer<Vec<Order>> {
        Ok(Vec::new())
    }

    /// Returns true if its copies are parts of steps, so that they take nothing else from the steps.
    fn waits_for_copies(&self) -> bool {
        false
    }

    /// Applies the copies that have ended. Returns the requests whose load has ended.
    fn copies_ended(&mut self) -> Answer<Vec<u32>>;

    /// Releases the blocks of a lease, and nothing else.
    fn release_blocks(&mut self, lease: LeaseId) -> Answer<()>;

    /// Releases blocks likewise, after the steps that were in flight when their request ended.
    fn release_late(&mut self, lease: LeaseId) -> Answer<()> {
        self.release_blocks(lease)
    }

    /// Lets the next step wait for the copies of a request that was preempted.
    fn preempted(&mut self, request: u32);

    /// Handles the end of a request.
    fn ended(&mut self, ending: Ending);
}

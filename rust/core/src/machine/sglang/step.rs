//! The tokens and the requests of a step.

use super::super::Slot;
use crate::step_time::StepShape;
use crate::transfers::TransferId;

/// A step that has been decided.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// Its requests in order, each with true if it decodes.
    pub members: Vec<(Slot, bool)>,
    /// True if it computes prompts; the requests of such a step join the running requests when it has been launched.
    pub computes_prompts: bool,
    /// The request whose prompt continues after it.
    pub chunked: Option<Slot>,
    pub shape: StepShape,
    /// The copy that brings KV of its prompts, layer by layer.
    pub load: Option<TransferId>,
    /// Time by which it ends later than it would without the copy.
    pub stall_ns: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
}

impl Step {
    pub fn add(&mut self, slot: Slot, decodes: bool) {
        self.members.push((slot, decodes));
    }
}

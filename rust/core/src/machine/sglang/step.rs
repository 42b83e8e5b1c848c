//! What a step computes, and for whom.

use super::super::Slot;
use crate::step_time::StepShape;

/// A step that has been decided.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// Who is in it, in order, and whether it is there to decode.
    pub members: Vec<(Slot, bool)>,
    /// Whether it computes prompts; such a step's requests join the running ones when it has been launched.
    pub computes_prompts: bool,
    /// Whose prompt goes on after it.
    pub chunked: Option<Slot>,
    pub shape: StepShape,
    pub begin_ns: u64,
    pub end_ns: u64,
}

impl Step {
    pub fn add(&mut self, slot: Slot, decodes: bool) {
        self.members.push((slot, decodes));
    }
}

//! Launches that overlap the previous step (vLLM 0.25, `EngineCore.step_with_batch_queue` over one worker in the same
//! process). The host launches a step as soon as it has the tokens of the step before the last. It reads the last
//! step's tokens when that step is done, and the GPU computes the launched steps in order.

use super::super::Replica;
use super::step::Step;
use crate::step_time::StepShape;

/// Times of the step in flight: the end of its computation and of its output, while another step is decided in
/// advance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Time at which the GPU has computed the step that is decided in advance.
    pub computed_ns: u64,
    /// Time at which the host has the tokens of the step in flight.
    pub seen_ns: u64,
}

impl Pace {
    /// The pace of a step of the given shape that is launched from `now_ns` on, after a step that is computed at
    /// `before_ns`.
    pub fn behind(before_ns: u64, now_ns: u64, shape: &StepShape, desk: &Replica) -> Self {
        let launched_ns = now_ns.saturating_add(desk.batch.launch_ns(shape));
        let computed_ns = before_ns.saturating_add(desk.batch.kernels_ns(shape));
        Self {
            computed_ns: computed_ns.max(launched_ns + desk.batch.tail_ns(shape)),
            seen_ns: before_ns.max(launched_ns),
        }
    }
}

impl Step {
    /// Records that it begins on an idle GPU; returns the time of its launch.
    pub fn begins(&mut self, now_ns: u64, desk: &Replica) -> u64 {
        self.begin_ns = now_ns;
        self.end_ns = now_ns.saturating_add(desk.batch.duration_ns(&self.shape));
        self.computed_ns = self.end_ns;
        now_ns.saturating_add(desk.batch.launch_ns(&self.shape))
    }

    /// Records that `next_step` is launched from `now_ns` on, after this step.
    pub fn followed_by(&mut self, next_step: &mut Step, now_ns: u64, desk: &Replica) {
        let pace = Pace::behind(self.computed_ns, now_ns, &next_step.shape, desk);
        self.end_ns = pace.seen_ns;
        next_step.begin_ns = pace.seen_ns;
        next_step.computed_ns = pace.computed_ns;
        next_step.end_ns = pace.computed_ns;
    }
}

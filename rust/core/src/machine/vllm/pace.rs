//! Launches that overlap the step before (vLLM 0.25, `EngineCore.step_with_batch_queue` over one worker in the same
//! process): the host launches a step as soon as it has seen the tokens of the step before the last, looks at
//! the last step's tokens when that is done, and the GPU computes what has been launched in order.

use super::super::Replica;
use super::step::Step;
use crate::step_time::StepShape;

/// When the step in flight is computed and its tokens are seen, while another is decided ahead of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// When the GPU has computed the step that is decided ahead.
    pub computed_ns: u64,
    /// When the tokens of the step in flight are seen.
    pub seen_ns: u64,
}

impl Pace {
    /// The pace of a step of some shape that is launched from `now_ns` on, behind one that is computed at
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
    /// Notes that it begins on an idle GPU; returns when it is launched.
    pub fn begins(&mut self, now_ns: u64, desk: &Replica) -> u64 {
        self.begin_ns = now_ns;
        self.end_ns = now_ns.saturating_add(desk.batch.duration_ns(&self.shape));
        self.computed_ns = self.end_ns;
        now_ns.saturating_add(desk.batch.launch_ns(&self.shape))
    }

    /// Notes that `next_step` is launched from `now_ns` on, behind this step.
    pub fn followed_by(&mut self, next_step: &mut Step, now_ns: u64, desk: &Replica) {
        let pace = Pace::behind(self.computed_ns, now_ns, &next_step.shape, desk);
        self.end_ns = pace.seen_ns;
        next_step.begin_ns = pace.seen_ns;
        next_step.computed_ns = pace.computed_ns;
        next_step.end_ns = pace.computed_ns;
    }
}

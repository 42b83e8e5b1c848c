//! Cost of the composed step, and durations of steps.

use super::Batch;
use crate::step_time::{RankStep, StepShape};

impl Batch {
    /// The duration of the step as composed, without stalls.
    pub fn step_ns(&self) -> u64 {
        self.duration_ns(&self.shape()) + self.draft_ns()
    }

    /// The step as composed, as one rank's part of an engine's step.
    pub fn rank_step(&self) -> RankStep {
        let (shape, drafts_ns) = (self.shape(), self.draft_ns());
        RankStep {
            kernels_ns: self.kernels_ns(&shape) + drafts_ns,
            step_ns: self.duration_ns(&shape) + drafts_ns,
            tokens: shape.new_tokens + shape.decode_sequences,
        }
    }

    fn draft_ns(&self) -> u64 {
        let drafted = self.others.iter().any(|s| s.drafts() > 0);
        let rules = self.config.speculation.as_ref().filter(|_| drafted);
        rules.map_or(0, |rules| rules.draft_ns)
    }

    /// Duration of a step of the given shape: the time of its kernels or of their launch, whichever is longer.
    pub fn duration_ns(&self, shape: &StepShape) -> u64 {
        self.mixed(self.table.step_ns(shape))
    }

    /// Time of the kernels of a step of the given shape, if their launch is counted separately.
    pub fn kernels_ns(&self, shape: &StepShape) -> u64 {
        self.mixed(self.table.kernels_ns(shape))
    }

    /// Host time to launch a step of the given shape.
    pub fn launch_ns(&self, shape: &StepShape) -> u64 {
        self.table.launch_of(shape)
    }

    /// Time from the launch of a step of the given shape to its end, if the GPU was idle until the launch.
    pub fn tail_ns(&self, shape: &StepShape) -> u64 {
        self.table.tail_of(shape)
    }

    /// A step time with the overhead added, and at least the configured minimum.
    fn mixed(&self, ns: u64) -> u64 {
        let whole = ns.saturating_add(self.config.step_overhead_ns);
        whole.max(self.config.least_step_ns)
    }

    pub(super) fn shape(&self) -> StepShape {
        let mut shape = self.steady.shape();
        for sequence in self.others.iter().filter(|s| s.chunk > 0) {
            if sequence.prefilling() {
                shape.add_chunk(sequence.chunk, sequence.computed, &self.table);
            } else {
                // The KV is read once for all the tokens that are verified.
                shape.decode_sequences += sequence.chunk;
                shape.decode_kv_tokens += sequence.computed;
                shape.decode_max_kv_tokens = shape.decode_max_kv_tokens.max(sequence.computed);
            }
        }
        shape
    }
}

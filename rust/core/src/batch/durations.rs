//! What the composed step costs, and how long steps take.

use super::Batch;
use crate::step_time::StepShape;

impl Batch {
    /// The duration of the step as composed, without stalls.
    pub fn step_ns(&self) -> u64 {
        self.duration_ns(&self.shape()) + self.draft_ns()
    }

    fn draft_ns(&self) -> u64 {
        let drafted = self.others.iter().any(|s| s.drafts() > 0);
        let rules = self.config.speculation.as_ref().filter(|_| drafted);
        rules.map_or(0, |rules| rules.draft_ns)
    }

    /// How long a step of some shape takes by itself: its kernels, or their launch where that is longer.
    pub fn duration_ns(&self, shape: &StepShape) -> u64 {
        self.mixed(self.table.step_ns(shape))
    }

    /// How long the kernels of a step of some shape take, where launching them is counted apart.
    pub fn kernels_ns(&self, shape: &StepShape) -> u64 {
        self.mixed(self.table.kernels_ns(shape))
    }

    /// The host's time to launch a step of some shape.
    pub fn launch_ns(&self, shape: &StepShape) -> u64 {
        self.table.launch_of(shape)
    }

    /// When a step of some shape ends after its launch, where the GPU has waited for that.
    pub fn tail_ns(&self, shape: &StepShape) -> u64 {
        self.table.tail_of(shape)
    }

    /// A time with what a step costs beside it, or a step's least time.
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
                // The KV is read once for all the tokens that are checked.
                shape.decode_sequences += sequence.chunk;
                shape.decode_kv_tokens += sequence.computed;
                shape.decode_max_kv_tokens = shape.decode_max_kv_tokens.max(sequence.computed);
            }
        }
        shape
    }
}

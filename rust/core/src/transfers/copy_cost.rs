//! Cost of GPU copies for the steps: the CPU submits the copies, and some take a share of the GPU.

use super::job::{ChannelConfig, Job};
use crate::convert::whole;

/// Cost rates of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CopyRates {
    /// CPU time to submit a piece.
    pub submit_ns: u64,
    /// Share of the GPU that a copy takes while it occupies its link.
    pub gpu_share: f64,
}

/// Time that the copies of one machine take from its steps.
///
/// The engine's thread launches no step while it submits. A copy made by a kernel takes a share of the GPU
/// for as long as it occupies the link. The step that starts next pays for it, unless the copy finished while
/// no step ran.
///
/// ```
/// use kvsim_core::transfers::{ChannelConfig, CopyCost, CopyRates, Job};
///
/// let mut cost = CopyCost::new(CopyRates { submit_ns: 2, gpu_share: 0.5 });
/// let link = ChannelConfig { bandwidth_bytes_per_s: 1_000_000_000, ..Default::default() };
/// cost.step_started(100);
/// cost.sent(&link, &Job { size_bytes: 40, pieces: 10, layers: 4, coding_ns: 0 }, 90); // submitted until 110, 20 ns of the GPU
/// assert_eq!(cost.take(100), 30);
/// assert_eq!(cost.take(105), 5);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CopyCost {
    rates: CopyRates,
    /// End of the CPU's submissions.
    submits_until_ns: u64,
    /// GPU time owed in any case, and GPU time owed unless no step runs until a given time.
    owed_ns: u64,
    idle_owed_ns: u64,
    idle_until_ns: u64,
    step_end_ns: u64,
}

impl CopyCost {
    /// Creates an account without debt.
    pub fn new(rates: CopyRates) -> Self {
        Self {
            rates,
            ..Self::default()
        }
    }

    /// Records a copy that starts on its link now.
    pub fn sent(&mut self, link: &ChannelConfig, job: &Job, now_ns: u64) {
        let submit_ns = job.pieces.saturating_mul(self.rates.submit_ns);
        self.submits_until_ns = self.submits_until_ns.max(now_ns).saturating_add(submit_ns);
        if self.rates.gpu_share == 0.0 {
            return;
        }
        let on_link_ns = job.layers.saturating_mul(link.layer_ns(job));
        let cost_ns = whole((self.rates.gpu_share * on_link_ns as f64).round_ties_even());
        if now_ns < self.step_end_ns {
            self.owed_ns = self.owed_ns.saturating_add(cost_ns);
        } else {
            self.idle_owed_ns = self.idle_owed_ns.saturating_add(cost_ns);
            self.idle_until_ns = self.idle_until_ns.max(now_ns).saturating_add(on_link_ns);
        }
    }

    /// Returns how much longer a step takes that starts now; the GPU's part is paid by this step.
    pub fn take(&mut self, begin_ns: u64) -> u64 {
        let mut owed_ns = std::mem::take(&mut self.owed_ns);
        let idle_owed_ns = std::mem::take(&mut self.idle_owed_ns);
        if begin_ns < self.idle_until_ns {
            owed_ns += idle_owed_ns;
        }
        self.submits_until_ns.saturating_sub(begin_ns) + owed_ns
    }

    /// Records the end of the step that has just started.
    pub fn step_started(&mut self, end_ns: u64) {
        self.step_end_ns = end_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two layers of 50 ns each on the link, half of which a step pays, and 3 ns to submit a piece.
    fn sent(step_end_ns: u64, now_ns: u64) -> CopyCost {
        let mut cost = CopyCost::new(CopyRates {
            submit_ns: 3,
            gpu_share: 0.5,
        });
        let link = ChannelConfig {
            bandwidth_bytes_per_s: 1_000_000_000,
            ..ChannelConfig::default()
        };
        let job = Job {
            size_bytes: 100,
            pieces: 4,
            layers: 2,
            coding_ns: 0,
        };
        cost.step_started(step_end_ns);
        cost.sent(&link, &job, now_ns);
        cost
    }

    #[test]
    fn a_copy_during_a_step_is_paid_by_the_next_one_and_a_copy_between_steps_by_one_that_overlaps_it(
    ) {
        assert_eq!(sent(20, 19).take(20), 11 + 50);
        assert_eq!(sent(20, 19).take(500), 50);
        assert_eq!(sent(20, 20).take(119), 50);
        assert_eq!(sent(20, 20).take(120), 0);
        assert_eq!(sent(20, 20).take(32), 50);
        assert_eq!(sent(20, 20).take(31), 1 + 50);
    }
}

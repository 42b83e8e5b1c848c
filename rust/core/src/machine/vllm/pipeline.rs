//! Pipeline stages: as many batches in flight as there are stages, and the times at which batches leave the last
//! stage.
//!
//! The queue of batches is filled first. If the scheduler finds nothing to compute, it tries again when the oldest
//! batch ends; a request that arrives in between is also tried then. Source: `EngineCore.step_with_batch_queue` of
//! `vllm/v1/engine/core.py` (0.33.0), where the results of batches come in order.

use std::collections::VecDeque;

use super::super::engine::Desk;
use super::blocks::Blocks;
use super::step::Step;
use super::VllmScheduler;
use crate::convert::fit;
use crate::store::Answer;

/// Equal stages, one step in each at a time, and the steps in flight.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// By stage, the time at which its last step leaves it.
    free_ns: Vec<u64>,
    /// Steps in flight, the oldest first.
    in_flight: VecDeque<Step>,
}

impl Pipeline {
    /// A pipeline of idle stages.
    pub fn new(stages: usize) -> Self {
        Self {
            free_ns: vec![0; stages],
            in_flight: VecDeque::with_capacity(stages),
        }
    }

    /// Sends a step through that alone takes `duration_ns`: it begins when the first stage is free.
    ///
    /// Each stage takes an equal share of the step; the remainder goes to the later stages.
    fn send(&mut self, mut step: Step, now_ns: u64, duration_ns: u64) {
        let stages = self.free_ns.len() as u128;
        let share_end_ns = |stage: u128| fit::<u64>(u128::from(duration_ns) * stage / stages);
        step.begin_ns = now_ns.max(self.free_ns[0]);
        let mut at_ns = step.begin_ns;
        for (stage, free_ns) in (0..).zip(&mut self.free_ns) {
            let share_ns = share_end_ns(stage + 1) - share_end_ns(stage);
            at_ns = at_ns.max(*free_ns).saturating_add(share_ns);
            *free_ns = at_ns;
        }
        step.end_ns = at_ns;
        self.in_flight.push_back(step);
    }

    fn is_full(&self) -> bool {
        self.in_flight.len() == self.free_ns.len()
    }
}

impl<B: Blocks> VllmScheduler<B> {
    /// Ends the oldest batch, and fills the pipeline with others.
    pub(super) fn pipelined_boundary(
        &mut self,
        desk: &mut Desk<'_, B>,
        mut pipeline: Pipeline,
    ) -> Answer<Pipeline> {
        if let Some(step) = pipeline.in_flight.pop_front() {
            desk.replica
                .step_of_engine(&step.shape, step.begin_ns, step.end_ns);
            self.step_ended(desk, &step)?;
            desk.replica.publish(self.running.len(), desk.store)?;
        }
        self.release_aborted(desk)?;
        while !pipeline.is_full() {
            let Some(mut step) = self.next_step(desk)? else {
                break;
            };
            step.begin_ns = desk.now_ns;
            self.log_step(&step);
            if step.is_empty() {
                break;
            }
            let duration_ns = desk.replica.batch.duration_ns(&step.shape);
            pipeline.send(step, desk.now_ns, duration_ns);
        }
        self.boundary_ns = pipeline.in_flight.front().map(|step| step.end_ns);
        Ok(pipeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_waits_in_each_stage_for_the_one_before() {
        let mut pipeline = Pipeline::new(2);
        for (now_ns, duration_ns) in [(10, 7), (10, 5), (20, 2)] {
            pipeline.send(Step::default(), now_ns, duration_ns);
        }
        let steps = pipeline.in_flight.iter();
        let times: Vec<_> = steps.map(|step| (step.begin_ns, step.end_ns)).collect();
        // The first step takes 3 and 4, the second 2 and 3: it is through the first stage before the second is free.
        assert_eq!(times, [(10, 17), (13, 20), (20, 22)]);
    }
}

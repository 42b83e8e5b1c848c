//! Pipeline stages: the batches in flight, and the times at which they leave the last stage.
//!
//! The queue of batches is filled first. A decision that finds nothing to compute is queued, too; up to 0.22 the engine
//! then waits for the oldest batch, later it fills the queue. A request that arrives in between is tried after that.
//! Source: `EngineCore.step_with_batch_queue` of `vllm/v1/engine/core.py` (0.14 to 0.33), where the results
//! of batches come in order.
//!
//! A stage's worker launches a batch when the worker before it has launched and sent its part (`execute_model` of
//! `vllm/v1/worker/gpu_worker.py`), and its GPU computes it when the stage before has.

use std::collections::VecDeque;

use super::super::engine::Desk;
use super::super::Slot;
use super::blocks::Blocks;
use super::settings::{PipelineConfig, StageSteps};
use super::step::Step;
use super::VllmScheduler;
use crate::step_time::StageTimes;
use crate::store::Answer;

/// Times until which a stage is busy.
#[derive(Clone, Copy, Debug, Default)]
struct Stage {
    /// Its GPU, with its last step.
    gpu_ns: u64,
    /// Its worker.
    host_ns: u64,
}

/// The stages, one step on the GPU of each at a time, and the steps in flight.
#[derive(Debug)]
pub(super) struct Pipeline {
    config: PipelineConfig,
    stages: Vec<Stage>,
    /// Time until which the engine handles batches.
    engine_ns: u64,
    /// Ends of the last steps, at most one a stage, the oldest first; 0 of an empty one, kept where steps are spaced.
    ends_ns: VecDeque<u64>,
    /// Steps in flight, the oldest first; empty ones behind others.
    in_flight: VecDeque<Step>,
}

impl Pipeline {
    /// A pipeline of idle stages.
    pub fn new(config: PipelineConfig) -> Self {
        Self {
            config,
            stages: vec![Stage::default(); config.stages],
            engine_ns: 0,
            ends_ns: VecDeque::with_capacity(config.stages),
            in_flight: VecDeque::with_capacity(config.depth()),
        }
    }

    /// Sends a step through that alone takes `duration_ns`: it begins when its first stage is launched and free.
    fn send(&mut self, mut step: Step, now_ns: u64, duration_ns: u64, times: &StageTimes) {
        let tokens = step.shape.tokens();
        let ends_ns = times.share_ends_ns(self.stages.len(), tokens, duration_ns);
        let hop_ns = times.hop_of(tokens);
        let sequences = step.scheduled.len() as u64;
        self.engine_ns = self.engine_ns.max(now_ns) + self.config.engine_ns;
        self.engine_ns += self.config.sequence_ns * sequences;
        let (mut handed_ns, mut at_ns) = (self.engine_ns, self.tokens_ns());
        let mut before_ns = 0;
        for (number, (stage, &end_ns)) in self.stages.iter_mut().zip(&ends_ns).enumerate() {
            stage.host_ns = stage.host_ns.max(handed_ns) + self.config.launch_ns;
            handed_ns = stage.host_ns;
            at_ns = at_ns.max(stage.gpu_ns).max(handed_ns);
            if number == 0 {
                step.begin_ns = at_ns;
            }
            stage.gpu_ns = at_ns.saturating_add(end_ns - before_ns);
            before_ns = end_ns;
            at_ns = stage.gpu_ns.saturating_add(hop_ns);
        }
        if let Some(last) = self.stages.last_mut() {
            step.end_ns = last.gpu_ns;
            if !self.config.is_async {
                // its worker waits for the tokens
                last.host_ns = last.gpu_ns;
            }
        }
        self.decided(step);
    }

    /// Time at which the first stage has the tokens that its next step needs from the last stage.
    fn tokens_ns(&self) -> u64 {
        let needed = match self.config.steps {
            StageSteps::Returned => None,
            StageSteps::Chained => self.ends_ns.back(),
            StageSteps::Spaced if self.ends_ns.len() < self.config.stages => None,
            StageSteps::Spaced => self.ends_ns.front(),
        };
        needed.copied().unwrap_or(0)
    }

    fn decided(&mut self, step: Step) {
        if self.ends_ns.len() == self.config.stages {
            self.ends_ns.pop_front();
        }
        self.ends_ns.push_back(step.end_ns);
        self.in_flight.push_back(step);
    }

    /// Queues a step that computes nothing, if it is not the first: it ends at once.
    fn idles(&mut self, step: Step) {
        if self.config.steps == StageSteps::Spaced {
            self.decided(step);
        } else {
            self.in_flight.push_back(step);
        }
        self.drop_empty();
    }

    /// Removes empty steps from the front of the queue.
    fn drop_empty(&mut self) {
        while self.in_flight.front().is_some_and(Step::is_empty) {
            self.in_flight.pop_front();
        }
    }

    fn is_full(&self) -> bool {
        self.in_flight.len() == self.config.depth()
    }
}

impl<B: Blocks> VllmScheduler<B> {
    /// Ends the oldest batch, and fills the pipeline with others.
    pub(super) fn pipelined_boundary(
        &mut self,
        desk: &mut Desk<'_, B>,
        mut pipeline: Pipeline,
    ) -> Answer<Pipeline> {
        self.release_aborted(desk)?;
        if let Some(step) = pipeline.in_flight.pop_front() {
            desk.replica
                .step_of_engine(&step.shape, step.begin_ns, step.end_ns);
            self.step_ended(desk, &step)?;
            desk.replica.publish(self.running.len(), desk.store)?;
        }
        pipeline.drop_empty();
        while !pipeline.is_full() {
            let Some(mut step) = self.next_step(desk)? else {
                break;
            };
            step.begin_ns = desk.now_ns;
            self.log_step(&step);
            if step.is_empty() {
                let fills = self.decides_again(&pipeline);
                pipeline.idles(step);
                if fills {
                    continue;
                }
                break;
            }
            let table = desk.replica.batch.table();
            let duration_ns = table.step_ns(&step.shape);
            pipeline.send(step, desk.now_ns, duration_ns, &table.stages);
        }
        self.boundary_ns = pipeline.in_flight.front().map(|step| step.end_ns);
        Ok(pipeline)
    }

    /// True if another decision follows one that found nothing to compute: the engine does not wait for a batch.
    fn decides_again(&self, pipeline: &Pipeline) -> bool {
        let waits = |&slot: &Slot| self.sequences[slot].flight.eligible > self.steps.decided;
        pipeline.config.fills && (!pipeline.in_flight.is_empty() || self.running.iter().any(waits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins_and_ends(pipeline: &Pipeline) -> Vec<(u64, u64)> {
        let steps = pipeline.in_flight.iter();
        steps.map(|step| (step.begin_ns, step.end_ns)).collect()
    }

    fn two_stages(config: PipelineConfig) -> Pipeline {
        Pipeline::new(PipelineConfig {
            stages: 2,
            ..config
        })
    }

    #[test]
    fn a_step_waits_in_each_stage_for_the_one_before() {
        let mut pipeline = two_stages(PipelineConfig::default());
        for (now_ns, duration_ns) in [(10, 7), (10, 5), (20, 2)] {
            pipeline.send(Step::default(), now_ns, duration_ns, &StageTimes::default());
        }
        // The first step takes 3 and 4, the second 2 and 3: it is through the first stage before the second is free.
        assert_eq!(begins_and_ends(&pipeline), [(10, 17), (13, 20), (20, 22)]);
    }

    /// Layers 3 and 1, a head of 4 and 2 between the stages: 10 are 4 + 2 + (2 + 4). The engine takes 5 a batch, a worker 3.
    #[test]
    fn workers_launch_in_turn_and_the_last_stage_has_the_head() {
        let times = StageTimes {
            layers: vec![3, 1],
            head_ns: vec![4],
            hop_ns: vec![2],
        };
        let send = |is_async| {
            let mut pipeline = two_stages(PipelineConfig {
                launch_ns: 3,
                engine_ns: 5,
                is_async,
                ..PipelineConfig::default()
            });
            for _ in 0..2 {
                pipeline.send(Step::default(), 0, 10, &times);
            }
            begins_and_ends(&pipeline)
        };
        // launched at 8 and 11, through the first stage at 12, there at 14; the second is launched at 13 and 16
        assert_eq!(send(true), [(8, 20), (13, 26)]);
        // the last stage's worker is busy until 20 and launches until 23
        assert_eq!(send(false), [(8, 20), (13, 29)]);
    }

    #[test]
    fn the_first_stage_waits_for_the_tokens_that_it_needs() {
        let send = |steps| {
            let mut pipeline = two_stages(PipelineConfig {
                steps,
                ..PipelineConfig::default()
            });
            for duration_ns in [10, 2, 2] {
                pipeline.send(Step::default(), 0, duration_ns, &StageTimes::default());
            }
            begins_and_ends(&pipeline)
        };
        assert_eq!(send(StageSteps::Returned), [(0, 10), (5, 11), (6, 12)]);
        assert_eq!(send(StageSteps::Chained), [(0, 10), (10, 12), (12, 14)]);
        assert_eq!(send(StageSteps::Spaced), [(0, 10), (5, 11), (10, 12)]);
    }
}

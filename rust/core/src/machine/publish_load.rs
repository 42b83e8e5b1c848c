//! The load that an engine reports to routers: of its last schedule, published at the end of a step.
//!
//! vLLM counts when it has processed a step's outputs: running requests without those that finished, and waiting
//! requests as its last schedule left them. A request that arrives later is counted if the next schedule leaves it
//! (`EngineCore.step`, `Scheduler.make_stats` of vLLM 0.33.0). SGLang counts alike, but of steps that only decode at
//! every 40th alone (`metrics_reporter.py` of SGLang 0.5.23).

use super::load_report::LoadReport;
use super::Replica;
use crate::store::contract::MachineStore;
use crate::store::Answer;
use crate::tiers::GPU;

/// Steps that only decode between two reports of SGLang (`decode_log_interval`).
const DECODE_LOG_INTERVAL: u64 = 40;

impl Replica {
    /// Publishes the load from now on; steps run one by one from then on.
    pub fn publish_load(&mut self) {
        self.reports.load.get_or_insert_with(LoadReport::default);
        self.batch.run_one_by_one();
    }

    /// True if the load is published, so that every step needs a boundary of its own.
    pub(super) fn publishes_load(&self) -> bool {
        self.reports.load.is_some()
    }

    /// The load published last; zero before the first step has ended.
    pub fn load_report(&self) -> LoadReport {
        self.reports.load.unwrap_or_default()
    }

    /// Counts a step of SGLang's; returns true if SGLang reports its load after it.
    pub(super) fn logs_stats(&mut self, computes_prompts: bool) -> bool {
        let Some(load) = &mut self.reports.load else {
            return false;
        };
        load.decode_steps += u64::from(!computes_prompts);
        computes_prompts || load.decode_steps % DECODE_LOG_INTERVAL == 0
    }

    /// Notes the number of requests that a schedule has left waiting.
    pub(super) fn left_waiting(&mut self, requests: usize) {
        if let Some(load) = &mut self.reports.load {
            load.left = requests as u64;
        }
    }

    /// Publishes the load with this number of running requests.
    pub(super) fn publish<S: MachineStore + ?Sized>(
        &mut self,
        running: usize,
        store: &S,
    ) -> Answer<()> {
        if let Some(load) = &mut self.reports.load {
            let gpu = store.occupancy(GPU)?;
            load.waiting = load.left;
            load.running = running as u64;
            load.used_blocks = gpu.held + gpu.in_flight;
        }
        Ok(())
    }
}

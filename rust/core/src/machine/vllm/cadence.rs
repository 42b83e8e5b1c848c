//! Steps without prompts between steps that compute some (`prefill_schedule_interval`, of an engine without
//! data-parallel ranks that step together).

use super::running::Composition;

/// Steps since a prompt was computed, and whether requests wait all the same.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    /// Steps from one that computes a prompt to the next that may.
    interval: u64,
    /// Steps that computed something since the last one with a prompt; `None`: there was none.
    since_prefill: Option<u64>,
    /// True if requests waited still after a step that could admit: from then on every step may.
    is_saturated: bool,
}

impl Cadence {
    pub fn new(interval: u64) -> Self {
        Self {
            interval,
            ..Self::default()
        }
    }

    /// True if the next step computes no prompt, provided that a request decodes.
    pub fn holds(&self) -> bool {
        let is_early = |steps| steps + 1 < self.interval;
        !self.is_saturated && self.since_prefill.is_some_and(is_early)
    }

    /// Counts a step; `waits`: requests wait after it.
    pub fn composed(&mut self, step: &Composition, waits: bool) {
        if !step.preempted && !step.defers_prefills {
            self.is_saturated = waits;
        }
        self.count(!step.slots.is_empty(), step.has_prefill);
    }

    /// Counts a step in which all running requests decode.
    pub fn decoded(&mut self, waits: bool) {
        if !self.holds() {
            self.is_saturated = waits;
        }
        self.count(true, false);
    }

    fn count(&mut self, computes: bool, has_prefill: bool) {
        if has_prefill {
            self.since_prefill = Some(0);
        } else if let (true, Some(steps)) = (computes, &mut self.since_prefill) {
            *steps += 1;
        }
    }
}

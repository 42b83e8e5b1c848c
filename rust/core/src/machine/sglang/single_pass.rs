//! One pass over the queue from a given state, which `tests/engine_oracles/sglang_passes.py` compares with SGLang's
//! own classes.

use super::super::{Arrival, Replica, Slot};
use super::sequence::Sequence;
use super::{Desk, SglangScheduler};
use crate::store::Answer;

/// A request in the state before a pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given {
    /// The request.
    pub arrival: Arrival,
    /// Generated tokens of its answer.
    pub generated_tokens: u64,
}

/// The state before a pass, of a new scheduler and a new tree.
#[derive(Clone, Debug, Default)]
pub struct BeforePass {
    /// Requests that have finished one after another; their prompts are in the tree.
    pub ended: Vec<Given>,
    /// Requests whose prompts are computed, in this order, as long as the next one fits in the tree.
    pub running: Vec<Given>,
    /// The queue.
    pub waiting: Vec<Given>,
    /// The share of an answer that is reserved at an admission.
    pub ratio: f64,
}

/// The decisions of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// Number of requests that ran before it.
    pub running: usize,
    /// Admitted requests in order, with the first and the past-the-last token that the step computes.
    pub admitted: Vec<(u32, u64, u64)>,
    /// The queue after it.
    pub waiting: Vec<u32>,
    /// The prompt that is computed chunk by chunk.
    pub chunked: Option<u32>,
    /// True if no request is admitted before a running request leaves.
    pub is_full: bool,
}

impl SglangScheduler {
    /// Sets the state and composes one step of prompts from it.
    pub fn single_pass(&mut self, desk: &mut Desk<'_>, before: &BeforePass) -> Answer<Pass> {
        for given in &before.ended {
            self.compute_alone(desk, given)?;
            desk.store.retract(given.arrival.request);
        }
        for given in &before.running {
            if desk.store.spare_tokens() < self.whole_tokens(&given.arrival) {
                break;
            }
            let slot = self.compute_alone(desk, given)?;
            self.running.push(slot);
        }
        self.held = self.running.len() as u64;
        for given in &before.waiting {
            let slot = self.take_over(desk.replica, given);
            self.waiting.push(slot);
        }
        self.ratio.current = before.ratio;
        let running = self.running.len();
        let step = self.prefill_step(desk)?.unwrap_or_default();
        let of = |slot: Slot| self.sequences[slot].request;
        let admitted = step.members.iter().filter(|(_, decodes)| !decodes);
        let admitted = admitted.map(|&(slot, _)| {
            let s = &self.sequences[slot];
            (s.request, s.extend.prefix, s.extend.end)
        });
        Ok(Pass {
            running,
            admitted: admitted.collect(),
            waiting: self.waiting.iter().map(|&slot| of(slot)).collect(),
            chunked: self.chunked.map(of),
            is_full: self.is_full,
        })
    }

    /// Adds a request to the scheduler.
    fn take_over(&mut self, desk: &mut Replica, given: &Given) -> Slot {
        let slot = desk.arrive(given.arrival, 0);
        let mut sequence = Sequence::new(&desk.requests[slot]);
        sequence.out = given.generated_tokens;
        self.sequences.put(slot, sequence);
        slot
    }

    /// Computes a prompt in a step of its own.
    fn compute_alone(&mut self, desk: &mut Desk<'_>, given: &Given) -> Answer<Slot> {
        let slot = self.take_over(desk.replica, given);
        let s = &mut self.sequences[slot];
        let found = desk.store.find(s.request, s.prompt - 1);
        desk.store.hold(s.request, found);
        desk.store
            .evict_until_free(s.prompt - found.tokens + self.config.slack(1), 0);
        desk.store.grow(s.request, s.prompt)?;
        desk.store.check_in_tokens(s.request, s.prompt)?;
        (s.is_held, s.committed) = (true, s.prompt);
        Ok(slot)
    }

    /// Tokens of a prompt and its answer in whole pages, and two pages in addition.
    fn whole_tokens(&self, arrival: &Arrival) -> u64 {
        let page = self.config.page_size;
        let tokens = arrival.prompt_tokens + arrival.output_tokens.max(1);
        (tokens.div_ceil(page) + 2) * page
    }
}

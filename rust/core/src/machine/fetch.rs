//! Division of a found run into a loaded and a recomputed part, by the estimated times of loading and computing (the
//! rules of `spec/movement_policies.py`).

use std::sync::{Arc, PoisonError};

use super::request::MOST_TIERS;
use crate::convert::fit;
use crate::names::named_values;
use crate::step_time::{StepShape, StepTimeTable};
use crate::store::{Part, Times, GPU, NO_MOVE, STAGING};
use crate::tiers::Route;
use crate::transfers::{BlockForm, Channel, Edge, Job, SharedChannel};

/// Number of cuts that `Split` tries, evenly spread: the estimate is smooth.
const CUTS: u32 = 32;

named_values! {
    /// Policy that decides between loading and recomputing, at each admission; under it no request waits for a
    /// prefetch.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum FetchPolicy {
        /// Loads the whole run.
        #[default]
        Always = "always" | "wait",
        /// Reuses blocks that the GPU has, or is loading for another request.
        Never = "never",
        /// Loads all of the run or nothing, by the earlier estimated end of the prefill.
        Cheaper = "cheaper",
        /// Loads from the front, up to the cut with the earliest estimated end of the prefill.
        Split = "split",
        /// Loads what is ready on the GPU or one tier below it.
        BestEffort = "best-effort" | "timeout",
        /// Decision of a plug-in.
        Plugin = "plug-in",
    }
}

impl FetchPolicy {
    /// Number of leading blocks to reuse.
    pub(super) fn reuse(self, plan: &FetchPlan) -> u32 {
        let (end, ready) = (plan.end(), plan.facts.ready);
        match self {
            Self::Always | Self::Plugin => end,
            Self::Never => {
                let on_gpu = plan.parts.iter().filter(|part| part.tier == GPU);
                on_gpu.map(|part| part.end).max().unwrap_or(0)
            }
            Self::Cheaper => {
                if plan.done_ns(end) <= plan.done_ns(ready) {
                    end
                } else {
                    ready
                }
            }
            Self::Split => {
                let span = u64::from(end - ready);
                let cut = |i: u32| ready + fit::<u32>(span * u64::from(i) / u64::from(CUTS));
                let cuts = (0..=CUTS).rev().map(cut);
                cuts.min_by_key(|&blocks| plan.done_ns(blocks))
                    .unwrap_or(end)
            }
            Self::BestEffort => {
                let near = |part: &&Part| part.tier <= STAGING && part.by == NO_MOVE;
                let at_hand = plan.parts.iter().take_while(near);
                at_hand.map(|part| part.end).fold(ready, u32::max)
            }
        }
    }
}

/// State of a run that could be reused, without its parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanFacts {
    /// Number that stands for another machine in place of a tier.
    pub remote: usize,
    /// Leading blocks that are ready to be used.
    pub ready: u32,
    /// Tokens that need KV.
    pub tokens: u64,
    /// Tokens of a block.
    pub block_size_tokens: u64,
    /// Current time.
    pub now_ns: u64,
    /// Token budget of a step.
    pub budget_tokens: u64,
    /// Bytes of one block.
    pub block_bytes: u64,
    /// Layers of the model.
    pub layers: u64,
    /// True if KV is used and forwarded layer by layer.
    pub layer_pipelining: bool,
}

/// A run that could be reused. Times are ns from now and include the channels' queues.
#[derive(Clone, Debug)]
pub struct FetchPlan {
    /// State of the run, of the machine and of its configuration.
    pub facts: PlanFacts,
    /// Its parts, from the first block on.
    pub(super) parts: Vec<Part>,
    /// Machine and tier of each part on another machine, in order.
    pub(super) away: Vec<(u32, usize)>,
    /// Channel for reads from another machine.
    pub(super) wire: Option<SharedChannel>,
    /// The edges of the machine, from the GPU down.
    pub(super) edges: Vec<Edge>,
    /// By tier the form of its blocks, as of the mover.
    pub(super) forms: Vec<BlockForm>,
    /// The step-time table.
    pub(super) table: Arc<StepTimeTable>,
}

impl FetchPlan {
    /// The parts, each with (machine, tier there) if another machine has it.
    pub fn parts(&self) -> impl Iterator<Item = (&Part, Option<(u32, usize)>)> {
        let here = self.parts.len() - self.away.len();
        let away = move |n: usize| n.checked_sub(here).map(|n| self.away[n]);
        self.parts
            .iter()
            .enumerate()
            .map(move |(n, part)| (part, away(n)))
    }

    /// The block after the last one found.
    pub fn end(&self) -> u32 {
        self.parts.last().map_or(self.facts.ready, |part| part.end)
    }

    /// Estimated end of the prefill if the first `blocks` are reused.
    pub fn done_ns(&self, blocks: u32) -> u64 {
        let arrival = self.arrival_ns(blocks);
        let (first, last) = (arrival.first_layer_ns, arrival.ready_ns);
        let compute = self.compute_ns(blocks);
        if !self.facts.layer_pipelining {
            return last + compute;
        }
        let last_layer = last + compute.div_ceil(self.facts.layers);
        compute.max(first + compute).max(last_layer)
    }

    /// Estimated time to compute everything after the first `blocks`.
    pub fn compute_ns(&self, blocks: u32) -> u64 {
        let tokens = self.facts.tokens;
        let mut past = (u64::from(blocks) * self.facts.block_size_tokens).min(tokens - 1);
        let mut total = 0;
        while past < tokens {
            let chunk = (tokens - past).min(self.facts.budget_tokens);
            let mut shape = StepShape::default();
            shape.add_chunk(chunk, past, &self.table);
            total += self.table.step_ns(&shape);
            past += chunk;
        }
        total
    }

    /// Estimated arrival of the first and the last layer of the first `blocks`.
    pub fn arrival_ns(&self, blocks: u32) -> Times {
        let mut moved = [0; MOST_TIERS];
        for part in self.parts.iter().filter(|part| part.start < blocks) {
            moved[part.tier] += u64::from(part.end.min(blocks) - part.start);
        }
        moved[GPU] = 0;
        let all: u64 = moved.iter().sum();
        if all == 0 {
            return Times::default();
        }
        let mut up = self.hop(STAGING, all);
        let staged = moved[STAGING + 1..self.facts.remote].iter().sum();
        if staged > 0 {
            let below = self.staged(&moved, STAGING + 1);
            up = self.after(below, up, self.hop(STAGING, staged));
        }
        if let (1.., Some(wire)) = (moved[self.facts.remote], &self.wire) {
            let read = moved[self.facts.remote];
            let wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
            let below = self.over(&wire, Route::new(self.facts.remote, STAGING), read);
            drop(wire);
            up = self.after(below, up, self.hop(STAGING, read));
        }
        up
    }

    /// Arrival of the first and the last layer above a tier, of the blocks that `moved` counts there and further
    /// down.
    fn staged(&self, moved: &[u64; MOST_TIERS], level: usize) -> Times {
        let times = self.hop(level, moved[level..self.facts.remote].iter().sum());
        match moved[level + 1..self.facts.remote].iter().sum() {
            0 => times,
            deeper => {
                let below = self.staged(moved, level + 1);
                self.after(below, times, self.hop(level, deeper))
            }
        }
    }

    /// Arrival of the first and the last layer of blocks that take a lower hop before another hop.
    fn after(&self, below: Times, all_up: Times, own_up: Times) -> Times {
        if !self.facts.layer_pipelining {
            return Times::at(all_up.ready_ns.max(below.ready_ns + own_up.ready_ns));
        }
        let first = below.first_layer_ns + own_up.first_layer_ns;
        let last = below.ready_ns + own_up.first_layer_ns;
        Times {
            first_layer_ns: all_up.first_layer_ns.max(first),
            ready_ns: all_up.ready_ns.max(last),
        }
    }

    /// Times of the first and the last layer of `blocks` blocks over the channel from a tier to the tier above.
    fn hop(&self, from: usize, blocks: u64) -> Times {
        let up = self.edges[from - 1].up.assigned();
        let up = up.lock().unwrap_or_else(PoisonError::into_inner);
        self.over(&up, Route::up_from(from), blocks)
    }

    /// Times of the first and the last layer of `blocks` blocks over a channel along a route.
    fn over(&self, channel: &Channel, route: Route, blocks: u64) -> Times {
        let layers = self.facts.layers;
        let job = Job {
            size_bytes: blocks * self.facts.block_bytes,
            pieces: blocks * layers,
            layers,
            coding_ns: 0,
        };
        let job = job.along(&self.forms, route, self.facts.remote);
        let (first_layer_ns, ready_ns) = channel.expected_ns(&job, self.facts.now_ns);
        Times {
            first_layer_ns,
            ready_ns,
        }
    }
}

//! How much of a found run is loaded and how much recomputed (the policies of `cache/fetch/`), by what loading and
//! computing should cost (the estimates of `serving/estimates.py`).

use std::sync::PoisonError;

use super::request::MOST_TIERS;
use crate::step_time::{StepShape, StepTimeTable};
use crate::store::{Part, GPU, NO_MOVE, STAGING};
use crate::transfers::{Channel, Mover, SharedChannel};

/// `Split` tries so many cuts, evenly spread: the estimate is smooth.
const CUTS: u32 = 32;

/// Decides between loading and recomputing, at each admission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FetchPolicy {
    /// Loads the whole run.
    #[default]
    Always,
    /// Reuses what the GPU has, or is getting for another request.
    Never,
    /// All of the run or nothing, whichever should end the prefill earlier.
    Cheaper,
    /// From the front, as far as the prefill should end earliest.
    Split,
    /// What is ready on the GPU, or one tier below it.
    BestEffort,
}

impl FetchPolicy {
    /// The policy of that name, `None` for one that is not of the core; nothing is prefetched to be waited for.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "always" | "wait" => Some(Self::Always),
            "never" => Some(Self::Never),
            "cheaper" => Some(Self::Cheaper),
            "split" => Some(Self::Split),
            "best-effort" | "timeout" => Some(Self::BestEffort),
            _ => None,
        }
    }

    /// How many leading blocks to reuse.
    pub(super) fn reuse(self, plan: &Plan<'_>) -> u32 {
        let end = plan.parts.last().map_or(plan.ready, |part| part.end);
        match self {
            Self::Always => end,
            Self::Never => {
                let on_gpu = plan.parts.iter().filter(|part| part.tier == GPU);
                on_gpu.map(|part| part.end).max().unwrap_or(0)
            }
            Self::Cheaper => {
                if plan.done_ns(end) <= plan.done_ns(plan.ready) {
                    end
                } else {
                    plan.ready
                }
            }
            Self::Split => {
                let span = u64::from(end - plan.ready);
                let cut = |i: u32| plan.ready + (span * u64::from(i) / u64::from(CUTS)) as u32;
                let cuts = (0..=CUTS).rev().map(cut);
                cuts.min_by_key(|&blocks| plan.done_ns(blocks))
                    .unwrap_or(end)
            }
            Self::BestEffort => {
                let near = |part: &&Part| part.tier <= STAGING && part.by == NO_MOVE;
                let at_hand = plan.parts.iter().take_while(near);
                at_hand.map(|part| part.end).fold(plan.ready, u32::max)
            }
        }
    }
}

/// A run that could be reused. Times are ns from now, by the channels' queues.
pub(super) struct Plan<'a> {
    pub parts: &'a [Part],
    /// In place of a tier: another machine, and what is read from there comes over this channel.
    pub remote: usize,
    pub wire: Option<SharedChannel>,
    /// Leading blocks that are ready to be computed on.
    pub ready: u32,
    /// Tokens that need KV.
    pub tokens: u64,
    pub block_size_tokens: u64,
    pub now_ns: u64,
    pub mover: &'a Mover,
    pub table: &'a StepTimeTable,
    /// Most tokens of a step.
    pub budget_tokens: u64,
}

impl Plan<'_> {
    /// When the prefill should end if the first `blocks` are reused.
    fn done_ns(&self, blocks: u32) -> u64 {
        let (first, last) = self.arrival_ns(blocks);
        let compute = self.compute_ns(blocks);
        let config = self.mover.config();
        if !config.layer_pipelining {
            return last + compute;
        }
        let last_layer = last + compute.div_ceil(config.layers);
        compute.max(first + compute).max(last_layer)
    }

    /// Computing everything after the first `blocks`.
    fn compute_ns(&self, blocks: u32) -> u64 {
        let mut past = (u64::from(blocks) * self.block_size_tokens).min(self.tokens - 1);
        let mut total = 0;
        while past < self.tokens {
            let chunk = (self.tokens - past).min(self.budget_tokens);
            let mut shape = StepShape::default();
            shape.add_chunk(chunk, past, self.table);
            total += self.table.step_ns(&shape);
            past += chunk;
        }
        total
    }

    /// When the first and the last layer of the first `blocks` should be here.
    fn arrival_ns(&self, blocks: u32) -> (u64, u64) {
        let mut moved = [0; MOST_TIERS];
        for part in self.parts.iter().filter(|part| part.start < blocks) {
            moved[part.tier] += u64::from(part.end.min(blocks) - part.start);
        }
        moved[GPU] = 0;
        let all: u64 = moved.iter().sum();
        if all == 0 {
            return (0, 0);
        }
        let mut up = self.hop(STAGING, all);
        let staged = moved[STAGING + 1..self.remote].iter().sum();
        if staged > 0 {
            let below = self.staged(&moved, STAGING + 1);
            up = self.after(below, up, self.hop(STAGING, staged));
        }
        if let (1.., Some(wire)) = (moved[self.remote], &self.wire) {
            let read = moved[self.remote];
            let wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
            let below = self.over(&wire, read);
            drop(wire);
            up = self.after(below, up, self.hop(STAGING, read));
        }
        up
    }

    /// When layers arrive above a tier of what `moved` has there and further down.
    fn staged(&self, moved: &[u64; MOST_TIERS], level: usize) -> (u64, u64) {
        let times = self.hop(level, moved[level..self.remote].iter().sum());
        match moved[level + 1..self.remote].iter().sum() {
            0 => times,
            deeper => {
                let below = self.staged(moved, level + 1);
                self.after(below, times, self.hop(level, deeper))
            }
        }
    }

    /// When layers arrive that take a lower hop before another one.
    fn after(&self, below: (u64, u64), all_up: (u64, u64), own_up: (u64, u64)) -> (u64, u64) {
        if !self.mover.config().layer_pipelining {
            let last = all_up.1.max(below.1 + own_up.1);
            return (last, last);
        }
        let first = all_up.0.max(below.0 + own_up.0);
        (first, all_up.1.max(below.1 + own_up.0))
    }

    /// The first and the last layer of so many blocks over the channel from a tier to the one above.
    fn hop(&self, from: usize, blocks: u64) -> (u64, u64) {
        self.over(&self.mover.channel((from, from - 1)), blocks)
    }

    /// The same over a channel.
    fn over(&self, channel: &Channel, blocks: u64) -> (u64, u64) {
        let job = self.mover.job(blocks);
        let per_layer = channel.config.layer_ns(&job);
        let start = channel.wait_ns(self.now_ns, job.pieces) + channel.config.latency_ns;
        (start + per_layer, start + job.layers * per_layer)
    }
}

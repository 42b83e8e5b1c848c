//! Replay of requests in file order through vLLM's block pool, its CPU tier below and a secondary tier below that, times ignored.
//!
//! Like `vllm_offload_replay`, but a look-up promotes from the secondary tier. A prompt that can never fit the
//! pool is not looked up.

use super::block_pool::BlockPool;
use super::offload_tier::ArcSizes;
use super::requests::Requests;
use super::tiered_offload::{TieredOffload, TieringCounts};
use super::vllm_replay::{replay_over, Below, FoundBlocks, VllmReplay};

/// Results of the tiers.
#[derive(Debug)]
pub struct TieringReplay {
    /// Tokens that each request loaded.
    pub loaded: Vec<i64>,
    /// Counts of stored, promoted and evicted keys.
    pub counts: TieringCounts,
    /// Blocks of the CPU tier at the end.
    pub resident: u64,
    /// Blocks of the tier below it at the end.
    pub below: u64,
    /// ARC's lists at the end.
    pub arc: Option<ArcSizes>,
}

/// Tiers during a replay.
struct Tiering<'a, 'b> {
    requests: &'a Requests<'b>,
    tiers: &'a mut TieredOffload,
    /// Most tokens that a step computes.
    step_tokens: u64,
    loaded: Vec<i64>,
}

/// Replays every request through a pool of `capacity_blocks` blocks and the tiers, in steps of `step_tokens` tokens.
pub fn replay(
    requests: &Requests<'_>,
    capacity_blocks: u32,
    tiers: &mut TieredOffload,
    step_tokens: u64,
) -> (VllmReplay, TieringReplay) {
    let mut below = Tiering {
        requests,
        tiers,
        step_tokens,
        loaded: Vec::new(),
    };
    let replay = replay_over(requests, capacity_blocks, &mut below);
    let Tiering { tiers, loaded, .. } = below;
    let counts = TieringReplay {
        loaded,
        counts: tiers.counts,
        resident: tiers.policy.resident() as u64,
        below: tiers.below.len() as u64,
        arc: tiers.policy.arc_sizes(),
    };
    (replay, counts)
}

impl Below for Tiering<'_, '_> {
    fn found(&mut self, request: u32, from: u32) -> u32 {
        let keys = self.requests.prompt_keys(request, from);
        self.tiers.ask(request, from, &keys)
    }

    fn has(&self, request: u32, block: u32) -> bool {
        self.tiers.has(self.requests.keys.key(request, block))
    }

    /// Loads the promoted or present keys, and offers the rest of the prompt, or all of it if nothing was
    /// loaded.
    fn serve(&mut self, _: &mut BlockPool, request: u32, hit: FoundBlocks) {
        let FoundBlocks {
            in_pool: found,
            below,
        } = hit;
        self.loaded
            .push(i64::from(below) * i64::from(self.requests.block_size));
        let behind = found + below;
        let keys = self.requests.prompt_keys(request, found);
        self.tiers.load(request, found, &keys[..below as usize]);
        let mut start = if below > 0 { behind } else { 0 };
        for end in self.requests.step_ends(request, behind, self.step_tokens) {
            let offered = (start..end).map(|block| self.requests.keys.key(request, block));
            let offered: Vec<u64> = offered.collect();
            if !offered.is_empty() && self.tiers.offer(request, start, &offered) {
                start = end;
            }
        }
    }

    fn rejected(&mut self) {
        self.loaded.push(0);
    }

    fn ended(&mut self, request: u32) {
        self.tiers.finish(request);
    }
}

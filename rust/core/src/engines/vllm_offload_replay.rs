//! Replay of requests in file order through vLLM's block pool with its CPU offloading tier below (0.33.0), times ignored.
//!
//! Behind the pool's hit, the tier is looked up for the prompt's next full chunks of one or more blocks, including the
//! last: the pool always computes the last token, but the tier may load its block. Found blocks are loaded at once. Then
//! the prompt's blocks behind the loaded ones are offered to the tier, or all of them if nothing was loaded, step by
//! step as they are computed (`OffloadingConnectorScheduler`, `offload_prompt_only`); what a step has refused is offered
//! again with the next. A request's keys count as used once more at its end.

use super::block_pool::BlockPool;
use super::offload_tier::{Access, ArcSizes, KeySet, KeyUse, OffloadTier};
use super::requests::Requests;
use super::tier_chunks::{TierBlocks, TierChunks};
use super::vllm_replay::{replay_over, Below, FoundBlocks, VllmReplay};

/// Results of the tier.
#[derive(Debug, Default)]
pub struct OffloadCounts {
    /// Tokens that each request loaded.
    pub loaded: Vec<i64>,
    /// Blocks stored.
    pub stored: u64,
    /// Blocks evicted.
    pub evicted: u64,
    /// Offers refused for lack of capacity.
    pub refused: u64,
    /// Blocks in the tier at the end.
    pub resident: u64,
    /// ARC's lists at the end.
    pub arc: Option<ArcSizes>,
}

/// Tier during a replay.
struct Offloading<'a, 'b> {
    requests: &'a Requests<'b>,
    tier: OffloadTier,
    chunks: TierChunks,
    /// Most tokens that a step computes.
    step_tokens: u64,
    /// Use of the tier's keys by each running request.
    used: Vec<Vec<KeyUse>>,
    counts: OffloadCounts,
}

/// Replays every request through a pool of `capacity_blocks` blocks and a tier of chunks of `chunk_blocks` blocks, in
/// steps of `step_tokens` tokens.
pub fn replay(
    requests: &Requests<'_>,
    capacity_blocks: u32,
    tier: OffloadTier,
    chunk_blocks: u32,
    step_tokens: u64,
) -> (VllmReplay, OffloadCounts) {
    let mut below = Offloading {
        requests,
        tier,
        chunks: TierChunks::new(chunk_blocks, TierBlocks { cpu: 0, disk: 0 }),
        step_tokens,
        used: vec![Vec::new(); requests.keys.requests() as usize],
        counts: OffloadCounts::default(),
    };
    let replay = replay_over(requests, capacity_blocks, &mut below);
    let Offloading {
        tier, mut counts, ..
    } = below;
    counts.resident = tier.policy.resident() as u64;
    counts.arc = tier.policy.arc_sizes();
    (replay, counts)
}

impl Below for Offloading<'_, '_> {
    fn found(&mut self, request: u32, from: u32) -> u32 {
        let prompt = self.requests.prompt(request, self.chunks.blocks);
        let has = |chunk| self.tier.policy.contains(chunk);
        prompt.reached(from, prompt.whole_blocks.max(from), has) - from
    }

    fn has(&self, request: u32, block: u32) -> bool {
        let prompt = self.requests.prompt(request, self.chunks.blocks);
        let chunk = block / prompt.chunk_blocks;
        chunk < prompt.whole_chunks() && self.tier.policy.contains(prompt.chunk_key(chunk))
    }

    /// Loads the tier's keys behind the pool's hit, and offers the rest of the prompt to the tier, step by step.
    fn serve(&mut self, pool: &mut BlockPool, request: u32, hit: FoundBlocks) {
        let FoundBlocks {
            in_pool: found,
            below,
        } = hit;
        let (size, per) = (i64::from(self.requests.block_size), self.chunks.blocks);
        let prompt = self.requests.prompt(request, per);
        self.counts.loaded.push(i64::from(below) * size);
        let reached = if below == 0 { 0 } else { (found + below) / per };
        let loaded = prompt.chunk_keys((found / per).min(reached)..reached);
        self.tier.access(&loaded);
        let mut used: Vec<KeyUse> = loaded
            .into_iter()
            .map(|key| KeyUse::new(key, Access::Reused))
            .collect();
        let mut start = reached;
        let (mut refused, mut missed) = (Vec::new(), KeySet::default());
        for end in self
            .requests
            .step_ends(request, found + below, self.step_tokens)
        {
            let end = end / per;
            let offered = prompt.chunk_keys(start..end);
            if offered.is_empty() {
                continue;
            }
            let stored = self.tier.offer_once(offered, &mut missed, &|_| false);
            self.counts.stored += stored.stored;
            self.counts.evicted += stored.evicted.len() as u64;
            self.counts.refused += u64::from(stored.is_refused);
            for &chunk in &stored.evicted {
                let blocks = self.chunks.take(chunk);
                blocks.iter().for_each(|&key| pool.left_below(key));
            }
            let all = used.iter().chain(&stored.accesses);
            let all: Vec<u64> = all.map(|used| used.key).collect();
            self.tier.access(&all);
            if stored.is_refused {
                refused = stored.accesses;
            } else {
                self.chunks.stored(prompt, start..end);
                used.extend(stored.accesses);
                refused.clear();
                start = end;
            }
        }
        used.extend(refused);
        self.used[request as usize] = used;
    }

    fn rejected(&mut self) {
        self.counts.loaded.push(0);
    }

    fn ended(&mut self, request: u32) {
        self.tier
            .finish(&std::mem::take(&mut self.used[request as usize]));
    }
}

//! Requests in file order through vLLM's block pool with its CPU offloading tier below (0.33.0), times ignored.
//!
//! Behind what the pool has, the tier is asked for the prompt's next full blocks, the last one too: the pool
//! always computes the last token, the tier may bring its block. What is found is loaded at once. Then the
//! prompt's blocks behind the loaded ones are offered to the tier, all of them where nothing was loaded
//! (`OffloadingConnectorScheduler`, `offload_prompt_only`). A request's use counts once more at its end.

use super::block_pool::BlockPool;
use super::offload_tier::{Access, ArcSizes, OffloadTier};
use super::requests::{Overlap, Requests, REJECTED};
use super::vllm_replay::{with_room, VllmReplay};
use crate::causes::engine::Lookup;

/// What the tier did.
#[derive(Debug, Default)]
pub struct OffloadCounts {
    /// Tokens that each request loaded.
    pub loaded: Vec<i64>,
    /// Blocks stored.
    pub stored: u64,
    /// Blocks evicted.
    pub evicted: u64,
    /// Offers refused for want of room.
    pub refused: u64,
    /// Blocks in the tier at the end.
    pub resident: u64,
    /// ARC's lists at the end.
    pub arc: Option<ArcSizes>,
}

/// The pool and the tier at work.
struct Both<'a, 'b, 'c> {
    requests: &'a Requests<'b>,
    pool: BlockPool,
    tier: OffloadTier<'c>,
    overlap: Overlap,
    forced_frees: u64,
    /// What each running request did with keys of the tier.
    used: Vec<Vec<(u64, Access)>>,
    counts: OffloadCounts,
}

/// Replays every request through a pool of `capacity_blocks` blocks and the tier.
pub fn replay(
    requests: &Requests<'_>,
    capacity_blocks: u32,
    tier: OffloadTier<'_>,
) -> (VllmReplay, OffloadCounts) {
    let mut pool = BlockPool::new(requests.keys.clone(), capacity_blocks);
    pool.log = requests.log();
    let mut causes = requests.causes();
    let mut both = Both {
        requests,
        pool,
        tier,
        overlap: Overlap::new(requests.window),
        forced_frees: 0,
        used: vec![Vec::new(); requests.keys.requests() as usize],
        counts: OffloadCounts::default(),
    };
    let size = u64::from(requests.block_size);
    let mut hits = Vec::new();
    for request in 0..requests.keys.requests() {
        if let Some(log) = &mut both.pool.log {
            log.now = request;
        }
        if let Some(oldest) = both.overlap.before_start() {
            both.end(oldest);
        }
        let n = requests.input_tokens[request as usize];
        let limit = requests.limit(request);
        let found = both.pool.peek(request, limit);
        let keys: Vec<u64> = (found..(n / size) as u32)
            .map(|block| requests.keys.key(request, block))
            .collect();
        let below = keys
            .iter()
            .take_while(|&&key| both.tier.contains(key))
            .count();
        if let (Some(causes), Some(log)) = (&mut causes, &both.pool.log) {
            let lookup = Lookup {
                request,
                input_tokens: n,
                hits: found + below as u32,
                limit: limit.max(found + below as u32),
            };
            let is_there = |block: u32| {
                both.pool.has(request, block)
                    || both.tier.contains(requests.keys.key(request, block))
            };
            causes.count(lookup, log, Some(&is_there));
            let total = requests.total_tokens[request as usize];
            causes.learn(request, (total / size) as u32);
        }
        if !both.takes(request, found) {
            hits.push(REJECTED);
            both.counts.loaded.push(0);
            if let Some(causes) = &mut causes {
                causes.forget(request);
            }
            continue;
        }
        hits.push(i64::from(found) * size as i64);
        both.counts.loaded.push(below as i64 * size as i64);
        both.moves(request, keys, (found, below));
        if let Some(ended) = both.overlap.start(request) {
            both.end(ended);
        }
    }
    while let Some(oldest) = both.overlap.oldest() {
        both.end(oldest);
    }
    both.counts.resident = both.tier.resident();
    both.counts.arc = both.tier.arc_sizes();
    let replay = VllmReplay::of(hits, both.forced_frees, &both.pool, causes);
    (replay, both.counts)
}

impl Both<'_, '_, '_> {
    /// Gives a request its blocks, from first to last; false where they do not fit.
    fn takes(&mut self, request: u32, found: u32) -> bool {
        let (requests, used, tier) = (self.requests, &mut self.used, &mut self.tier);
        let mut end = |ended: u32| tier.finish(&std::mem::take(&mut used[ended as usize]));
        let size = u64::from(requests.block_size);
        let n = requests.input_tokens[request as usize];
        let total = requests.total_tokens[request as usize];
        let (overlap, forced) = (&mut self.overlap, &mut self.forced_frees);
        let fits = with_room(&mut self.pool, overlap, forced, &mut end, |pool| {
            pool.allocate(request, found, n.div_ceil(size) as u32)
        });
        if fits {
            self.pool.cache(request, (n / size) as u32);
        }
        let fits = fits
            && with_room(&mut self.pool, overlap, forced, &mut end, |pool| {
                pool.extend(request, total.div_ceil(size) as u32)
            });
        if fits {
            self.pool.cache(request, (total / size) as u32);
        } else {
            self.pool.release(request);
        }
        fits
    }

    /// Loads what the tier has of the keys behind the pool's hit, and offers it the rest of the prompt.
    fn moves(&mut self, request: u32, keys: Vec<u64>, (found, below): (u32, usize)) {
        let loaded = &keys[..below];
        self.tier.access(loaded);
        let mut used: Vec<(u64, Access)> =
            loaded.iter().map(|&key| (key, Access::Reused)).collect();
        let offered = if below > 0 {
            keys[below..].to_vec()
        } else {
            let on_gpu = (0..found).map(|block| self.requests.keys.key(request, block));
            on_gpu.chain(keys).collect()
        };
        if !offered.is_empty() {
            let stored = self.tier.offer(offered);
            self.counts.stored += stored.stored;
            self.counts.evicted += stored.evicted.len() as u64;
            self.counts.refused += u64::from(stored.is_refused);
            for &key in &stored.evicted {
                self.pool.left_below(key);
            }
            used.extend(stored.accesses);
        }
        let all: Vec<u64> = used.iter().map(|&(key, _)| key).collect();
        self.tier.access(&all);
        self.used[request as usize] = used;
    }

    /// Ends a request.
    fn end(&mut self, request: u32) {
        self.pool.release(request);
        self.tier
            .finish(&std::mem::take(&mut self.used[request as usize]));
    }
}

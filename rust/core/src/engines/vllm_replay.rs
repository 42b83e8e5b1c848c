//! Replay of requests in file order through vLLM's block pool, times ignored.

use super::block_pool::{BlockPool, PoolCounts};
use super::requests::{Overlap, Requests, REJECTED};
use crate::causes::engine::{Lookup, MissCauses};
use crate::convert::fit;

/// Results of a replay.
#[derive(Debug)]
pub struct VllmReplay {
    /// Hit tokens of each request, or `REJECTED`.
    pub hits: Vec<i64>,
    /// Running requests ended early to free blocks.
    pub forced_frees: u64,
    /// The pool's own counts.
    pub counts: PoolCounts,
    /// Blocks with a key at the end.
    pub cached_blocks: u64,
    /// Distinct keys at the end.
    pub unique_keys: u64,
    /// Keys of the free queue at the end.
    pub free_queue: Vec<u64>,
    /// Misses by cause, if requested.
    pub causes: Option<MissCauses>,
    /// Bytes of the pool at the end.
    pub heap_bytes: usize,
}

/// Blocks of a request that are found.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundBlocks {
    /// Those found in the pool.
    pub in_pool: u32,
    /// Those found behind them in the tier below.
    pub below: u32,
}

/// Blocks of a number of tokens.
#[derive(Debug, Clone, Copy)]
struct TokenBlocks {
    /// All blocks.
    all: u32,
    /// Full blocks.
    whole: u32,
}

/// Tier below the pool; the default methods do nothing.
pub(super) trait Below {
    /// Returns the number of a request's blocks found here, from the first block that the pool lacks.
    fn found(&mut self, _request: u32, _from: u32) -> u32 {
        0
    }

    /// Returns true if a request's block is here.
    fn has(&self, _request: u32, _block: u32) -> bool {
        false
    }

    /// Serves a request.
    fn serve(&mut self, _pool: &mut BlockPool, _request: u32, _found: FoundBlocks) {}

    /// Handles a request that does not fit.
    fn rejected(&mut self) {}

    /// Handles the end of a running request.
    fn ended(&mut self, _request: u32) {}
}

/// No tier.
struct Nothing;

impl Below for Nothing {}

/// Replays every request through a pool of `capacity_blocks` blocks.
pub fn replay(requests: &Requests<'_>, capacity_blocks: u32) -> VllmReplay {
    replay_over(requests, capacity_blocks, &mut Nothing)
}

/// Replays every request through a pool of `capacity_blocks` blocks with a tier below it.
pub(super) fn replay_over(
    requests: &Requests<'_>,
    capacity_blocks: u32,
    below: &mut impl Below,
) -> VllmReplay {
    let size = u64::from(requests.block_size);
    let mut running = Running {
        pool: BlockPool::new(requests.keys.clone(), capacity_blocks),
        overlap: Overlap::new(requests.window),
        forced_frees: 0,
        below,
    };
    running.pool.log = requests.log();
    let mut causes = requests.causes();
    let mut hits = Vec::with_capacity(requests.input_tokens.len());
    for request in 0..requests.keys.requests() {
        let (n, total) = (
            requests.input_tokens[request as usize],
            requests.total_tokens[request as usize],
        );
        if let Some(log) = &mut running.pool.log {
            log.now = request;
        }
        if let Some(oldest) = running.overlap.before_start() {
            running.end(oldest);
        }
        let limit = requests.limit(request);
        let found = running.pool.peek(request, limit);
        // A prompt that can never fit is not looked up below.
        let fits_alone = total.div_ceil(size) <= u64::from(capacity_blocks);
        let lower = if fits_alone {
            running.below.found(request, found)
        } else {
            0
        };
        if let (Some(causes), Some(log)) = (&mut causes, &running.pool.log) {
            let lookup = Lookup {
                limit: limit.max(found + lower),
                ..requests.lookup(request, found + lower)
            };
            let (pool, below) = (&running.pool, &*running.below);
            let is_there = |block| pool.has(request, block) || below.has(request, block);
            causes.count(lookup, log, Some(&is_there));
            causes.learn(request, fit::<u32>(total / size));
        }
        let blocks = |tokens: u64| TokenBlocks {
            all: fit::<u32>(tokens.div_ceil(size)),
            whole: fit::<u32>(tokens / size),
        };
        if !running.takes(request, found, blocks(n), blocks(total)) {
            hits.push(REJECTED);
            running.below.rejected();
            if let Some(causes) = &mut causes {
                causes.forget(request);
            }
            continue;
        }
        hits.push(i64::from(found) * i64::from(requests.block_size));
        let found = FoundBlocks {
            in_pool: found,
            below: lower,
        };
        running.below.serve(&mut running.pool, request, found);
        if let Some(ended) = running.overlap.start(request) {
            running.end(ended);
        }
    }
    while let Some(oldest) = running.overlap.oldest() {
        running.end(oldest);
    }
    let (cached_blocks, unique_keys) = running.pool.cached_blocks();
    VllmReplay {
        hits,
        forced_frees: running.forced_frees,
        counts: running.pool.counts(),
        cached_blocks,
        unique_keys,
        free_queue: running.pool.free_queue(),
        causes,
        heap_bytes: running.pool.heap_bytes(),
    }
}

/// The pool and the requests that hold its blocks.
struct Running<'a, B> {
    pool: BlockPool,
    overlap: Overlap,
    /// Requests ended early.
    forced_frees: u64,
    below: &'a mut B,
}

impl<B: Below> Running<'_, B> {
    /// Allocates a request's blocks: those of the prompt, then all. Returns
    /// false, with nothing held, if they do not fit.
    fn takes(&mut self, request: u32, found: u32, prompt: TokenBlocks, all: TokenBlocks) -> bool {
        let mut fits = self.ensure_capacity(|pool| pool.allocate(request, found, prompt.all));
        if fits {
            self.pool.cache(request, prompt.whole);
            fits = self.ensure_capacity(|pool| pool.extend(request, all.all));
        }
        if fits {
            self.pool.cache(request, all.whole);
        } else {
            self.pool.release(request);
        }
        fits
    }

    /// Retries until `attempt` succeeds or no request runs, ending the oldest running request after each
    /// failure.
    fn ensure_capacity(&mut self, attempt: impl Fn(&mut BlockPool) -> bool) -> bool {
        while !attempt(&mut self.pool) {
            let Some(oldest) = self.overlap.oldest() else {
                return false;
            };
            self.end(oldest);
            self.forced_frees += 1;
        }
        true
    }

    /// Ends a running request.
    fn end(&mut self, request: u32) {
        self.pool.release(request);
        self.below.ended(request);
    }
}

//! Requests in file order through vLLM's block pool, times ignored.

use super::block_pool::{BlockPool, PoolCounts};
use super::requests::{Overlap, Requests, REJECTED};
use crate::causes::engine::{Lookup, MissCauses};

/// What a replay decided.
#[derive(Debug)]
pub struct VllmReplay {
    /// Hit tokens of each request, or `REJECTED`.
    pub hits: Vec<i64>,
    /// Running requests ended before their turn, for room.
    pub forced_frees: u64,
    /// The pool's own counts.
    pub counts: PoolCounts,
    /// Blocks with a key at the end.
    pub cached_blocks: u64,
    /// Distinct keys at the end.
    pub unique_keys: u64,
    /// Keys of the free queue at the end.
    pub free_queue: Vec<u64>,
    /// Reasons of the misses, where asked for.
    pub causes: Option<MissCauses>,
    /// Bytes of the pool at the end.
    pub heap_bytes: usize,
}

/// Replays every request through a pool of `capacity_blocks` blocks.
pub fn replay(requests: &Requests<'_>, capacity_blocks: u32) -> VllmReplay {
    let size = u64::from(requests.block_size);
    let mut pool = BlockPool::new(requests.keys.clone(), capacity_blocks);
    pool.log = requests.log();
    let mut causes = requests.causes();
    let mut overlap = Overlap::new(requests.window);
    let mut hits = Vec::with_capacity(requests.input_tokens.len());
    let mut forced_frees = 0;
    for request in 0..requests.keys.requests() {
        let (n, total) = (
            requests.input_tokens[request as usize],
            requests.total_tokens[request as usize],
        );
        if let Some(log) = &mut pool.log {
            log.now = request;
        }
        if let Some(oldest) = overlap.before_start() {
            pool.release(oldest);
        }
        let limit = requests.limit(request);
        let found = pool.peek(request, limit);
        if let (Some(causes), Some(log)) = (&mut causes, &pool.log) {
            let lookup = Lookup {
                request,
                input_tokens: n,
                hits: found,
                limit,
            };
            causes.count(lookup, log, Some(&|block| pool.has(request, block)));
            causes.learn(request, (total / size) as u32);
        }
        let prompt_fits = with_room(
            &mut pool,
            &mut overlap,
            &mut forced_frees,
            &mut |_| (),
            |pool| pool.allocate(request, found, n.div_ceil(size) as u32),
        );
        if prompt_fits {
            pool.cache(request, (n / size) as u32);
        }
        let fits = prompt_fits
            && with_room(
                &mut pool,
                &mut overlap,
                &mut forced_frees,
                &mut |_| (),
                |pool| pool.extend(request, total.div_ceil(size) as u32),
            );
        if !fits {
            hits.push(REJECTED);
            pool.release(request);
            if let Some(causes) = &mut causes {
                causes.forget(request);
            }
            continue;
        }
        pool.cache(request, (total / size) as u32);
        hits.push(i64::from(found) * i64::from(requests.block_size));
        if let Some(ended) = overlap.start(request) {
            pool.release(ended);
        }
    }
    while let Some(oldest) = overlap.oldest() {
        pool.release(oldest);
    }
    VllmReplay::of(hits, forced_frees, &pool, causes)
}

impl VllmReplay {
    /// What a pool has decided by its end.
    pub(super) fn of(
        hits: Vec<i64>,
        forced_frees: u64,
        pool: &BlockPool,
        causes: Option<MissCauses>,
    ) -> Self {
        let (cached_blocks, unique_keys) = pool.cached_blocks();
        Self {
            hits,
            forced_frees,
            counts: pool.counts(),
            cached_blocks,
            unique_keys,
            free_queue: pool.free_queue(),
            causes,
            heap_bytes: pool.heap_bytes(),
        }
    }
}

/// Tries until it succeeds or nothing runs any more, ending the oldest running request after each failure;
/// `ended` hears of it.
pub(super) fn with_room(
    pool: &mut BlockPool,
    overlap: &mut Overlap,
    forced_frees: &mut u64,
    ended: &mut dyn FnMut(u32),
    attempt: impl Fn(&mut BlockPool) -> bool,
) -> bool {
    while !attempt(pool) {
        let Some(oldest) = overlap.oldest() else {
            return false;
        };
        pool.release(oldest);
        ended(oldest);
        *forced_frees += 1;
    }
    true
}

//! Requests in file order through SGLang's pool, times ignored.

use super::leaf_order::LeafOrder;
use super::radix_pool::RadixPool;
use super::radix_tree::TreeCounts;
use super::requests::{Overlap, Requests, REJECTED};
use crate::causes::engine::MissCauses;

/// What a replay decided.
#[derive(Debug)]
pub struct RadixReplay {
    /// Hit tokens of each request, or `REJECTED`.
    pub hits: Vec<i64>,
    /// Running requests ended before their turn, for room.
    pub forced_finishes: u64,
    /// Evictions asked for.
    pub evict_calls: u64,
    /// The tree at the end, and what left it.
    pub counts: TreeCounts,
    /// Free tokens at the end.
    pub free_tokens: u64,
    /// Key of the first page, and pages, of the leaves at the end, next to be evicted first.
    pub leaves: Vec<(u64, u32)>,
    /// Reasons of the misses, where asked for.
    pub causes: Option<MissCauses>,
    /// Bytes of the tree at the end.
    pub heap_bytes: usize,
}

/// Replays every request through a pool of `capacity_tokens`, whole pages of `block_size` tokens.
pub fn replay(requests: &Requests<'_>, order: LeafOrder, capacity_tokens: u64) -> RadixReplay {
    let page = requests.block_size;
    let prompts = requests.input_tokens.to_vec();
    let mut pool = RadixPool::new(requests.keys.clone(), order, page, capacity_tokens, prompts);
    pool.tree.log = requests.log();
    let mut causes = requests.causes();
    let mut overlap = Overlap::new(requests.window);
    let mut hits = Vec::with_capacity(requests.input_tokens.len());
    let mut forced_finishes = 0;
    for request in 0..requests.keys.requests() {
        let (n, total) = (
            requests.input_tokens[request as usize],
            requests.total_tokens[request as usize],
        );
        if let Some(log) = &mut pool.tree.log {
            log.now = request;
        }
        if let Some(oldest) = overlap.before_start() {
            pool.release(oldest);
        }
        let found = pool.admit(request, n - 1);
        if let (Some(causes), Some(log)) = (&mut causes, &pool.tree.log) {
            let lookup = requests.lookup(request, (found / u64::from(page)) as u32);
            causes.count(lookup, log, None);
            causes.learn(request, (total / u64::from(page)) as u32);
        }
        let mut fits = pool.fits(request, total);
        while !fits {
            let Some(oldest) = overlap.oldest() else {
                break;
            };
            pool.release(oldest);
            forced_finishes += 1;
            fits = pool.fits(request, total);
        }
        if !fits {
            hits.push(REJECTED);
            pool.withdraw(request);
            if let Some(causes) = &mut causes {
                causes.forget(request);
            }
            continue;
        }
        let fitted = pool.allocate(request, n);
        pool.cache(request, n);
        let fitted = pool.extend(request, total) && fitted;
        debug_assert!(fitted, "room was checked");
        hits.push(found as i64);
        if let Some(ended) = overlap.start(request) {
            pool.release(ended);
        }
    }
    while let Some(oldest) = overlap.oldest() {
        pool.release(oldest);
    }
    RadixReplay {
        hits,
        forced_finishes,
        evict_calls: pool.evict_calls,
        counts: pool.counts(),
        free_tokens: pool.free_tokens(),
        leaves: pool.tree.leaves(),
        causes,
        heap_bytes: pool.tree.heap_bytes(),
    }
}

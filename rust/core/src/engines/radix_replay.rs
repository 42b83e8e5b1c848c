//! Replay of requests in file order through SGLang's pool, times ignored.

use super::radix_pool::RadixPool;
use super::radix_tree::host_tier::{HostMoves, HostTier};
use super::radix_tree::stored_pages::StorageMoves;
use super::radix_tree::worth::LeafStrategy;
use super::radix_tree::{RadixTree, TreeCounts, TreeRules};
use super::requests::{Overlap, Requests, REJECTED};
use crate::causes::engine::{Lookup, MissCauses};
use crate::convert::fit;

/// Results of a replay.
#[derive(Debug)]
pub struct RadixReplay {
    /// Tokens of each request found on the device, or `REJECTED`.
    pub hits: Vec<i64>,
    /// Tokens of each request loaded from the host.
    pub loaded: Vec<i64>,
    /// Tokens of each request prefetched from storage to the host before its admission.
    pub prefetched: Vec<i64>,
    /// Running requests ended early to free capacity.
    pub forced_finishes: u64,
    /// Evictions requested.
    pub evict_calls: u64,
    /// Counts of the tree at the end, and of its evictions.
    pub counts: TreeCounts,
    /// Counts of pages written to and evicted from the host.
    pub moves: HostMoves,
    /// Counts of pages written to and evicted from the storage.
    pub storage: StorageMoves,
    /// Free tokens of the device at the end.
    pub free_tokens: u64,
    /// Free pages of the host at the end.
    pub host_free_pages: u64,
    /// Leaves as named by [`RadixTree::leaves`].
    pub leaves: Vec<(u64, u32)>,
    /// Misses by cause, if requested.
    pub causes: Option<MissCauses>,
    /// Bytes of the tree at the end.
    pub heap_bytes: usize,
}

/// Replays every request through a device of `capacity_tokens`, whole pages of `block_size` tokens, with or
/// without a host tier.
pub fn replay(
    requests: &Requests<'_>,
    rules: TreeRules,
    strategy: LeafStrategy,
    capacity_tokens: u64,
    host: Option<HostTier>,
) -> RadixReplay {
    let page = requests.block_size;
    let mut tree = RadixTree::new(requests.keys.clone(), rules, strategy, page, host);
    tree.log = requests.log();
    let prompts = requests.input_tokens.to_vec();
    let mut pool = RadixPool::new(tree, page, capacity_tokens, prompts);
    let mut causes = requests.causes();
    let mut overlap = Overlap::new(requests.window);
    let (mut hits, mut loads, mut prefetched) = (Vec::new(), Vec::new(), Vec::new());
    let mut forced_finishes = 0;
    for request in 0..requests.keys.requests() {
        let n = requests.input_tokens[request as usize];
        let total = requests.total_tokens[request as usize];
        if let Some(log) = &mut pool.tree.log {
            log.now = request;
        }
        if let Some(oldest) = overlap.before_start() {
            pool.release(oldest);
        }
        prefetched.push(fit::<i64>(pool.prefetch(request, n - 1, total)));
        let (found, forced) = admit(&mut pool, &mut overlap, request, n, total);
        forced_finishes += forced;
        let Some((found, on_host)) = found else {
            pool.withdraw(request);
            hits.push(REJECTED);
            loads.push(0);
            if let Some(causes) = &mut causes {
                causes.learn(request, fit::<u32>(total / u64::from(page)));
            }
            continue;
        };
        let loaded = pool.load(request);
        if let Some(causes) = &mut causes {
            let hits = fit::<u32>((found + loaded) / u64::from(page));
            let lookup = requests.lookup(request, hits);
            let reach = fit::<u32>((found + on_host) / u64::from(page));
            count_causes(causes, &pool.tree, lookup, reach, loaded < on_host);
            causes.learn(request, fit::<u32>(total / u64::from(page)));
        }
        pool.allocate(request, n);
        pool.checkpoint(request, n);
        pool.extend(request, total);
        hits.push(fit::<i64>(found));
        loads.push(fit::<i64>(loaded));
        if let Some(ended) = overlap.start(request) {
            pool.release(ended);
        }
    }
    while let Some(oldest) = overlap.oldest() {
        pool.release(oldest);
    }
    debug_assert_eq!(pool.check(), Ok(()));
    RadixReplay {
        hits,
        loaded: loads,
        prefetched,
        forced_finishes,
        evict_calls: pool.evict_calls,
        counts: pool.tree.counts(),
        moves: pool.tree.host_moves(),
        storage: pool.tree.storage_moves(),
        free_tokens: pool.free_tokens(),
        host_free_pages: pool.tree.host_free_pages(),
        leaves: pool.tree.leaves(),
        causes,
        heap_bytes: pool.tree.heap_bytes(),
    }
}

/// Counts the causes of a request's misses. `reach`: its leading blocks on device and host; `left_below`: true
/// if host blocks were not loaded.
fn count_causes(
    causes: &mut MissCauses,
    tree: &RadixTree,
    lookup: Lookup,
    reach: u32,
    left_below: bool,
) {
    let Some(log) = &tree.log else { return };
    let request = lookup.request;
    let is_below = |block| block < reach || tree.is_stored(request, block);
    let resident: Option<&dyn Fn(u32) -> bool> = if left_below || tree.has_storage() {
        Some(&is_below)
    } else {
        None
    };
    causes.count(lookup, log, resident);
}

/// Looks up a request of `n` prompt tokens and `total` tokens, ending the oldest running request until it fits. With a host
/// tier, the look-up is repeated after a request has ended. Returns the tokens found on the device and behind
/// it on the host, None if the request never fits, and the number of ended requests.
fn admit(
    pool: &mut RadixPool,
    overlap: &mut Overlap,
    request: u32,
    n: u64,
    total: u64,
) -> (Option<(u64, u64)>, u64) {
    let mut found = pool.admit(request, n - 1);
    let mut forced = 0;
    loop {
        let before = forced;
        while !pool.fits(request, total) {
            let Some(oldest) = overlap.oldest() else {
                return (None, forced);
            };
            pool.release(oldest);
            forced += 1;
        }
        if forced == before || !pool.tree.has_host() {
            return (Some(found), forced);
        }
        pool.withdraw(request);
        found = pool.admit(request, n - 1);
    }
}

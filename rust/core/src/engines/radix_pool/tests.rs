use super::*;
use crate::engines::radix_tree::host_tier::{HostTier, WritePolicy};
use crate::engines::radix_tree::worth::LeafStrategy;
use crate::engines::radix_tree::TreeRules;
use crate::keys::BlockKeys;
use std::sync::Arc;

/// Sixty prompts of two to nine pages that follow one of three chains and diverge at some page.
fn prompts() -> (Arc<BlockKeys>, Vec<u64>) {
    let mut x: u64 = 7;
    let rows = (0..60u64).map(|request| {
        x = x * 48_271 % 2_147_483_647;
        let (pages, chain, common) = (2 + x % 8, x / 8 % 3, x / 64 % 9);
        let id = |k| match k < common {
            true => 10 * chain + k,
            false => 100 + 10 * request + k,
        };
        (0..pages).map(|k| id(k) as u32).collect()
    });
    let rows: Vec<Vec<u32>> = rows.collect();
    let tokens = rows.iter().map(|ids| 4 * ids.len() as u64).collect();
    (BlockKeys::of_rows(1, &rows), tokens)
}

#[test]
fn every_step_keeps_the_invariants() {
    let writes = [
        None,
        Some(WritePolicy::Through),
        Some(WritePolicy::Selective),
        Some(WritePolicy::Back),
    ];
    let names = [
        "lru", "lfu", "fifo", "mru", "filo", "slru", "priority", "tlru",
    ];
    for (number, name) in names.into_iter().enumerate() {
        for (write, host_pages) in writes.into_iter().flat_map(|w| [(w, 6), (w, 30)]) {
            let (keys, tokens) = prompts();
            let strategy = LeafStrategy::from_name(name, 12, 3).unwrap();
            let is_classic = write.is_none() && LeafStrategy::of_classic(name).is_some();
            let rules = if is_classic {
                TreeRules::Classic
            } else {
                TreeRules::Unified
            };
            let host = write.map(|write| HostTier::new(write, host_pages));
            let tree = RadixTree::new(keys, rules, strategy, 4, host);
            let mut pool = RadixPool::new(tree, 4, 4 * (14 + number as u64), tokens.clone());
            for (request, &n) in (0u32..).zip(&tokens) {
                pool.admit(request, n - 1);
                assert!(pool.fits(request, n + 5), "nothing else runs");
                pool.load(request);
                assert_eq!(pool.check(), Ok(()));
                pool.allocate(request, n);
                pool.checkpoint(request, n);
                assert_eq!(pool.check(), Ok(()));
                pool.extend(request, n + 5);
                pool.release(request);
                assert_eq!(pool.check(), Ok(()));
            }
            let counts = pool.tree.counts();
            assert_eq!(counts.device_pages, counts.evictable_pages);
            assert!(counts.evicted_pages > 0);
        }
    }
}

fn said(corrupt: impl FnOnce(&mut RadixPool)) -> Result<(), Violation> {
    let (keys, tokens) = prompts();
    let tree = RadixTree::new(keys, TreeRules::Unified, LeafStrategy::Lru, 4, None);
    let mut pool = RadixPool::new(tree, 4, 80, tokens.clone());
    pool.admit(0, tokens[0] - 1);
    pool.allocate(0, tokens[0]);
    pool.checkpoint(0, 4);
    corrupt(&mut pool);
    pool.check()
}

#[test]
fn wrong_counts_are_seen() {
    assert_eq!(said(|_| ()), Ok(()));
    assert!(said(|p| p.free_tokens += 4).unwrap_err().starts_with("I2"));
    assert!(said(|p| p.held[0] = None).unwrap_err().starts_with("I3"));
    let hold = |p: &mut RadixPool, change: fn(&mut Held)| change(p.held[0].as_mut().unwrap());
    let filled = said(|p| hold(p, |h| h.filled += 4)).unwrap_err();
    assert!(filled.starts_with("I2"));
    let protected = said(|p| hold(p, |h| h.protected -= 4)).unwrap_err();
    assert!(protected.starts_with("I3"));
}

#[test]
fn a_leaf_above_pages_that_the_host_holds_stays_until_it_can_be_written() {
    let keys = BlockKeys::of_rows(1, &[vec![0, 1], vec![0, 2]]);
    let host = HostTier::new(WritePolicy::Back, 2);
    let tree = RadixTree::new(keys, TreeRules::Unified, LeafStrategy::Lru, 1, Some(host));
    let mut pool = RadixPool::new(tree, 1, 9, vec![2, 2]);
    for request in 0..2 {
        pool.admit(request, 1);
        pool.allocate(request, 2);
        pool.checkpoint(request, 2);
        pool.release(request);
    }
    let tree = &mut pool.tree;
    assert_eq!(tree.evict(2), 2, "both ends are written");
    let ends = [0, 1].map(|request| tree.match_prefix(request, 2).node);
    for end in ends {
        tree.lock_host(end, 1);
    }
    assert_eq!(tree.evict(1), 0, "the host is full, and its pages are read");
    tree.unlock_host(ends[1], 1);
    assert_eq!(tree.evict(1), 1, "one of them goes");
    assert_eq!(tree.match_prefix(0, 2).pages, 2);
    assert_eq!(tree.match_prefix(1, 2).pages, 1);
}

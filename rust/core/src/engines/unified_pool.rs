//! SGLang's room in tokens around its default tree: what a request takes, checks in and gives back.

/// What a store in time asks.
mod in_time;

use super::unified_tree::{Insertion, UnifiedTree, ROOT};
use crate::store::Violation;

/// Host hits of fewer tokens are computed again (SGLang's `load_back_threshold`).
pub(super) const LEAST_LOADED_TOKENS: u64 = 10;

/// A running request.
#[derive(Debug, Clone, Copy)]
struct Held {
    node: u32,
    /// The deepest node found, on whichever tier.
    found_node: u32,
    /// Tokens, from the first, that are the tree's and locked for this request.
    protected: u64,
    /// Tokens found on the host alone, at the look-up.
    on_host: u64,
    /// Tokens that an earlier checkpoint counted.
    counted: u64,
    /// Tokens that have room, whole pages taken.
    filled: u64,
}

/// Room of one device, in tokens, and the tree that keeps what was computed.
#[derive(Debug)]
pub struct UnifiedPool {
    /// The tree.
    pub tree: UnifiedTree,
    page: u64,
    capacity_tokens: u64,
    free_tokens: u64,
    prompt_tokens: Vec<u64>,
    held: Vec<Option<Held>>,
}

impl UnifiedPool {
    /// A pool of `capacity_tokens` (whole pages of `page` tokens) for requests of these prompts.
    pub fn new(
        tree: UnifiedTree,
        page: u32,
        capacity_tokens: u64,
        prompt_tokens: Vec<u64>,
    ) -> Self {
        Self {
            tree,
            page: u64::from(page),
            capacity_tokens,
            free_tokens: capacity_tokens,
            held: vec![None; prompt_tokens.len()],
            prompt_tokens,
        }
    }

    /// Tokens neither in the tree nor taken by a running request.
    pub fn free_tokens(&self) -> u64 {
        self.free_tokens
    }

    fn of(&self, request: u32) -> Held {
        self.held[request as usize].expect("the request is admitted")
    }

    fn paged(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.page) * self.page
    }

    fn slack(&self) -> u64 {
        if self.page > 1 {
            self.page
        } else {
            0
        }
    }

    /// Looks the request up and holds what the device has of its first `limit` tokens; returns the tokens
    /// found on the device, and behind them on the host.
    pub fn admit(&mut self, request: u32, limit: u64) -> (u64, u64) {
        let found = self.tree.match_prefix(request, (limit / self.page) as u32);
        self.tree.lock(found.device_node);
        let protected = u64::from(found.device_pages) * self.page;
        let on_host = u64::from(found.pages - found.device_pages) * self.page;
        self.held[request as usize] = Some(Held {
            node: found.device_node,
            found_node: found.node,
            protected,
            on_host,
            counted: 0,
            filled: protected,
        });
        (protected, on_host)
    }

    /// Brings what a storage has of a request's first `limit` tokens, behind what is known, to the host; returns
    /// the tokens. A request of `total` tokens that never fits does not ask.
    pub fn prefetch(&mut self, request: u32, limit: u64, total: u64) -> u64 {
        if !self.tree.has_storage() || self.paged(total) + self.slack() > self.capacity_tokens {
            return 0;
        }
        let pages = (limit / self.page) as u32;
        let found = self.tree.match_prefix(request, pages);
        u64::from(self.tree.prefetch(request, found, pages)) * self.page
    }

    /// Lets go of what `admit` held.
    pub fn withdraw(&mut self, request: u32) {
        if let Some(held) = self.held[request as usize].take() {
            self.tree.unlock(held.node);
        }
    }

    /// Whether `total` tokens of an admitted request would fit if all that may go went.
    pub fn fits(&self, request: u32, total: u64) -> bool {
        let room = self.free_tokens + self.tree.counts().evictable_pages * self.page;
        room + self.of(request).protected >= self.paged(total) + self.slack()
    }

    /// Evicts until `demand` tokens are free, if need be.
    fn demand(&mut self, demand: u64) {
        if demand > self.free_tokens {
            let pages = (demand - self.free_tokens).div_ceil(self.page);
            self.free_tokens += self.tree.evict(pages) * self.page;
        }
    }

    /// Loads what an admitted request found on the host, where it is worth it and there is room; returns the
    /// tokens loaded.
    pub fn load(&mut self, request: u32) -> u64 {
        let held = self.of(request);
        if held.on_host < LEAST_LOADED_TOKENS {
            return 0;
        }
        self.tree.lock(held.found_node);
        self.demand(held.on_host);
        if self.free_tokens < held.on_host {
            self.tree.unlock(held.found_node);
            return 0;
        }
        self.free_tokens -= held.on_host;
        self.tree.load(held.found_node);
        // the lock of the load becomes the request's
        self.tree.unlock(held.node);
        let protected = held.protected + held.on_host;
        self.held[request as usize] = Some(Held {
            node: held.found_node,
            protected,
            filled: protected,
            ..held
        });
        held.on_host
    }

    /// Takes room for the first `tokens` tokens of an admitted request that fits.
    pub fn allocate(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        self.demand(tokens - held.protected + self.slack());
        self.take(self.paged(tokens) - held.protected);
        self.held[request as usize] = Some(Held {
            filled: tokens,
            ..held
        });
    }

    /// Takes room for decoded tokens, one by one, up to `tokens`.
    pub fn extend(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        for position in held.filled..tokens {
            self.demand(self.page);
            if position % self.page == 0 {
                self.take(self.page);
            }
        }
        self.held[request as usize] = Some(Held {
            filled: tokens.max(held.filled),
            ..held
        });
    }

    fn take(&mut self, tokens: u64) {
        debug_assert!(tokens <= self.free_tokens, "room was checked");
        self.free_tokens = self.free_tokens.saturating_sub(tokens);
    }

    /// Checks the request's first `tokens` tokens into the tree, takes duplicates back, and locks the result.
    /// The prompt's end becomes a node's: an answer can go without it, and has one priority less.
    pub fn checkpoint(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        let pages = (tokens / self.page) as u32;
        if pages == 0 {
            return;
        }
        let how = Insertion {
            counted_pages: (held.counted / self.page) as u32,
            protected_pages: (held.protected / self.page) as u32,
            priority: 1,
        };
        let (node, duplicates) = self.tree.insert(request, pages, how);
        self.free_tokens += u64::from(duplicates) * self.page;
        let prompt = (self.prompt_tokens[request as usize] / self.page) as u32;
        if 0 < prompt && prompt < pages {
            let how = Insertion {
                counted_pages: prompt,
                protected_pages: prompt,
                priority: 2,
            };
            self.tree.insert(request, prompt, how);
        }
        self.tree.lock(node);
        self.tree.unlock(held.node);
        let protected = u64::from(pages) * self.page;
        self.held[request as usize] = Some(Held {
            node,
            protected,
            counted: held.counted.max(protected),
            ..held
        });
    }

    /// Checks all filled tokens in, gives back the rest of the last page, and ends the request.
    pub fn release(&mut self, request: u32) {
        self.checkpoint(request, self.of(request).filled);
        self.let_go(request);
    }

    /// Gives back all room of a request that is not the tree's, and ends it.
    pub fn let_go(&mut self, request: u32) {
        let held = self.of(request);
        self.free_tokens += self.paged(held.filled).saturating_sub(held.protected);
        self.tree.unlock(held.node);
        self.held[request as usize] = None;
    }

    /// Checks the tree, its locks against what requests hold, and that free tokens, the tree's and those of
    /// requests alone make the capacity; the first violation is the error.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_with(std::iter::empty())
    }

    /// The same where others hold nodes too.
    pub fn check_with(&self, others: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let held = || self.held.iter().flatten();
        let holders = held().map(|h| h.node).chain(others);
        self.tree.check(holders.filter(|&node| node != ROOT))?;
        let private: u64 = held()
            .map(|h| self.paged(h.filled).saturating_sub(h.protected))
            .sum();
        let cached = self.tree.counts().device_pages * self.page;
        if self.free_tokens + cached + private != self.capacity_tokens {
            return Err(format!(
                "I2: {} free, {cached} cached and {private} held of {} tokens",
                self.free_tokens, self.capacity_tokens
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::leaf_order::LeafOrder;
    use crate::engines::unified_tree::host::{HostTier, WritePolicy};
    use crate::engines::unified_tree::worth::LeafStrategy;
    use crate::keys::{BlockKeys, NO_REQUEST};
    use std::sync::Arc;

    /// Sixty prompts of two to nine pages that go on from one of three chains and part at some page.
    fn prompts() -> (Arc<BlockKeys>, Vec<u64>) {
        let (mut offsets, mut ids, mut tokens) = (vec![0], Vec::new(), Vec::new());
        let mut x: u64 = 7;
        for request in 0..60u64 {
            x = x * 48_271 % 2_147_483_647;
            let (pages, chain, common) = (2 + x % 8, x / 8 % 3, x / 64 % 9);
            ids.extend((0..pages).map(|k| {
                let is_common = k < common;
                (if is_common {
                    10 * chain + k
                } else {
                    100 + 10 * request + k
                }) as u32
            }));
            offsets.push(ids.len() as u64);
            tokens.push(4 * pages);
        }
        let full = tokens.iter().map(|&n| (n / 4) as u32).collect();
        let keys = BlockKeys::new(offsets, ids, 1, full, vec![NO_REQUEST; 60]).unwrap();
        (Arc::new(keys), tokens)
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
                let host = write.map(|write| HostTier::new(write, host_pages));
                let tree = UnifiedTree::new(keys, strategy, 4, host);
                let mut pool = UnifiedPool::new(tree, 4, 4 * (14 + number as u64), tokens.clone());
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

    #[test]
    fn wrong_counts_are_seen() {
        let (keys, tokens) = prompts();
        let tree = UnifiedTree::new(keys, LeafStrategy::Used(LeafOrder::Lru), 4, None);
        let mut pool = UnifiedPool::new(tree, 4, 80, tokens.clone());
        pool.admit(0, tokens[0] - 1);
        pool.allocate(0, tokens[0]);
        pool.checkpoint(0, tokens[0]);
        assert_eq!(pool.check(), Ok(()));
        pool.free_tokens += 4;
        assert!(pool.check().unwrap_err().starts_with("I2"));
        pool.free_tokens -= 4;
        pool.held[0] = None;
        assert!(pool.check().unwrap_err().starts_with("I3"));
    }
}

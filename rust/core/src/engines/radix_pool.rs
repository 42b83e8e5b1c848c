//! SGLang's room in tokens around its radix tree: what a request takes, checks in and gives back.

use std::sync::Arc;

use super::leaf_order::LeafOrder;
use super::radix_tree::{RadixTree, TreeCounts, ROOT};
use crate::keys::BlockKeys;
use crate::store::Violation;

/// A running request.
#[derive(Debug, Clone, Copy)]
struct Held {
    node: u32,
    /// Tokens, from the first, that are the tree's and locked for this request.
    protected: u64,
    /// Tokens that were inserted by an earlier checkpoint.
    inserted: u64,
    /// Tokens that have room, whole pages taken.
    filled: u64,
}

/// Room of one GPU, in tokens, and the tree that keeps what was computed.
#[derive(Debug)]
pub struct RadixPool {
    /// The tree.
    pub tree: RadixTree,
    page: u64,
    capacity_tokens: u64,
    free_tokens: u64,
    prompt_tokens: Vec<u64>,
    held: Vec<Option<Held>>,
    /// Evictions asked for, with or without an answer.
    pub evict_calls: u64,
    /// Tokens computed that the tree had already: given back.
    pub merged_tokens: u64,
}

impl RadixPool {
    /// A pool of `capacity_tokens` (whole pages of `page` tokens) for requests of these prompts.
    pub fn new(
        keys: Arc<BlockKeys>,
        order: LeafOrder,
        page: u32,
        capacity_tokens: u64,
        prompt_tokens: Vec<u64>,
    ) -> Self {
        Self {
            held: vec![None; prompt_tokens.len()],
            tree: RadixTree::new(keys, order),
            page: u64::from(page),
            capacity_tokens,
            free_tokens: capacity_tokens,
            prompt_tokens,
            evict_calls: 0,
            merged_tokens: 0,
        }
    }

    /// How many requests it knows.
    pub fn requests(&self) -> u32 {
        self.held.len() as u32
    }

    /// Tokens neither in the tree nor taken by a running request.
    pub fn free_tokens(&self) -> u64 {
        self.free_tokens
    }

    /// What the tree holds.
    pub fn counts(&self) -> TreeCounts {
        self.tree.counts()
    }

    /// Tokens of the tree that no running request locks.
    pub fn evictable_tokens(&self) -> u64 {
        self.tree.evictable_pages() * self.page
    }

    /// Whether the request is admitted.
    pub fn holds(&self, request: u32) -> bool {
        self.held.get(request as usize).is_some_and(Option::is_some)
    }

    /// Leading tokens of an admitted request that are in the tree.
    pub fn protected_tokens(&self, request: u32) -> u64 {
        self.of(request).protected
    }

    /// Tokens of an admitted request that have room, from its first on.
    pub fn filled_tokens(&self, request: u32) -> u64 {
        self.of(request).filled
    }

    /// Tokens in whole pages, the last one filled up.
    fn paged(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.page) * self.page
    }

    /// What an allocation asks for beyond its tokens: a page, where a page is more than a token.
    fn slack(&self) -> u64 {
        if self.page > 1 {
            self.page
        } else {
            0
        }
    }

    /// How many leading tokens of the request, of the first `limit`, are here; nothing changes.
    pub fn peek(&self, request: u32, limit: u64) -> u64 {
        u64::from(self.tree.peek(request, (limit / self.page) as u32)) * self.page
    }

    /// Looks the request up and holds what is found of its first `limit` tokens; returns the hit tokens.
    pub fn admit(&mut self, request: u32, limit: u64) -> u64 {
        let (node, pages) = self.tree.match_prefix(request, (limit / self.page) as u32);
        let protected = u64::from(pages) * self.page;
        self.hold(request, node, protected);
        protected
    }

    /// Holds the path to a node, which is the request's first `protected` tokens.
    pub fn hold(&mut self, request: u32, node: u32, protected: u64) {
        self.tree.lock(node);
        self.held[request as usize] = Some(Held {
            node,
            protected,
            inserted: 0,
            filled: protected,
        });
    }

    /// Takes free pages for an admitted request that knows they are there, up to its first `tokens` tokens.
    pub fn grow(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        self.free_tokens -= self.paged(tokens) - self.paged(held.filled);
        self.held[request as usize] = Some(Held {
            filled: tokens,
            ..held
        });
    }

    /// Ends a request and gives back what is its own; the tree keeps what was checked in.
    pub fn drop_request(&mut self, request: u32) {
        let held = self.of(request);
        self.free_tokens += self.paged(held.filled) - held.protected;
        self.tree.unlock(held.node);
        self.held[request as usize] = None;
    }

    /// Lets go of what `admit` held, where there was no room for the rest.
    pub fn withdraw(&mut self, request: u32) {
        if let Some(held) = self.held[request as usize].take() {
            self.tree.unlock(held.node);
        }
    }

    /// Whether `total` tokens of an admitted request would fit if all that may go went.
    pub fn fits(&self, request: u32, total: u64) -> bool {
        let held = self.of(request);
        let room = self.free_tokens + self.evictable_tokens();
        room + held.protected >= self.paged(total) + self.slack()
    }

    /// Whether `total` tokens of a request that finds `hits` pages would fit once it holds these; nothing
    /// changes.
    pub fn would_fit(&self, request: u32, hits: u32, total: u64) -> bool {
        let held_now = u64::from(self.tree.unlocked_pages(request, hits)) * self.page;
        let room = self.free_tokens + self.evictable_tokens() - held_now;
        room + u64::from(hits) * self.page >= self.paged(total) + self.slack()
    }

    fn of(&self, request: u32) -> Held {
        self.held[request as usize].expect("the request is admitted")
    }

    /// Evicts until `demand` tokens are free, if need be.
    pub fn demand(&mut self, demand: u64) {
        if demand > self.free_tokens {
            self.evict_calls += 1;
            let pages = (demand - self.free_tokens).div_ceil(self.page);
            self.free_tokens += self.tree.evict(pages) * self.page;
        }
    }

    /// Takes room for the first `tokens` tokens of an admitted request; false where there is none.
    pub fn allocate(&mut self, request: u32, tokens: u64) -> bool {
        let held = self.of(request);
        self.demand(tokens - held.protected + self.slack());
        let need = self.paged(tokens) - held.protected;
        if need > self.free_tokens {
            return false;
        }
        self.free_tokens -= need;
        self.held[request as usize] = Some(Held {
            filled: tokens,
            ..held
        });
        true
    }

    /// Takes free tokens, whole pages, for an admitted request that knows they are there.
    pub fn take(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        self.free_tokens -= tokens;
        self.held[request as usize] = Some(Held {
            filled: held.filled + tokens,
            ..held
        });
    }

    /// Takes room for decoded tokens, one by one, up to `tokens`; false, stopping there, where there is none.
    pub fn extend(&mut self, request: u32, tokens: u64) -> bool {
        let mut filled = self.of(request).filled;
        let mut fits = true;
        while fits && filled < tokens {
            self.demand(self.page);
            if filled % self.page == 0 {
                fits = self.free_tokens >= self.page;
                self.free_tokens -= if fits { self.page } else { 0 };
            }
            filled += u64::from(fits);
        }
        self.held[request as usize] = Some(Held {
            filled,
            ..self.of(request)
        });
        fits
    }

    /// Puts the request's first `tokens` tokens into the tree, gives duplicates back, and locks the result.
    pub fn cache(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        let pages = (tokens / self.page) as u32;
        let done = (held.inserted / self.page) as u32;
        let known = u64::from(self.tree.insert(request, pages, done)) * self.page;
        let prompt_pages = (self.prompt_tokens[request as usize] / self.page) as u32;
        if 0 < prompt_pages && prompt_pages < pages {
            self.tree.insert(request, prompt_pages, pages);
        }
        self.free_tokens += known - held.protected;
        self.merged_tokens += known - held.protected;
        let (node, _) = self.tree.match_prefix(request, pages);
        self.tree.unlock(held.node);
        self.tree.lock(node);
        let protected = u64::from(pages) * self.page;
        self.held[request as usize] = Some(Held {
            node,
            protected,
            inserted: protected,
            ..held
        });
    }

    /// Puts all filled tokens into the tree, gives back the rest of the last page, and ends the request.
    pub fn release(&mut self, request: u32) {
        self.finish(request, self.of(request).filled);
    }

    /// Puts the first `tokens` tokens into the tree, gives back all other room, and ends the request.
    pub fn finish(&mut self, request: u32, tokens: u64) {
        self.cache(request, tokens);
        let held = self.of(request);
        debug_assert!(held.node != ROOT || held.protected == 0);
        self.drop_request(request);
    }

    /// Checks the tree, its locks against what requests hold, and that free tokens, the tree's and those of
    /// requests alone make the capacity; the first violation is the error. Cost: as [`RadixTree::check`].
    pub fn check(&self) -> Result<(), Violation> {
        let held = || self.held.iter().flatten();
        self.tree.check(held().map(|h| h.node))?;
        for h in held() {
            let below = self.tree.end(h.node) * self.page;
            if h.protected != below || h.filled < h.protected {
                return Err(format!(
                    "I3: a request holds {below} tokens of the tree, counted {} of {}",
                    h.protected, h.filled
                ));
            }
        }
        let private: u64 = held().map(|h| self.paged(h.filled) - h.protected).sum();
        let cached = self.counts().pages * self.page;
        let used = self.free_tokens + cached + private;
        if used != self.capacity_tokens {
            return Err(format!(
                "I2: {} free, {cached} cached and {private} held make {used} of {} tokens",
                self.free_tokens, self.capacity_tokens
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::NO_REQUEST;

    fn said(corrupt: impl FnOnce(&mut RadixPool)) -> Result<(), Violation> {
        let keys = BlockKeys::new(vec![0, 4], vec![0, 1, 2, 3], 1, vec![4], vec![NO_REQUEST]);
        let keys = Arc::new(keys.unwrap());
        let mut pool = RadixPool::new(keys, LeafOrder::Lru, 2, 16, vec![8]);
        pool.admit(0, 0);
        assert!(pool.allocate(0, 8));
        pool.cache(0, 4);
        corrupt(&mut pool);
        pool.check()
    }

    #[test]
    fn wrong_tokens_are_seen() {
        assert_eq!(said(|_| ()), Ok(()));
        assert!(said(|p| p.free_tokens += 2).unwrap_err().starts_with("I2"));
        assert!(said(|p| p.held[0] = None).unwrap_err().starts_with("I3"));
        let hold = |p: &mut RadixPool, change: fn(&mut Held)| change(p.held[0].as_mut().unwrap());
        let filled = said(|p| hold(p, |h| h.filled += 2)).unwrap_err();
        assert!(filled.starts_with("I2"));
        let protected = said(|p| hold(p, |h| h.protected -= 2)).unwrap_err();
        assert!(protected.starts_with("I3"));
    }
}

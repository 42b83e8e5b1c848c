//! SGLang's token capacity around its tree: tokens that a request allocates, inserts and releases.

/// Operations for a store in a timed run.
pub mod in_time;
#[cfg(test)]
mod tests;

use super::radix_tree::{Found, Insertion, RadixTree, ROOT};
use crate::convert::fit;
use crate::store::Violation;

/// Host hits of fewer tokens are computed again (SGLang's `load_back_threshold`).
pub(super) const LEAST_LOADED_TOKENS: u64 = 10;

/// State of a running request.
#[derive(Debug, Clone, Copy)]
struct Held {
    node: u32,
    /// Deepest node found, on either tier.
    found_node: u32,
    /// Leading tokens that are in the tree and locked for this request.
    protected: u64,
    /// Tokens found only on the host, at the look-up.
    on_host: u64,
    /// Tokens that an earlier checkpoint counted.
    counted: u64,
    /// Tokens with reserved capacity, in whole pages.
    filled: u64,
}

/// Capacity of one device, in tokens, and the tree that keeps computed tokens.
#[derive(Debug)]
pub struct RadixPool {
    /// The tree.
    pub tree: RadixTree,
    page: u64,
    capacity_tokens: u64,
    free_tokens: u64,
    prompt_tokens: Vec<u64>,
    held: Vec<Option<Held>>,
    /// Evictions requested, whether or not any page was evicted.
    pub evict_calls: u64,
    /// Computed tokens that the tree already had, so that they were released.
    pub merged_tokens: u64,
}

impl RadixPool {
    /// A pool of `capacity_tokens` (whole pages of `page` tokens) for requests of the given prompts.
    pub fn new(tree: RadixTree, page: u32, capacity_tokens: u64, prompt_tokens: Vec<u64>) -> Self {
        Self {
            tree,
            page: u64::from(page),
            capacity_tokens,
            free_tokens: capacity_tokens,
            held: vec![None; prompt_tokens.len()],
            prompt_tokens,
            evict_calls: 0,
            merged_tokens: 0,
        }
    }

    /// Returns the tokens neither in the tree nor allocated to a running request.
    pub fn free_tokens(&self) -> u64 {
        self.free_tokens
    }

    /// Returns the tree's tokens that no running request locks.
    pub fn evictable_tokens(&self) -> u64 {
        self.tree.counts().evictable_pages * self.page
    }

    /// Returns true if the request is admitted.
    pub fn holds(&self, request: u32) -> bool {
        self.held.get(request as usize).is_some_and(Option::is_some)
    }

    /// Returns the leading tokens of an admitted request that are in the tree and locked for it.
    pub fn protected_tokens(&self, request: u32) -> u64 {
        self.of(request).protected
    }

    /// Returns the leading tokens of an admitted request with reserved capacity.
    pub fn filled_tokens(&self, request: u32) -> u64 {
        self.of(request).filled
    }

    fn of(&self, request: u32) -> Held {
        self.held[request as usize].expect("the request is admitted")
    }

    /// Rounds tokens up to whole pages.
    fn paged(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.page) * self.page
    }

    /// Returns the tokens that an allocation requests beyond its own: one page, if a page has several tokens.
    fn slack(&self) -> u64 {
        if self.page > 1 {
            self.page
        } else {
            0
        }
    }

    /// Looks the request up and holds the device pages of its first `limit` tokens. Returns the tokens found on
    /// the device, and behind them on the host.
    pub fn admit(&mut self, request: u32, limit: u64) -> (u64, u64) {
        let found = self
            .tree
            .match_prefix(request, fit::<u32>(limit / self.page));
        self.hold(request, found);
        let held = self.of(request);
        (held.protected, held.on_host)
    }

    /// Holds the device pages that a look-up found.
    pub fn hold(&mut self, request: u32, found: Found) {
        self.tree.lock(found.device_node);
        let protected = u64::from(found.device_pages) * self.page;
        self.held[request as usize] = Some(Held {
            node: found.device_node,
            found_node: found.node,
            protected,
            on_host: u64::from(found.pages - found.device_pages) * self.page,
            counted: 0,
            filled: protected,
        });
    }

    /// Prefetches stored pages of a request's first `limit` tokens, behind the known ones, to the host. Returns
    /// the tokens. A request of `total` tokens that never fits does not prefetch.
    pub fn prefetch(&mut self, request: u32, limit: u64, total: u64) -> u64 {
        if !self.tree.has_storage() || self.paged(total) + self.slack() > self.capacity_tokens {
            return 0;
        }
        let pages = fit::<u32>(limit / self.page);
        let found = self.tree.match_prefix(request, pages);
        u64::from(self.tree.prefetch(request, found, pages)) * self.page
    }

    /// Releases the pages that `admit` held.
    pub fn withdraw(&mut self, request: u32) {
        if let Some(held) = self.held[request as usize].take() {
            self.tree.unlock(held.node);
        }
    }

    /// Returns true if `total` tokens of an admitted request would fit after evicting everything evictable.
    pub fn fits(&self, request: u32, total: u64) -> bool {
        let spare = self.free_tokens + self.evictable_tokens();
        spare + self.of(request).protected >= self.paged(total) + self.slack()
    }

    /// Evicts, if necessary, until `demand` tokens are free.
    pub fn demand(&mut self, demand: u64) {
        if demand > self.free_tokens {
            self.evict_calls += 1;
            let pages = (demand - self.free_tokens).div_ceil(self.page);
            self.free_tokens += self.tree.evict(pages) * self.page;
        }
    }

    /// Loads the host hit of an admitted request, if it is long enough and the device has capacity. Returns the
    /// tokens loaded.
    pub fn load(&mut self, request: u32) -> u64 {
        let held = self.of(request);
        let Some(pages) = self.load_path(held.found_node, held.on_host) else {
            return 0;
        };
        self.tree.register_loaded(held.found_node, pages);
        // The lock of the load becomes the request's lock.
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

    /// Loads and locks the path to a node, of which `tokens` tokens are on the host alone, if these are enough and
    /// the device has capacity. Returns the pages loaded.
    pub fn load_path(&mut self, node: u32, tokens: u64) -> Option<u32> {
        if tokens < LEAST_LOADED_TOKENS {
            return None;
        }
        self.tree.lock(node);
        self.demand(tokens);
        if self.free_tokens < tokens {
            self.tree.unlock(node);
            return None;
        }
        self.free_tokens -= tokens;
        Some(self.tree.load(node))
    }

    /// Allocates the first `tokens` tokens of an admitted request that fits.
    pub fn allocate(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        self.demand(tokens - held.protected + self.slack());
        self.take(self.paged(tokens) - held.protected);
        self.fill(request, tokens);
    }

    /// Allocates decoded tokens, one by one, up to `tokens`.
    pub fn extend(&mut self, request: u32, tokens: u64) {
        let filled = self.of(request).filled;
        for position in filled..tokens {
            self.demand(self.page);
            if position % self.page == 0 {
                self.take(self.page);
            }
        }
        self.fill(request, tokens.max(filled));
    }

    fn fill(&mut self, request: u32, tokens: u64) {
        if let Some(held) = &mut self.held[request as usize] {
            held.filled = tokens;
        }
    }

    fn take(&mut self, tokens: u64) {
        debug_assert!(tokens <= self.free_tokens, "room was checked");
        self.free_tokens = self.free_tokens.saturating_sub(tokens);
    }

    /// Inserts the request's first `tokens` tokens into the tree, releases duplicates, and locks the result.
    /// The end of the prompt becomes the end of a node, so that an answer can be evicted without it. The answer
    /// has a priority lower by one.
    pub fn checkpoint(&mut self, request: u32, tokens: u64) {
        let held = self.of(request);
        let pages = fit::<u32>(tokens / self.page);
        if pages == 0 {
            return;
        }
        let how = Insertion {
            counted_pages: fit::<u32>(held.counted / self.page),
            protected_pages: fit::<u32>(held.protected / self.page),
            priority: 1,
        };
        let (node, duplicates) = self.tree.insert(request, pages, how);
        self.free_tokens += u64::from(duplicates) * self.page;
        self.merged_tokens += u64::from(duplicates) * self.page;
        let prompt = fit::<u32>(self.prompt_tokens[request as usize] / self.page);
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

    /// Inserts all allocated tokens, releases the rest of the last page, and ends the request.
    pub fn release(&mut self, request: u32) {
        self.finish(request, self.of(request).filled);
    }

    /// Inserts the first `tokens` tokens, releases all other capacity, and ends the request.
    pub fn finish(&mut self, request: u32, tokens: u64) {
        self.checkpoint(request, tokens);
        self.release_request(request);
    }

    /// Releases all capacity of a request that is not in the tree, and ends the request.
    pub fn release_request(&mut self, request: u32) {
        let held = self.of(request);
        self.free_tokens += self.paged(held.filled).saturating_sub(held.protected);
        self.tree.unlock(held.node);
        self.held[request as usize] = None;
    }

    /// Checks the tree, its locks against the requests' holds, and that free tokens, the tree's tokens and
    /// tokens of requests alone sum to the capacity. The first violation is the error.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_with(std::iter::empty())
    }

    /// Checks as `check` does, with additional holders of nodes.
    pub fn check_with(&self, others: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let held = || self.held.iter().flatten();
        let held_nodes = held().map(|h| h.node).chain(others);
        self.tree.check(held_nodes.filter(|&node| node != ROOT))?;
        for h in held() {
            let below = self.tree.end(h.node) * self.page;
            if h.protected != below || h.filled < h.protected {
                return Err(format!(
                    "I3: a request holds {below} tokens of the tree, counted {} of {}",
                    h.protected, h.filled
                ));
            }
        }
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

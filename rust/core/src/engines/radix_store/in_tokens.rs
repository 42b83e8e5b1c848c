//! Operations of the tree for SGLang's own scheduler, in tokens and without leases: a request is admitted or
//! not.

use std::collections::BTreeMap;

use super::prefix::Prefix;
use super::RadixStore;
use crate::convert::fit;
use crate::engines::radix_tree::worth::LeafStrategy;
use crate::engines::radix_tree::{Found, ROOT};
use crate::store::{Answer, StoreError};

impl RadixStore {
    /// Returns the longest known prefix of a request's first `tokens` tokens; its path becomes most recent.
    pub fn find(&mut self, request: u32, tokens: u64) -> Prefix {
        let pages = fit::<u32>(tokens / self.page);
        let found = self.pool.tree.match_prefix(request, pages);
        Prefix {
            node: found.device_node,
            tokens: u64::from(found.device_pages) * self.page,
            host_node: found.node,
            host_tokens: u64::from(found.pages - found.device_pages) * self.page,
        }
    }

    /// Returns the key of a request's page, which identifies all pages before it too.
    pub fn key(&self, request: u32, page: u32) -> u64 {
        self.keys().key(request, page)
    }

    /// Returns the tokens neither in the tree nor allocated to a request.
    pub fn free_tokens(&self) -> u64 {
        self.pool.free_tokens()
    }

    /// Returns the tokens that are free or evictable.
    pub fn spare_tokens(&self) -> u64 {
        self.pool.free_tokens() + self.pool.evictable_tokens()
    }

    /// Returns the spare tokens after the path to a node is held.
    pub fn spare_tokens_with(&self, prefix: Prefix) -> u64 {
        self.spare_tokens() - self.pool.tree.unlocked_above(prefix.node) * self.page
    }

    /// Evicts until `tokens` tokens are free, or no page is evictable.
    pub fn evict_until_free(&mut self, tokens: u64, now_ns: u64) {
        let before = self.evictions();
        self.pool.demand(tokens);
        self.start_writes();
        self.note_evicted(before, now_ns);
    }

    /// Admits a request with its hit.
    pub fn hold(&mut self, request: u32, prefix: Prefix) {
        let pages = fit::<u32>(prefix.tokens / self.page);
        let found = Found {
            device_node: prefix.node,
            device_pages: pages,
            node: prefix.node,
            pages,
        };
        self.pool.hold(request, found);
        self.progress[request as usize].full = pages;
    }

    /// Allocates free pages for an admitted request, up to its first `tokens` tokens.
    pub fn grow(&mut self, request: u32, tokens: u64) -> Answer<()> {
        let pages = tokens.div_ceil(self.page);
        let held = self.pool.filled_tokens(request).div_ceil(self.page);
        let lacks = pages.saturating_sub(held) > self.pool.free_tokens() / self.page;
        if lacks && self.has_storage() {
            return Err(StoreError::OutOfMemory((pages - held) * self.page));
        }
        if pages < held || lacks {
            return Err(StoreError::NotReserved);
        }
        self.pool.grow(request, tokens);
        Ok(())
    }

    /// Inserts an admitted request's first `tokens` tokens into the tree, in whole pages.
    pub fn check_in_tokens(&mut self, request: u32, tokens: u64) -> Answer<()> {
        self.check_free_tokens(request, tokens)?;
        self.pool.checkpoint(request, tokens);
        self.queue_writes();
        let protected = self.pool.protected_tokens(request) / self.page;
        self.progress[request as usize].full = fit::<u32>(protected);
        Ok(())
    }

    fn check_free_tokens(&self, request: u32, tokens: u64) -> Answer<()> {
        if tokens > self.pool.filled_tokens(request) {
            return Err(StoreError::NotReserved);
        }
        Ok(())
    }

    /// Ends a request: its first `tokens` tokens are inserted into the tree, all other capacity is released.
    pub fn finish(&mut self, request: u32, tokens: u64) -> Answer<()> {
        self.check_free_tokens(request, tokens)?;
        self.progress[request as usize].full = 0;
        self.pool.finish(request, tokens);
        self.queue_writes();
        Ok(())
    }

    /// Ends a request and keeps only the tokens inserted before.
    pub fn retract(&mut self, request: u32) {
        self.progress[request as usize].full = 0;
        self.pool.release_request(request);
    }

    /// Returns true if leaves are evicted by their last access alone.
    pub fn evicts_least_recent(&self) -> bool {
        self.pool.tree.strategy() == LeafStrategy::Lru
    }

    /// Returns the positions of the given nodes in depth-first order. Subtrees with more of the nodes come
    /// first, and a node comes after all nodes below it.
    pub fn depth_first(&self, nodes: &[u32]) -> Vec<usize> {
        let tree = &self.pool.tree;
        let (mut at, mut weights) = (BTreeMap::<u32, Vec<usize>>::new(), BTreeMap::new());
        for (index, &node) in nodes.iter().enumerate() {
            at.entry(node).or_default().push(index);
            let mut above = node;
            *weights.entry(above).or_insert(0usize) += 1;
            while above != ROOT {
                above = tree.parent(above);
                *weights.entry(above).or_insert(0) += 1;
            }
        }
        let mut children = BTreeMap::<u32, Vec<u32>>::new();
        for &node in weights.keys().filter(|&&node| node != ROOT) {
            children.entry(tree.parent(node)).or_default().push(node);
        }
        for below in children.values_mut() {
            below.sort_by_key(|child| (std::cmp::Reverse(weights[child]), tree.slot(*child)));
        }
        let (mut order, mut stack) = (Vec::with_capacity(nodes.len()), vec![(ROOT, false)]);
        while let Some((node, is_visited)) = stack.pop() {
            if is_visited {
                order.extend(at.get(&node).into_iter().flatten());
                continue;
            }
            stack.push((node, true));
            let below = children.get(&node).into_iter().flatten();
            stack.extend(below.rev().map(|&child| (child, false)));
        }
        order
    }
}

//! A policy that keeps queues of single blocks and names its own victim.

use super::leaf::Facts;

/// Returns true if a block is evictable: not held, and in a prefix-aware tier without a resident child.
pub type MayGo<'a> = dyn Fn(u32) -> bool + 'a;

/// A policy on blocks numbered from 0.
///
/// For every block of a request the replay calls `on_hit` if it is resident; else `on_miss`, then `evict`
/// until there is capacity, then `insert`. In a prefix-aware replay a request's blocks come deepest first.
pub trait ObjectPolicy: Send + Sync {
    /// Return true if a block is resident; ghosts do not count.
    fn contains(&self, block: u32) -> bool;

    /// Record a use of a resident block.
    fn on_hit(&mut self, block: u32);

    /// Record a use of each of these resident blocks, the last one first.
    fn on_hits(&mut self, blocks: &[u32]) {
        blocks.iter().rev().for_each(|&block| self.on_hit(block));
    }

    /// Record a miss before capacity is freed for the block; policies with ghosts look the block up here.
    fn on_miss(&mut self, _block: u32) {}

    /// Insert a block that is not resident; there is capacity for it.
    fn insert(&mut self, block: u32);

    /// Evict one block for which `may_go` holds and return it; None if there is none. A queue skips all other
    /// blocks without moving them, unless its file states otherwise.
    fn evict(&mut self, incoming: u32, may_go: &MayGo) -> Option<u32>;

    /// Take note that a block (none: any block) may have become evictable: `may_go` changes for no other one from false
    /// to true.
    fn freed(&mut self, _block: Option<u32>) {}

    /// Evict a block beyond the policy's own limits, without a request for capacity, and return it. A plain
    /// cache calls this after every use and every insertion; a tier of a run keeps such blocks until it needs
    /// capacity.
    fn abort(&mut self, _may_go: &MayGo) -> Option<u32> {
        None
    }

    /// Return true if `abort` may name a block.
    fn aborts(&self) -> bool {
        false
    }

    /// Forget a resident block that left for another reason than `evict`; ghosts stay.
    fn remove(&mut self, block: u32);

    /// Set the facts of the block that the next call is about (only `ranked` needs them).
    fn facts(&mut self, _facts: Facts) {}

    /// Evict one expired block and return it.
    fn expire(&mut self, _now_ns: i64, _may_go: &MayGo) -> Option<u32> {
        None
    }
}

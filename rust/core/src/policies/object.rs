//! A policy that keeps queues of single blocks and names its own victim.

use super::leaf::Facts;

/// Whether a block may leave: not held, and in a prefix-aware tier without a resident child.
pub type MayGo<'a> = dyn Fn(u32) -> bool + 'a;

/// A policy on blocks numbered from 0.
///
/// The replay calls, for every block of a request: `on_hit` if resident; else `on_miss`, then `evict` while
/// there is no room, then `insert`. Prefix-aware, a request's blocks come deepest first.
pub trait ObjectPolicy: Send + Sync {
    /// Whether a block is resident, ghosts not counted.
    fn contains(&self, block: u32) -> bool;

    /// Learn of a use of a resident block.
    fn on_hit(&mut self, block: u32);

    /// Learn of a miss before room is made for it: where ghosts are kept, they answer here.
    fn on_miss(&mut self, _block: u32) {}

    /// Take a block that is not resident; room has been made.
    fn insert(&mut self, block: u32);

    /// Remove one block for which `may_go` holds and return it; None if there is none. A queue passes over
    /// the others where they stand, or as its file says.
    fn evict(&mut self, incoming: u32, may_go: &MayGo) -> Option<u32>;

    /// Remove a block that the policy has no more room for although nothing has asked for it, and return it. A
    /// plain cache asks after every use and every insertion; a tier of a run leaves such blocks until room is
    /// needed.
    fn abort(&mut self, _may_go: &MayGo) -> Option<u32> {
        None
    }

    /// Forget a resident block that left for another reason than `evict`; ghosts stay.
    fn remove(&mut self, block: u32);

    /// Take notice of the facts of the block that the next call is about (only `ranked` needs them).
    fn facts(&mut self, _facts: Facts) {}

    /// Remove blocks whose time has run out and return one at a time.
    fn expire(&mut self, _now_ns: i64, _may_go: &MayGo) -> Option<u32> {
        None
    }
}

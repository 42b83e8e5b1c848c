//! A policy as a priority key of a leaf, with hooks where it learns.

/// Smallest is evicted first: what the policy says, then how recent the last use was.
pub type Key = (u64, u64);

/// What a policy may know of a block, or of a run of blocks whose facts are equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Blocks above it, of the deepest block where a run has several.
    pub depth: u32,
    /// Uses while cached; the insertion is the first.
    pub hits: u64,
    /// Number of the release that used it last, from 1; a counter, never the clock.
    pub last_access: u64,
    /// Number of the release that inserted it.
    pub created: u64,
    /// When it was used last, for policies with durations.
    pub last_access_ns: i64,
    /// Blocks that the request which inserted it found cached.
    pub found_blocks: u32,
    /// Blocks that the request which inserted it had to compute.
    pub computed_blocks: u32,
}

/// Where a key changes by itself as time goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// It does not.
    Never,
    /// From this time on the block counts as absent.
    Gone(i64),
    /// From this time on its key is this one.
    Rekey(i64, Key),
}

/// A policy that orders leaves by a key; among equal keys the deepest block goes first.
///
/// The store keeps the candidates (resident, not held, no resident child) ordered by key, asks for the key
/// after every insertion and hit, and tells the policy what it evicted.
pub trait LeafPolicy: Send + Sync {
    /// Return the key of a block that was just inserted or hit.
    fn key(&self, facts: &Facts) -> Key;

    /// Learn that a block with this key was evicted to make room.
    fn on_evict(&mut self, _key: Key) {}

    /// Return what happens to a block by itself, once it is not used again.
    fn lapse(&self, _facts: &Facts) -> Lapse {
        Lapse::Never
    }

    /// Depths (in blocks) at which a run must be split because its blocks are worth different things.
    fn split_at(&self) -> &[u32] {
        &[]
    }

    /// Whether the key of a block depends on its depth, so that a run must leave block by block.
    fn by_depth(&self) -> bool {
        false
    }
}

/// Map a non-negative float to an integer of the same order.
pub fn ordered(value: f64) -> u64 {
    debug_assert!(value >= 0.0);
    value.to_bits()
}

//! A policy as a priority key of a leaf, with hooks for policies that learn.

/// The smallest key is evicted first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The policy's value.
    pub value: u64,
    /// The last use, which decides among equal values; 0 where it does not matter.
    pub last_access: u64,
}

impl Key {
    /// Returns a key whose ties the last use does not decide.
    pub fn of(value: u64) -> Self {
        Self {
            value,
            last_access: 0,
        }
    }

    /// Returns a key whose ties the last use of a block decides.
    pub fn with_use(value: u64, facts: &Facts) -> Self {
        Self {
            value,
            last_access: facts.last_access,
        }
    }
}

/// The facts about a block that a policy may use, or about a run of blocks with equal facts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number of blocks before it; for a run, of its deepest block.
    pub depth: u32,
    /// Uses while cached; the insertion is the first.
    pub hits: u64,
    /// Number of the release that used it last, from 1; a counter, never the clock.
    pub last_access: u64,
    /// Number of the release that inserted it.
    pub created: u64,
    /// Time of the last use, for policies with durations.
    pub last_access_ns: i64,
    /// Blocks found cached by the request that inserted it.
    pub found_blocks: u32,
    /// Blocks computed by the request that inserted it.
    pub computed_blocks: u32,
}

/// Changes of a key by the passage of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lapse {
    /// No change.
    Never,
    /// From this time on the block counts as absent.
    Gone(i64),
    /// From this time on the block has this key.
    Rekey(i64, Key),
}

/// A policy that orders leaves by a key; among equal keys the deepest block goes first.
///
/// The store keeps the candidates (resident, not held, no resident child) ordered by key. It computes the key
/// after every insertion and hit, and reports evictions to the policy.
pub trait LeafPolicy: Send + Sync {
    /// Return the key of a block that was just inserted or hit.
    fn key(&self, facts: &Facts) -> Key;

    /// Record that a block with this key was evicted for capacity.
    fn on_evict(&mut self, _key: Key) {}

    /// Return the change that an unused block undergoes with time.
    fn lapse(&self, _facts: &Facts) -> Lapse {
        Lapse::Never
    }

    /// Depths (in blocks) at which a run must be split because its blocks have different values.
    fn split_at(&self) -> &[u32] {
        &[]
    }

    /// Return true if the key of a block depends on its depth, so that a run must leave block by block.
    fn by_depth(&self) -> bool {
        false
    }
}

/// Map a non-negative float to an integer of the same order.
pub fn ordered(value: f64) -> u64 {
    debug_assert!(value >= 0.0);
    value.to_bits()
}

//! What an engine keeps below vLLM's pool: which of a prompt's blocks it brings, and what it takes of what is computed.

use super::copied_pool::CopiedPool;
use super::copies::Copy;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{MoveId, Part, Violation};

/// The blocks of a request's prompt.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// Whose it is.
    pub request: u32,
    /// Its full blocks.
    pub whole_blocks: u32,
    /// The keys of the trace.
    pub keys: &'a BlockKeys,
}

impl Prompt<'_> {
    /// The key of a block.
    pub fn key(&self, block: u32) -> u64 {
        self.keys.key(self.request, block)
    }

    /// The keys of blocks `[start, end)`, in order.
    pub fn keys(&self, (start, end): (u32, u32)) -> impl DoubleEndedIterator<Item = u64> + '_ {
        (start..end).map(|block| self.key(block))
    }
}

/// Where decisions of the tiers take effect.
pub struct Site<'a> {
    /// The pool above, which starts their copies.
    pub pool: &'a mut CopiedPool,
    /// The machine's records.
    pub records: &'a mut Records,
    /// When this happens.
    pub now_ns: u64,
}

/// The tiers below a pool, by an engine's rules.
pub trait Below: std::fmt::Debug + Send + Sync {
    /// How many tiers there are, the GPU's included.
    fn tiers(&self) -> usize;

    /// How many of a prompt's first `limit` blocks are found, of which the pool has so many.
    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32;

    /// Whether a tier would bring a block that the pool might have too.
    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool;

    /// Where the blocks from one on, up to `limit` at most, lie.
    fn parts(&self, pool: &CopiedPool, prompt: Prompt<'_>, blocks: (u32, u32)) -> Vec<Part>;

    /// Of a path's keys those that it protects while room is made, and holds.
    fn protect(&mut self, keys: Vec<u64>) -> Vec<u64>;

    /// Keeps keys that a copy reads or writes.
    fn hold(&mut self, keys: &[u64]);

    /// Ends a hold.
    fn release_keys(&mut self, keys: &[u64]);

    /// Hears that a prompt has got room; the first of its blocks that is to be offered.
    fn admitted(&mut self, prompt: Prompt<'_>) -> u32;

    /// Uses blocks that are to be loaded, once these moves have ended; what the load waits for then.
    fn load(
        &mut self,
        site: Site<'_>,
        prompt: Prompt<'_>,
        blocks: (u32, u32),
        after: &[MoveId],
    ) -> Vec<MoveId>;

    /// The first block of a prompt that is to be offered after blocks up to `to` were loaded, which was `before`.
    fn offers_after(&self, before: u32, to: u32) -> u32;

    /// Takes computed blocks of a prompt and sends what it stores; false where it has no room.
    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, blocks: (u32, u32)) -> bool;

    /// Hears that a copy has ended.
    fn ended(&mut self, copy: &Copy, by: MoveId);

    /// Hears that a request has ended.
    fn finish(&mut self, request: u32);

    /// How the blocks of a tier are used.
    fn occupancy(&self, pool: &CopiedPool, tier: usize) -> TierOccupancy;

    /// What a tier has lost so far.
    fn eviction_counts(&self, tier: usize) -> EvictionCounts;

    /// How many blocks of a tier a faster one has too.
    fn duplicates(&self, pool: &CopiedPool, tier: usize) -> u64;

    /// Checks the tiers (I2, I3).
    fn check(&self, pool: &CopiedPool) -> Result<(), Violation>;
}

/// A run of blocks in parts of equal tier and move, told block by block.
#[derive(Debug, Default)]
pub struct InParts(Vec<Part>);

impl InParts {
    /// Adds the next block.
    pub fn add(&mut self, block: u32, (tier, by): (usize, MoveId)) {
        match self.0.last_mut() {
            Some(last) if (last.tier, last.by) == (tier, by) => last.end = block + 1,
            _ => self.0.push(Part {
                tier,
                start: block,
                end: block + 1,
                by,
            }),
        }
    }

    /// The parts.
    pub fn done(self) -> Vec<Part> {
        self.0
    }
}

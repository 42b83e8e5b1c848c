//! Tiers that an engine keeps below vLLM's pool: the prompt blocks they load, and the computed blocks they
//! store.

use std::ops::Range;

use super::copied_pool::CopiedPool;
use super::copies::Copy;
use super::held_keys::HeldKeys;
use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::connector::LookUp;
use crate::store::contract::{EvictionCounts, TierOccupancy};
use crate::store::{MoveId, Part, Violation};

/// Blocks of a request's prompt.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// Request of the prompt.
    pub request: u32,
    /// Number of the prompt's full blocks.
    pub whole_blocks: u32,
    /// Blocks of a chunk, the unit in which the tiers store.
    pub chunk_blocks: u32,
    /// Keys of the trace.
    pub keys: &'a BlockKeys,
}

impl Prompt<'_> {
    /// Returns the key of a block.
    pub fn key(&self, block: u32) -> u64 {
        self.keys.key(self.request, block)
    }

    /// Returns the number of the prompt's full chunks.
    pub fn whole_chunks(&self) -> u32 {
        self.whole_blocks / self.chunk_blocks
    }

    /// Returns the key of a chunk: that of its last block, which names all before it.
    pub fn chunk_key(&self, chunk: u32) -> u64 {
        self.key((chunk + 1) * self.chunk_blocks - 1)
    }

    /// Returns the keys of a range of chunks, in order.
    pub fn chunk_keys(&self, chunks: Range<u32>) -> Vec<u64> {
        chunks.map(|chunk| self.chunk_key(chunk)).collect()
    }

    /// Returns for each of a range of blocks the key of its chunk.
    pub fn chunk_keys_of_blocks(&self, blocks: BlockRange) -> Vec<u64> {
        let chunks = (blocks.start..blocks.end).map(|block| block / self.chunk_blocks);
        chunks.map(|chunk| self.chunk_key(chunk)).collect()
    }

    /// Returns the end of the blocks that vLLM's CPU tier adds to the first `from`, at most `limit`
    /// (`_lookup_complete_chunks`): whole chunks from the one in which they end on, and at least a chunk more.
    pub fn reached(&self, from: u32, limit: u32, has: impl Fn(u64) -> bool) -> u32 {
        let per = self.chunk_blocks;
        let mut chunks = from / per..limit / per;
        let lacking = chunks.find(|&chunk| !has(self.chunk_key(chunk)));
        let end = lacking.unwrap_or(limit / per) * per;
        if end < from + per {
            return from;
        }
        end
    }

    /// Returns the keys of a range of blocks, in order.
    pub fn keys(&self, blocks: BlockRange) -> impl DoubleEndedIterator<Item = u64> + '_ {
        (blocks.start..blocks.end).map(|block| self.key(block))
    }
}

/// Pool, records and time on which the decisions of the tiers act.
pub struct Site<'a> {
    /// Pool above, which starts the tiers' copies.
    pub pool: &'a mut CopiedPool,
    /// Records of the machine.
    pub records: &'a mut Records,
    /// Time of the decision.
    pub now_ns: u64,
}

/// Tiers whose copies are parts of steps.
pub trait InSteps {
    /// Looks up the leading chunks of a prompt, renews and pins them; returns their keys.
    fn pin(&mut self, prompt: Prompt<'_>) -> Vec<u64>;

    /// Stores chunks of a prompt as far as there is capacity; returns for each block that is copied its chunk's key.
    fn save(&mut self, site: Site<'_>, prompt: Prompt<'_>, chunks: Range<u32>) -> Vec<u64>;
}

/// Tiers below a pool, under an engine's rules.
pub trait Below: std::fmt::Debug + Send + Sync {
    /// Returns the number of tiers, including the GPU's.
    fn tiers(&self) -> usize;

    /// Returns the blocks of a chunk, the unit in which the tiers store.
    fn chunk_blocks(&self) -> u32 {
        1
    }

    /// Returns the tiers as LMCache's connector uses them, if they are its.
    fn in_steps(&mut self) -> Option<&mut dyn InSteps> {
        None
    }

    /// Returns the number of a prompt's first `limit` blocks that are found; the pool has `in_pool` of them.
    fn found(&self, prompt: Prompt<'_>, in_pool: u32, limit: u32) -> u32;

    /// Looks up the blocks behind the pool's, as an engine's own scheduler does; `is_loading`: keys of chunks that
    /// loads still read. Found without a wait by default.
    fn look_up(
        &self,
        _pool: &CopiedPool,
        prompt: Prompt<'_>,
        in_pool: u32,
        _is_loading: &dyn Fn(u64) -> bool,
    ) -> LookUp {
        match self.found(prompt, in_pool, prompt.whole_blocks) {
            end if end > in_pool => LookUp::Found(end),
            _ => LookUp::Nothing,
        }
    }

    /// Returns true if a tier would load a block that the pool might have too.
    fn brings(&self, prompt: Prompt<'_>, block: u32) -> bool;

    /// Returns the tiers of a range of blocks; the range is cut to the blocks found.
    fn parts(&self, pool: &CopiedPool, prompt: Prompt<'_>, blocks: BlockRange) -> Vec<Part>;

    /// Protects keys of a path during evictions. Returns the keys that the tiers hold for it; none where look-up and
    /// loads of a request happen at one moment, the default.
    fn protect(&mut self, _keys: Vec<u64>) -> Vec<u64> {
        Vec::new()
    }

    /// Returns the keys that copies between the pool and the CPU tier read or write.
    fn in_use(&mut self) -> &mut HeldKeys;

    /// Handles the reservation of a prompt's blocks, of which the pool had `in_pool`. Returns the first block that is to
    /// be offered.
    fn admitted(&mut self, prompt: Prompt<'_>, in_pool: u32) -> u32;

    /// Uses blocks that are loaded after given moves. Returns the moves that the load waits for.
    fn load(
        &mut self,
        site: Site<'_>,
        prompt: Prompt<'_>,
        blocks: BlockRange,
        after: &[MoveId],
    ) -> Vec<MoveId>;

    /// Returns the first block to offer after blocks up to `_to` were loaded; it was `before`, and stays by default.
    fn offers_after(&self, before: u32, _to: u32) -> u32 {
        before
    }

    /// Stores computed blocks of a prompt and starts their copies. Returns false if there is no capacity.
    fn offer(&mut self, site: Site<'_>, prompt: Prompt<'_>, blocks: BlockRange) -> bool;

    /// Handles the end of a copy.
    fn ended(&mut self, copy: &Copy, by: MoveId);

    /// Handles the end of a prompt's request.
    fn finish(&mut self, prompt: Prompt<'_>);

    /// Lets loops run that wake by the clock, up to a time; by default there are none.
    fn run_loops(&mut self, _: &mut Records, _now_ns: u64) {}

    /// Returns the use of a tier's blocks.
    fn occupancy(&self, pool: &CopiedPool, tier: usize) -> TierOccupancy;

    /// Returns the evictions and drops of a tier so far.
    fn eviction_counts(&self, tier: usize) -> EvictionCounts;

    /// Returns the number of a tier's blocks that a faster tier has too.
    fn duplicates(&self, pool: &CopiedPool, tier: usize) -> u64;

    /// Checks the tiers (I2, I3).
    fn check(&self, pool: &CopiedPool) -> Result<(), Violation>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::NO_REQUEST;

    #[test]
    fn a_hit_grows_by_a_chunk_from_the_chunk_in_which_the_pools_hit_ends() {
        let ids = (0..10).collect();
        let keys = BlockKeys::new(vec![0, 10], ids, 1, vec![10], vec![NO_REQUEST]).unwrap();
        let prompt = Prompt {
            request: 0,
            whole_blocks: 10,
            chunk_blocks: 4,
            keys: &keys,
        };
        let reached = |from, there: &[u32]| {
            let has = |key| there.iter().any(|&chunk| prompt.chunk_key(chunk) == key);
            prompt.reached(from, 10, has)
        };
        assert_eq!(reached(0, &[0]), 4);
        assert_eq!(reached(1, &[0]), 1, "three blocks are less than a chunk");
        assert_eq!(reached(1, &[0, 1]), 8);
        assert_eq!(
            reached(1, &[1]),
            1,
            "the chunk in which the pool ends is needed"
        );
        assert_eq!(reached(4, &[1]), 8);
        assert_eq!(reached(8, &[0, 1]), 8, "the rest of the prompt is no chunk");
    }
}

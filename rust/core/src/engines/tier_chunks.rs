//! Chunks of an engine's tiers as blocks of the pool above: the size of a chunk, and the blocks of each.

use std::ops::Range;

use super::below::Prompt;
use super::key_index::KeyMap;
use crate::ids::BlockRange;
use crate::store::contract::TierOccupancy;
use crate::store::STAGING;

/// Numbers of blocks, or of chunks, of the two tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierBlocks {
    /// Those of the CPU tier.
    pub cpu: u64,
    /// Those of the disk tier; 0: none.
    pub disk: u64,
}

/// Size of a chunk, capacities of the tiers, and the blocks of the chunks that they keep.
#[derive(Debug)]
pub struct TierChunks {
    /// Blocks of a chunk.
    pub blocks: u32,
    /// The remainder of whole chunks is never used.
    capacity_blocks: TierBlocks,
    /// Keys of the blocks of each chunk, where a chunk has several.
    keys: KeyMap<u64, Box<[u64]>>,
}

impl TierChunks {
    /// Chunks of `blocks` blocks in a CPU tier and a disk tier of given blocks.
    pub fn new(blocks: u32, capacity_blocks: TierBlocks) -> Self {
        Self {
            blocks,
            capacity_blocks,
            keys: KeyMap::default(),
        }
    }

    /// Returns the chunks of the CPU tier and of the disk tier.
    pub fn capacities(&self) -> TierBlocks {
        let per = u64::from(self.blocks);
        TierBlocks {
            cpu: self.capacity_blocks.cpu / per,
            disk: self.capacity_blocks.disk / per,
        }
    }

    /// Returns the blocks of a tier.
    fn capacity_blocks(&self, tier: usize) -> u64 {
        [self.capacity_blocks.cpu, self.capacity_blocks.disk][tier - STAGING]
    }

    /// Returns the use of a tier's blocks, from its chunks, those in use, and those of them being written.
    pub fn occupancy(&self, tier: usize, [there, in_use, writing]: [u64; 3]) -> TierOccupancy {
        let per = u64::from(self.blocks);
        TierOccupancy {
            free: self.capacity_blocks(tier) - there * per,
            held: (in_use - writing) * per,
            cached: (there - in_use) * per,
            in_flight: writing * per,
            private: 0,
        }
    }

    /// Returns the chunks' keys, each once for every block.
    pub fn each_block(&self, keys: &[u64]) -> Vec<u64> {
        let each = |&key| std::iter::repeat_n(key, self.blocks as usize);
        keys.iter().flat_map(each).collect()
    }

    /// Remembers the blocks of a prompt's chunks that a tier keeps.
    pub fn stored(&mut self, prompt: Prompt<'_>, chunks: Range<u32>) {
        for chunk in chunks {
            let blocks = BlockRange::new(chunk * self.blocks, (chunk + 1) * self.blocks);
            self.has_blocks(prompt.chunk_key(chunk), || prompt.keys(blocks).collect());
        }
    }

    /// Remembers the blocks of a chunk that a tier keeps.
    pub fn has_blocks(&mut self, chunk: u64, blocks: impl Fn() -> Box<[u64]>) {
        if self.blocks > 1 {
            self.keys.insert(chunk, blocks());
        }
    }

    /// Forgets the blocks of chunks that no tier keeps any more.
    pub fn forget(&mut self, keys: &[u64], is_here: impl Fn(u64) -> bool) {
        for &key in keys {
            if !is_here(key) {
                self.take(key);
            }
        }
    }

    /// Returns the keys of a chunk's blocks, and forgets them.
    pub fn take(&mut self, chunk: u64) -> Box<[u64]> {
        self.keys.remove(&chunk).unwrap_or_else(|| [chunk].into())
    }

    /// Returns the number of a chunk's blocks that a pool has.
    pub fn in_pool(&self, has: impl Fn(u64) -> bool, chunk: u64) -> u64 {
        match self.keys.get(&chunk) {
            Some(keys) => keys.iter().filter(|&&key| has(key)).count() as u64,
            None => u64::from(has(chunk)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_tier_sum_to_its_blocks() {
        let chunks = TierChunks::new(2, TierBlocks { cpu: 21, disk: 8 });
        let parts = |tier, counts| {
            let there = chunks.occupancy(tier, counts);
            [there.free, there.held, there.cached, there.in_flight]
        };
        assert_eq!(parts(STAGING, [7, 3, 1]), [7, 4, 8, 2]);
        assert_eq!(parts(STAGING + 1, [4, 4, 4]), [0, 0, 0, 8]);
    }
}

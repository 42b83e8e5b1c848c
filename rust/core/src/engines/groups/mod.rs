//! vLLM's manager of several KV cache groups in one pool (0.33.0, `HybridKVCacheCoordinator`).
//!
//! Layers of one kind share block tables. Every block of the pool is one page for each layer of one group,
//! so full attention, sliding windows, chunks and recurrent states compete for the same capacity. A hit is
//! joint: every group must be able to continue from it.
//!
//! | file | contents |
//! |---|---|
//! | `rules` | blocks that each kind finds, drops and keeps |
//! | `pool` | blocks, their queue, the keys of each group |
//! | `joint_hit` | the longest prefix that all groups can continue from |
//! | `tables` | the blocks of one request in one group |
//! | `manager` | the pool and its holders; look-ups, and the keys of computed blocks |
//! | `admission` | admission of a request with its hit |
//! | `extend` | capacity for the next tokens of a running request |
//! | `release` | blocks that a request releases |
//! | `lost` | prefixes that requests could not continue from, with group and cause |
//! | `replay` | requests in file order, times ignored |

/// Admission of a request with its hit.
pub mod admission;
mod check;
mod extend;
pub mod joint_hit;
/// Prefixes that requests could not continue from, and the causes.
pub mod lost;
/// The pool and its holders.
pub mod manager;
pub(super) mod pool;
mod release;
/// Replay of requests through the manager.
pub mod replay;
/// Blocks that each kind of group finds, drops and keeps.
pub mod rules;
pub mod tables;

pub use pool::GroupKey;
use std::sync::Arc;

use crate::convert::fit;
use crate::keys::BlockKeys;

pub use joint_hit::Found;

/// Part of a sequence that a group keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Every block.
    Full,
    /// The blocks of the last `n` tokens, including the next token.
    Sliding(u64),
    /// The blocks of the current chunk of `n` tokens.
    Chunked(u64),
    /// One state, of the last computed token.
    Linear,
}

/// Layers that share block tables.
#[derive(Debug, Clone)]
pub struct Group {
    /// Part of a sequence that the group keeps.
    pub kind: Kind,
    /// Tokens per block.
    pub block_size: u64,
    /// Keys of units that divide the block; a block has the key of its last unit.
    pub keys: Arc<BlockKeys>,
    /// Units per block.
    pub units: u32,
}

impl Group {
    /// Returns the key of a request's block.
    pub fn key(&self, request: u32, block: u32) -> u64 {
        self.keys.key(request, (block + 1) * self.units - 1)
    }

    /// Returns the key of a block, and the number of blocks from it on whose keys increase by one.
    pub fn run(&self, request: u32, block: u32) -> (u64, u32) {
        if self.units == 1 {
            return self.keys.run(request, block);
        }
        (self.key(request, block), 1)
    }

    /// Returns the number of blocks that hold `tokens` tokens, the last perhaps in part.
    pub fn blocks(&self, tokens: u64) -> u32 {
        fit::<u32>(tokens.div_ceil(self.block_size))
    }

    /// Returns the number of whole blocks in `tokens` tokens.
    pub fn whole(&self, tokens: u64) -> u32 {
        fit::<u32>(tokens / self.block_size)
    }
}

/// Engine whose rules of reuse the pool follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// vLLM's rules: a key computed twice has two blocks; a request releases group by group, each last to
    /// first.
    Engine,
    /// The tree's rules: a key has one block; a request releases from its end to its start, across groups.
    Tree,
}

/// Settings of the engine that decide which blocks are kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most tokens that one step computes.
    pub max_num_batched_tokens: u64,
    /// Tokens between kept checkpoints. 0: only at the end of a prompt or where it diverged from the prefix
    /// found. `None`: every aligned boundary.
    pub retention_interval: Option<u64>,
    /// Longest sequence.
    pub max_model_len: u64,
    /// Rules of reuse.
    pub reuse: Reuse,
}

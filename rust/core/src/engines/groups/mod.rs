//! vLLM's manager of several KV cache groups in one pool (0.33.0, `HybridKVCacheCoordinator`).
//!
//! Layers of one kind share block tables; every block of the pool is one page for each layer of one group,
//! so full attention, sliding windows, chunks and recurrent states take room from one another. A hit is
//! joint: every group must be able to go on from it.
//!
//! | file | what lives there |
//! |---|---|
//! | `rules` | what each kind finds, drops and keeps |
//! | `pool` | blocks, their queue, the keys of each group |
//! | `joint_hit` | the longest prefix that all groups can go on from |
//! | `tables` | the blocks of one request in one group |
//! | `manager` | the pool and who holds what of it; look-ups, and the keys of what is computed |
//! | `admission` | whether a request and what it has found fit |
//! | `room` | room for the next tokens of a running request |
//! | `release` | blocks that a request lets go of |
//! | `lost` | what requests could not go on from, of which group, and why |
//! | `replay` | requests in file order, times ignored |

/// Whether a request fits.
pub mod admission;
mod check;
mod extend;
pub mod joint_hit;
/// What could not be gone on from, and why.
pub mod lost;
/// The pool and who holds what of it.
pub mod manager;
pub(super) mod pool;
mod release;
/// Requests through the manager.
pub mod replay;
/// What each kind of group finds, drops and keeps.
pub mod rules;
pub mod tables;

use std::sync::Arc;

use crate::keys::BlockKeys;

pub use joint_hit::Found;

/// What a group keeps of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Every block.
    Full,
    /// The blocks of the last tokens: so many, the next one included.
    Sliding(u64),
    /// The blocks of the current chunk of so many tokens.
    Chunked(u64),
    /// One state, of the last computed token.
    Linear,
}

/// Layers that share block tables.
#[derive(Debug, Clone)]
pub struct Group {
    /// What it keeps.
    pub kind: Kind,
    /// Tokens a block.
    pub block_size: u64,
    /// Keys of units that divide the block; a block has the key of its last one.
    pub keys: Arc<BlockKeys>,
    /// Units a block.
    pub units: u32,
}

impl Group {
    /// The key of a request's block.
    pub fn key(&self, request: u32, block: u32) -> u64 {
        self.keys.key(request, (block + 1) * self.units - 1)
    }

    /// The key of a block, and how many blocks from it on have that key plus one, plus two, and so on.
    pub fn run(&self, request: u32, block: u32) -> (u64, u32) {
        if self.units == 1 {
            return self.keys.run(request, block);
        }
        (self.key(request, block), 1)
    }

    /// Blocks that hold some tokens, the last one perhaps in part.
    pub fn blocks(&self, tokens: u64) -> u32 {
        tokens.div_ceil(self.block_size) as u32
    }

    /// Whole blocks in some tokens.
    pub fn whole(&self, tokens: u64) -> u32 {
        (tokens / self.block_size) as u32
    }
}

/// Whose rules of reuse the pool follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// vLLM's: a key computed twice has two blocks; a request's go group by group, each last to first.
    Engine,
    /// The tree's: a key has one block; a request's go from its end to its begin, whatever their group.
    Tree,
}

/// The engine's settings that decide what is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most tokens that one step computes.
    pub max_num_batched_tokens: u64,
    /// Tokens between kept checkpoints; 0: only where a prompt ends or parted from what was found; `None`:
    /// every aligned boundary.
    pub retention_interval: Option<u64>,
    /// Longest sequence.
    pub max_model_len: u64,
    /// Rules of reuse.
    pub reuse: Reuse,
}

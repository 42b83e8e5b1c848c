//! Cache decisions without time: a trace's prompts, one after another, against one tier.
//!
//! - `runs`      the trace as a static radix tree: every request is a sequence of whole runs
//! - `growing`   the same tree while rows come, for traces that are not kept
//! - `recency`   least recently used on runs, released tail first or touched root first
//! - `leaves`    any `LeafPolicy` on segments of runs: leaf first, blocks of requests in flight are held
//! - `leaf_tier` its tier
//! - `holds`     requests in flight, and the blocks they hold
//! - `blocks`    the trace block by block, for policies that keep queues of single blocks
//! - `objects`   any `ObjectPolicy` on blocks: flat, or leaf first
//! - `online`    any of these but `belady` on a trace that is read row by row
//! - `belady`    clairvoyant upper bounds: farthest next use, prefix-closed or flat
//! - `curve`     stack distances: the hits of least recently used at every capacity, from one pass
//! - `stack`     the same row by row, in memory by distinct blocks
//! - `sampled`   the same from a sample of the ids, with parts that give its error
//! - `newer`     blocks in recency order; `steps`: the curve as a step function
#![deny(missing_docs)]

pub mod belady;
pub mod blocks;
pub mod curve;
pub mod growing;
pub mod holds;
pub mod leaf_tier;
pub mod leaves;
pub mod newer;
pub mod objects;
pub mod online;
pub mod prompt_error;
pub mod recency;
pub mod runs;
pub mod sampled;
pub mod stack;
pub mod steps;

use crate::causes::eviction_log::EvictedMiss;
use prompt_error::PromptError;
use stack::RowBlocks;

/// A replay that takes rows as they are read and keeps none.
pub trait RowReplay: Send + Sync {
    /// Replays a row by its ids and blocks, and returns its hits in blocks. Fails as `Prompts::check`.
    fn row(&mut self, ids: &[u32], blocks: RowBlocks, arrival_ns: i64) -> Result<u32, PromptError>;

    /// The totals so far.
    fn totals(&self) -> Totals;
}

/// Totals of a tier, as in [`Decisions`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Blocks removed for capacity, or because they expired.
    pub evictions: u64,
    /// Of `evictions`, the blocks that had expired.
    pub expired: u64,
    /// Blocks resident now.
    pub resident: u64,
}

/// The result of one replay: the hits of each request in blocks, and the totals of the tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Leading resident blocks of each request (flat: resident blocks anywhere in it).
    pub hits: Vec<u32>,
    /// Blocks removed for capacity, or because they expired.
    pub evictions: u64,
    /// Of `evictions`, the blocks that had expired.
    pub expired: u64,
    /// Blocks resident after the last request.
    pub resident: u64,
    /// Known blocks that were missed, if requested; `by` is `u32::MAX` for blocks never admitted.
    pub missed: Vec<EvictedMiss>,
}

impl Decisions {
    /// The decisions of a replay that ended with these totals.
    fn of(hits: Vec<u32>, totals: Totals, missed: Vec<EvictedMiss>) -> Self {
        Self {
            hits,
            evictions: totals.evictions,
            expired: totals.expired,
            resident: totals.resident,
            missed,
        }
    }
}

/// The end of a request's blocks that is touched first at its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TouchFrom {
    /// Deepest block first, as vLLM frees them: the root ends as the most recent.
    Tail,
    /// Root first: the deepest block ends as the most recent; prefix closure is lost.
    Root,
}

//! Cache decisions without time: a trace's prompts, one after another, against one tier.
//!
//! - `runs`      the trace as a static radix tree: every request is a sequence of whole runs
//! - `recency`   least recently used on runs, released tail first or touched root first
//! - `leaves`    any `LeafPolicy` on segments of runs: leaf first, what requests in flight need is held
//! - `holds`     requests in flight, and what they hold
//! - `blocks`    the trace block by block, for policies that keep queues of single blocks
//! - `objects`   any `ObjectPolicy` on blocks: flat, or leaf first
//! - `belady`    the ceilings: farthest next use, prefix-closed or flat
//! - `curve`     stack distances: the hits of least recently used at every capacity, from one pass
#![deny(missing_docs)]

pub mod belady;
pub mod blocks;
pub mod curve;
pub mod holds;
pub mod leaves;
pub mod objects;
pub mod recency;
pub mod runs;

use crate::causes::eviction_log::EvictedMiss;

/// What one replay decided; the hits of each request in blocks, and the totals of the tier.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Leading resident blocks of each request (flat: resident blocks anywhere in it).
    pub hits: Vec<u32>,
    /// Blocks removed to make room, or because they expired.
    pub evictions: u64,
    /// Of `evictions`, those whose time had run out.
    pub expired: u64,
    /// Blocks resident after the last request.
    pub resident: u64,
    /// Known blocks that were missed, where they are asked for; `by` is `u32::MAX` for what never came in.
    pub missed: Vec<EvictedMiss>,
}

/// Which end of a request's blocks is touched first when it is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TouchFrom {
    /// Deepest block first, as vLLM frees them: the root ends as the most recent.
    Tail,
    /// Root first: the deepest block ends as the most recent; prefix closure is lost.
    Root,
}

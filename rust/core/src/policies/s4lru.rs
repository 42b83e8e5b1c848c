//! S4LRU: four segments of recency; a use lifts a block one segment.
//!
//! What it does: Four segments have a quarter of the capacity each, by recency. New blocks join the lowest, a use
//! lifts a block one segment. A full segment passes its least recent block to the one below. Evict the lowest
//! segment's least recent block.
//!
//! Why: As `slru`, with degrees: a block has to lose three segments before it is at risk.
//!
//! Example: Of 4 blocks, `a b c d a e f c g` evicts `b e f`: a climbs, so b falls into its segment and is evicted
//! for e; c climbs later.
//!
//! Source: Huang et al., SOSP 2013.

use super::segments::Segments;
use super::{Bounds, NativePolicy};

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("s4lru", |_, bounds| Box::new(segments(bounds)));

/// Four quarters of the capacity, rounded down; the remainder belongs to the lowest segment until a block
/// falls into it. A new block enters the lowest segment with capacity, so an empty cache fills from below.
/// Both are libCacheSim's rules.
fn segments(bounds: Bounds) -> Segments<4> {
    Segments::new(vec![bounds.capacity / 4; 4], bounds.universe)
}

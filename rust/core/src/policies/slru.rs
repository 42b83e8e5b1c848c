//! Segmented LRU: blocks used again are protected.
//!
//! What it does: New blocks join probation, and a use moves a block to protection, which has four fifths of the
//! capacity. Blocks that exceed its capacity return to probation. Evict probation's least recent block first.
//!
//! Why: One-shot prompts evict each other, not the blocks of conversations.
//!
//! Example: Of 5 blocks, `a a b c d e f` evicts `b`: a was used twice, so b is evicted although a was used longer
//! ago.
//!
//! Source: Karedla et al., IEEE Computer 1994.

use super::segments::Segments;
use super::{Bounds, NativePolicy};

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("slru", |_, bounds| Box::new(segments(bounds)));

/// New and demoted blocks are on probation, whatever their number; four fifths of the capacity may be
/// protected.
fn segments(bounds: Bounds) -> Segments<2> {
    let protected_blocks = bounds.capacity - bounds.capacity.div_ceil(5);
    Segments::new(vec![usize::MAX, protected_blocks], bounds.universe)
}

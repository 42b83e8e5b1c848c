//! Segmented LRU: blocks used again are protected; blocks that lose protection get another round (Karedla et al. 1994).

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

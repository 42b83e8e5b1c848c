//! S4LRU: four segments of recency; each use lifts a block one segment (Huang et al., SOSP 2013).

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

//! S4LRU: four segments of recency, of which each use climbs one (Huang et al., SOSP 2013).

use super::segments::Segments;
use super::{Bounds, NativePolicy};

/// The row of this policy.
pub const POLICY: NativePolicy =
    NativePolicy::queue("s4lru", |_, bounds| Box::new(segments(bounds)));

/// Four quarters of the room, rounded down; what four does not divide is the lowest segment's until a block
/// falls into it. A newcomer takes the lowest segment with room, so an empty cache fills from below: both are
/// libCacheSim's rules.
fn segments(bounds: Bounds) -> Segments<4> {
    Segments::new(vec![bounds.capacity / 4; 4], bounds.universe)
}

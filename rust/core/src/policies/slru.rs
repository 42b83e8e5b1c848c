//! Segmented LRU: what is used again is protected; what falls out of protection gets another round (Karedla et al. 1994).

use super::segments::Segments;
use super::{NativePolicy, Room};

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::queue("slru", |_, room| Box::new(segments(room)));

/// Newcomers and what fell are on probation, whatever their number; four fifths of the room may be protected.
fn segments(room: Room) -> Segments<2> {
    let protected_blocks = room.capacity - room.capacity.div_ceil(5);
    Segments::new(vec![usize::MAX, protected_blocks], room.universe)
}

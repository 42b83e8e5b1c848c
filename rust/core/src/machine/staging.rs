//! Copies of a machine's blocks up its tiers, to the one that the GPU and the network read.

use crate::ids::BlockRange;
use crate::store::{Answer, MoveId, Store, NO_MOVE, STAGING};

/// Copies blocks up to the tier they are loaded from, each copy fed by the one below; returns (tier it reads, move)
/// for each. If a tier has too few free blocks, the copies end below it.
pub(super) fn stage_up(
    store: &mut Store,
    request: u32,
    blocks: BlockRange,
    (mut level, mut by): (usize, MoveId),
    now_ns: u64,
) -> Answer<Vec<(usize, MoveId)>> {
    let mut copies = Vec::new();
    while level > STAGING {
        let ready = (by != NO_MOVE).then_some(by);
        let Some(copy) = store.stage(request, blocks, level - 1, ready, now_ns)? else {
            break;
        };
        copies.push((level, copy));
        (level, by) = (level - 1, copy);
    }
    Ok(copies)
}

/// True if the copies reach the tier that blocks are loaded from.
pub(super) fn is_staged(copies: &[(usize, MoveId)]) -> bool {
    copies
        .last()
        .is_some_and(|&(level, _)| level == STAGING + 1)
}

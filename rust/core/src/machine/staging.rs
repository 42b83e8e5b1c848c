//! Copies of a machine's blocks up its tiers, to the one that the GPU and the network read.

use crate::store::{Answer, MoveId, Part, Store, NO_MOVE, STAGING};

/// A copy from a tier to the tier above.
#[derive(Clone, Copy, Debug)]
pub(super) struct StagedCopy {
    /// The tier it reads.
    pub from: usize,
    pub id: MoveId,
}

/// Copies a part up to the tier that blocks are loaded from, each copy fed by the one below. If a tier has too few free
/// blocks, the copies end below it.
pub(super) fn stage_up(
    store: &mut Store,
    request: u32,
    part: &Part,
    now_ns: u64,
) -> Answer<Vec<StagedCopy>> {
    let (mut level, mut by) = (part.tier, part.by);
    let mut copies = Vec::new();
    while level > STAGING {
        let ready = (by != NO_MOVE).then_some(by);
        let Some(copy) = store.stage(request, part.blocks(), level - 1, ready, now_ns)? else {
            break;
        };
        copies.push(StagedCopy {
            from: level,
            id: copy,
        });
        (level, by) = (level - 1, copy);
    }
    Ok(copies)
}

/// True if the copies reach the tier that blocks are loaded from.
pub(super) fn is_staged(copies: &[StagedCopy]) -> bool {
    copies.last().is_some_and(|copy| copy.from == STAGING + 1)
}

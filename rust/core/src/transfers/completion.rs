//! Completion of moves: actions after a move has finished, and moments without moves in flight.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::prefetch_state::PrefetchState;
use crate::ids::BlockRange;
use crate::store::contract::BlockStore;
use crate::store::{Answer, MoveId, PairHasher};

/// Blocks of a request on a tier.
#[derive(Clone, Copy, Debug)]
pub struct TierCopy {
    /// The request.
    pub request: u32,
    /// Its blocks.
    pub blocks: BlockRange,
    /// The tier.
    pub tier: usize,
}

/// An action after a move has finished, in addition to notifying its store.
#[derive(Clone, Copy, Debug)]
enum OnComplete {
    /// Drop a request's blocks on the tier that they were read from.
    DropCopy(TierCopy),
    /// Release the next step, which waits for the written blocks.
    Written,
    /// Count blocks of a request as prefetched.
    Prefetched { request: u32, blocks: u64 },
}

/// Actions that run once a machine's moves have finished.
#[derive(Debug, Default)]
pub struct Completions {
    actions: HashMap<MoveId, OnComplete, BuildHasherDefault<PairHasher>>,
    /// Copies in flight that the next step waits for.
    pub(crate) written: Vec<MoveId>,
    /// True if no move was in flight at some moment ([`Completions::take_drained`]).
    drained: bool,
}

impl Completions {
    /// Drops the lower copy of blocks once a move has loaded them.
    pub(super) fn drop_copy(&mut self, id: MoveId, copy: TierCopy) {
        self.actions.insert(id, OnComplete::DropCopy(copy));
    }

    /// Makes the next step wait for a copy.
    pub(super) fn delay_step(&mut self, id: MoveId) {
        self.written.push(id);
        self.actions.insert(id, OnComplete::Written);
    }

    /// Counts blocks of a request as prefetched once a move has brought them.
    pub(super) fn count_prefetch(&mut self, id: MoveId, request: u32, blocks: u64) {
        let count = OnComplete::Prefetched { request, blocks };
        self.actions.insert(id, count);
    }

    /// Runs the action of a move that has finished.
    pub(super) fn run(
        &mut self,
        id: MoveId,
        store: &mut dyn BlockStore,
        prefetch_state: Option<&mut PrefetchState>,
    ) -> Answer<()> {
        if self.actions.is_empty() {
            return Ok(());
        }
        match self.actions.remove(&id) {
            Some(OnComplete::DropCopy(copy)) => {
                if let Some(tree) = store.tiered() {
                    tree.drop_copy(copy.request, copy.blocks.start, copy.blocks.end, copy.tier)?;
                }
            }
            Some(OnComplete::Written) => self.written.retain(|&other| other != id),
            Some(OnComplete::Prefetched { request, blocks }) => {
                if let Some(state) = prefetch_state {
                    state.came(request, id, blocks);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Records if no move is in flight as a request finishes; discards the earlier record.
    pub(super) fn request_finished(&mut self, is_idle: bool) {
        self.drained = is_idle;
    }

    /// Records if a move that has finished was the last one in flight.
    pub(super) fn move_finished(&mut self, is_idle: bool) {
        self.drained |= is_idle;
    }

    /// Returns true if no move was in flight at some moment since a request last finished, or since the last
    /// call.
    pub fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }
}

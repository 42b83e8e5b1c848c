//! What is done once a move has ended.

use super::mover::Mover;
use super::peers::Now;
use super::transfer::TransferId;
use crate::store::{Answer, MoveId, GPU};

/// What a move leaves to do, beside that its store hears of its end.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnComplete {
    /// Give up a request's blocks on the tier that they were read from.
    DropCopy {
        request: u32,
        blocks: (u32, u32),
        tier: usize,
    },
    /// The next step waits no more for what was written.
    Written,
    /// Blocks of a request have come up ahead of it.
    PrefetchState { request: u32, blocks: u64 },
}

impl Mover {
    /// Gives up the lower copy of a request's blocks once a move has brought them up, where its edge says so.
    pub fn drop_on_complete(
        &mut self,
        id: MoveId,
        request: u32,
        blocks: (u32, u32),
        (upper, tier): (usize, usize),
    ) {
        if self.config.exclusive[upper] {
            let drop = OnComplete::DropCopy {
                request,
                blocks,
                tier,
            };
            self.on_complete.insert(id, drop);
        }
    }

    /// Lets the next step wait for a copy.
    pub fn delays_step(&mut self, id: MoveId) {
        self.written.push(id);
        self.on_complete.insert(id, OnComplete::Written);
    }

    /// Counts blocks that a move brings up ahead of their request.
    pub fn note_prefetch(&mut self, id: MoveId, request: u32, blocks: u64) {
        if let Some(prefetch_state) = &mut self.prefetch_state {
            prefetch_state.leaves(blocks);
            self.on_complete
                .insert(id, OnComplete::PrefetchState { request, blocks });
        }
    }

    /// Tells the store that a move is done.
    pub(super) fn move_ended(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let transfer = &self.transfers[id];
        let (move_id, to) = (transfer.id, transfer.to);
        let written = to > GPU && (!transfer.comes_up() || transfer.from == self.config.remote);
        if let (true, Some(tree)) = (written, now.store.tiered()) {
            self.write_arrived(tree, (move_id, to), now.ns)?;
        }
        self.in_flight.remove(&move_id);
        self.move_left();
        if let Some(moving) = now.store.moving() {
            moving.finish_move(move_id)?;
        }
        if !self.on_complete.is_empty() {
            match self.on_complete.remove(&move_id) {
                Some(OnComplete::DropCopy {
                    request,
                    blocks,
                    tier,
                }) => {
                    if let Some(tree) = now.store.tiered() {
                        tree.drop_copy(request, blocks.0, blocks.1, tier)?;
                    }
                }
                Some(OnComplete::Written) => self.written.retain(|&other| other != move_id),
                Some(OnComplete::PrefetchState { request, blocks }) => {
                    if let Some(prefetch_state) = &mut self.prefetch_state {
                        prefetch_state.came(request, move_id, blocks);
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Notes whether nothing is under way as a request leaves; what was noted before does not count.
    pub(crate) fn request_leaves(&mut self) {
        self.drained = self.in_flight.is_empty();
    }

    /// Notes whether a move that has ended was the last one under way.
    pub(super) fn move_left(&mut self) {
        self.drained |= self.in_flight.is_empty();
    }

    /// Whether there was such a moment since a request last left, or since the last call.
    pub fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    /// How many moves are under way.
    pub fn open_moves(&self) -> usize {
        self.in_flight.len()
    }
}

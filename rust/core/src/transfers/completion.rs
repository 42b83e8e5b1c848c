//! Completion of moves: actions after a move has finished, and moments without moves in flight.

use super::mover::Mover;
use super::peers::Now;
use super::transfer::TransferId;
use crate::store::{Answer, MoveId, GPU};

/// An action after a move has finished, in addition to notifying its store.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnComplete {
    /// Drop a request's blocks on the tier that they were read from.
    DropCopy {
        request: u32,
        blocks: (u32, u32),
        tier: usize,
    },
    /// Release the next step, which waits for the written blocks.
    Written,
    /// Count blocks of a request as prefetched.
    PrefetchState { request: u32, blocks: u64 },
}

impl Mover {
    /// Drops the lower copies of a request's blocks once a move has loaded them, if the edge is exclusive.
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

    /// Makes the next step wait for a copy.
    pub fn delays_step(&mut self, id: MoveId) {
        self.written.push(id);
        self.on_complete.insert(id, OnComplete::Written);
    }

    /// Counts blocks that a move prefetches for a request.
    pub fn note_prefetch(&mut self, id: MoveId, request: u32, blocks: u64) {
        if let Some(prefetch_state) = &mut self.prefetch_state {
            prefetch_state.leaves(blocks);
            self.on_complete
                .insert(id, OnComplete::PrefetchState { request, blocks });
        }
    }

    /// Returns true if a transfer brings blocks that are new to its machine's lower tiers.
    pub(super) fn is_written(&self, id: TransferId) -> bool {
        let transfer = &self.transfers[id];
        transfer.to > GPU && (!transfer.comes_up() || transfer.from == self.config.remote)
    }

    /// Notifies the store that a move has finished, and runs the move's completion action.
    pub(super) fn move_ended(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let (move_id, to) = (self.transfers[id].id, self.transfers[id].to);
        if let (true, Some(tree)) = (self.is_written(id), now.store.tiered()) {
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

    /// Records if no move is in flight as a request finishes; discards the earlier record.
    pub(crate) fn request_leaves(&mut self) {
        self.drained = self.in_flight.is_empty();
    }

    /// Records if a move that has finished was the last one in flight.
    pub(super) fn move_left(&mut self) {
        self.drained |= self.in_flight.is_empty();
    }

    /// Returns true if no move was in flight at some moment since a request last finished, or since the last
    /// call.
    pub fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    /// Returns the number of moves in flight.
    pub fn open_moves(&self) -> usize {
        self.in_flight.len()
    }
}

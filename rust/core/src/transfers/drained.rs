//! Moments at which no move of a machine is under way: instant runs wait for them.

use super::mover::Mover;

impl Mover {
    /// Notes whether nothing is under way as a request leaves; what was noted before does not count.
    pub(crate) fn request_leaves(&mut self) {
        self.drained = self.under_way.is_empty();
    }

    /// Notes whether a move that has ended was the last one under way.
    pub(super) fn move_left(&mut self) {
        self.drained |= self.under_way.is_empty();
    }

    /// Whether there was such a moment since a request last left, or since the last call.
    pub fn take_drained(&mut self) -> bool {
        std::mem::take(&mut self.drained)
    }

    /// How many moves are under way.
    pub fn open_moves(&self) -> usize {
        self.under_way.len()
    }
}

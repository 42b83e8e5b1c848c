//! A transfer whose times were decided elsewhere: it only arrives here.

use super::channel::Transmission;
use super::mover::Mover;
use crate::store::MoveId;

impl Mover {
    /// Lets a move arrive at the times of a transmission, which are final.
    pub fn arrive(
        &mut self,
        id: MoveId,
        (from, to): (usize, usize),
        blocks: u64,
        sent: Transmission,
    ) {
        let place = self.place();
        let transfer = &mut self.transfers[place as usize];
        transfer.begin(id, (from, to), blocks);
        transfer.sent = Some(sent);
        self.under_way.insert(id, place);
        let by_layer = self.comes_by_layer(self.transfer(place));
        if by_layer && sent.first_layer_ns < sent.completion_ns {
            self.schedule(sent.first_layer_ns, place, false);
        }
        self.schedule(sent.completion_ns, place, true);
    }

    /// Moves that have not ended, in ascending order.
    pub fn unfinished_moves(&self) -> Vec<MoveId> {
        let mut moves: Vec<MoveId> = self.under_way.keys().copied().collect();
        moves.sort_unstable();
        moves
    }
}

//! Which prefixes a store has, entered where routers read it beside those of other machines.

use std::sync::Arc;

use super::board::{marks, Seat};
use super::check::Violation;
use super::node::Node;
use super::Store;
use crate::ids::NodeId;
use crate::keys::BlockKeys;

impl Store {
    /// The keys of all requests.
    pub fn keys(&self) -> &Arc<BlockKeys> {
        &self.keys
    }

    /// Enters what it has, from now on too, where routers read it. Cost: a walk over all runs.
    pub fn sit(&mut self, seat: Seat) {
        for id in self.found_runs() {
            let Node { start, end, .. } = self.nodes[id as usize];
            self.enter(&seat, id, (start, end), true);
        }
        self.seats.push(seat);
    }

    /// Tells routers that blocks of a run have their first copy, or that their last one has gone.
    pub(super) fn tell(&self, id: NodeId, blocks: (u32, u32), has: bool) {
        for seat in &self.seats {
            self.enter(seat, id, blocks, has);
        }
    }

    fn enter(&self, seat: &Seat, id: NodeId, blocks: (u32, u32), has: bool) {
        let owner = self.nodes[id as usize].owner;
        for mark in marks(blocks) {
            seat.has_prefix(mark, self.keys.key(owner, mark - 1), has);
        }
    }

    fn found_runs(&self) -> impl Iterator<Item = NodeId> + '_ {
        let live = self.live_nodes().into_iter();
        live.filter(|&id| !self.is_gone(id))
    }

    /// Whether all that routers read is what is here.
    pub(super) fn check_seats(&self) -> Result<(), Violation> {
        if self.seats.is_empty() {
            return Ok(());
        }
        let mut entries = Vec::new();
        for id in self.found_runs() {
            let Node {
                owner, start, end, ..
            } = self.nodes[id as usize];
            entries.extend(marks((start, end)).map(|mark| (mark, self.keys.key(owner, mark - 1))));
        }
        entries.sort_unstable();
        if self.seats.iter().any(|seat| seat.entries() != entries) {
            return Err("routers read other prefixes than there are".to_owned());
        }
        Ok(())
    }
}

//! Arrival of transfers: their dependents are fed and launched, and the store is notified.

use super::handles::TransferId;
use super::mover::Mover;
use super::peers::Now;
use crate::store::Answer;

impl Mover {
    /// Handles the arrival of a transfer's first layer: launches the transfers that it feeds.
    pub fn first_layer(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        for dependent in self.transfers[id].dependents.clone() {
            if self.transfers[dependent].job.is_none() {
                self.launch(now, dependent)?;
            }
        }
        Ok(())
    }

    /// Handles the arrival of a whole transfer: notifies the store and launches the transfers that waited for
    /// it. The caller then notifies its watchers and calls [`Mover::forget`].
    pub fn complete(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let transfer = &mut self.transfers[id];
        let dependents = std::mem::take(&mut transfer.dependents);
        if transfer.hop.is_none() {
            let written = match now.store.tiered() {
                Some(tree) => self.paths_written(tree, id)?,
                None => Vec::new(),
            };
            self.move_ended(now, id)?;
            for (request, end) in written {
                self.put(now, request, end)?;
            }
        }
        self.source_read(now, id)?;
        for dependent in dependents {
            if self.transfers[dependent].job.is_some() {
                self.feed_on(dependent, self.config.layers, now.ns);
                continue;
            }
            let waits = &mut self.transfers[dependent].waits;
            waits.retain(|&other| other != id);
            self.launch(now, dependent)?;
        }
        Ok(())
    }

    /// Notifies the store that a move has finished, and runs the move's completion action.
    fn move_ended(&mut self, now: &mut Now<'_>, id: TransferId) -> Answer<()> {
        let (move_id, to) = (self.transfers[id].id, self.transfers[id].to);
        if let (true, Some(tree)) = (self.is_written(id), now.store.tiered()) {
            self.writes.write_arrived(tree, move_id, to, now.ns)?;
        }
        self.in_flight.remove(&move_id);
        self.completions.move_finished(self.in_flight.is_empty());
        if let Some(moving) = now.store.moving() {
            moving.finish_move(move_id)?;
        }
        let prefetch_state = self.prefetch_state.as_mut();
        self.completions.run(move_id, now.store, prefetch_state)
    }
}

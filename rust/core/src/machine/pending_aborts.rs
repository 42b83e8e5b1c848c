//! Requests that their clients have aborted and that have not left yet.

use super::Slot;

/// Aborted requests that have not left yet: their slots, and their numbers, since slots are reused.
#[derive(Debug, Default)]
pub(super) struct PendingAborts(pub Vec<(Slot, u32)>);

impl PendingAborts {
    pub fn note(&mut self, slot: Slot, request: u32) {
        if !self.0.contains(&(slot, request)) {
            self.0.push((slot, request));
        }
    }

    /// Removes the entry of a slot that is free from now on.
    pub fn forget(&mut self, slot: Slot) {
        self.0.retain(|&(other, _)| other != slot);
    }
}

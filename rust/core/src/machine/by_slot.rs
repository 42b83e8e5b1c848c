//! What a scheduler of an engine's own knows of each request, by its place in the replica.

use std::ops::{Index, IndexMut};

use super::Slot;

/// One sequence for each place that was ever taken.
#[derive(Clone, Debug, Default)]
pub(super) struct BySlot<Q>(Vec<Q>);

impl<Q: Clone + Default> BySlot<Q> {
    /// Puts a sequence in the place of one that has left, or in a new place.
    pub fn put(&mut self, slot: Slot, sequence: Q) {
        let slots = self.0.len().max(slot as usize + 1);
        self.0.resize(slots, Q::default());
        self[slot] = sequence;
    }

    /// That of a place, where it was ever put there.
    pub fn get(&self, slot: Slot) -> Option<&Q> {
        self.0.get(slot as usize)
    }
}

impl<Q> Index<Slot> for BySlot<Q> {
    type Output = Q;

    #[inline]
    fn index(&self, slot: Slot) -> &Q {
        &self.0[slot as usize]
    }
}

impl<Q> IndexMut<Slot> for BySlot<Q> {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Q {
        &mut self.0[slot as usize]
    }
}

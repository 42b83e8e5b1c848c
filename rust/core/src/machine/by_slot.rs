//! Sequences of an engine's own scheduler, by the slot of their request in the replica.

use std::ops::{Index, IndexMut};

use super::Slot;

/// One sequence for each slot that was ever used.
#[derive(Clone, Debug, Default)]
pub(super) struct BySlot<Q>(Vec<Q>);

impl<Q: Clone + Default> BySlot<Q> {
    /// Stores a sequence in a new slot or in the slot of a request that has left.
    pub fn put(&mut self, slot: Slot, sequence: Q) {
        let slots = self.0.len().max(slot as usize + 1);
        self.0.resize(slots, Q::default());
        self[slot] = sequence;
    }

    /// The sequence of a slot, if the slot was ever used.
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

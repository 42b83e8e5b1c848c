//! What a scheduler of an engine's own knows of each request, by its place in the replica.

use std::ops::{Index, IndexMut};

use super::Place;

/// One sequence for each place that was ever taken.
#[derive(Clone, Debug, Default)]
pub(super) struct ByPlace<Q>(Vec<Q>);

impl<Q: Clone + Default> ByPlace<Q> {
    /// Puts a sequence in the place of one that has left, or in a new place.
    pub fn put(&mut self, place: Place, sequence: Q) {
        let places = self.0.len().max(place as usize + 1);
        self.0.resize(places, Q::default());
        self[place] = sequence;
    }

    /// That of a place, where it was ever put there.
    pub fn get(&self, place: Place) -> Option<&Q> {
        self.0.get(place as usize)
    }
}

impl<Q> Index<Place> for ByPlace<Q> {
    type Output = Q;

    #[inline]
    fn index(&self, place: Place) -> &Q {
        &self.0[place as usize]
    }
}

impl<Q> IndexMut<Place> for ByPlace<Q> {
    #[inline]
    fn index_mut(&mut self, place: Place) -> &mut Q {
        &mut self.0[place as usize]
    }
}

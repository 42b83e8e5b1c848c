//! The requests of the step: who runs, in which order they joined, and when the step ends.

use super::Place;

/// The running requests of a machine, beside their batch.
#[derive(Debug, Default)]
pub(super) struct RunningSet {
    /// Requests in the batch, in the order in which they joined.
    pub places: Vec<Place>,
    /// Requests that have ended and still hold their places and blocks (asynchronous scheduling).
    pub leaving: Vec<Place>,
    /// Whether a step runs.
    pub stepping: bool,
    /// When the next boundary is due.
    pub boundary_ns: Option<u64>,
    joined: u64,
}

impl RunningSet {
    /// Lets a request join last; returns its number among all that have joined.
    pub fn join(&mut self, place: Place) -> u64 {
        self.places.push(place);
        self.joined += 1;
        self.joined
    }

    /// Takes a request out.
    pub fn remove(&mut self, place: Place) {
        self.places.retain(|&running| running != place);
    }

    /// Whether a request runs.
    pub fn contains(&self, place: Place) -> bool {
        self.places.contains(&place)
    }
}

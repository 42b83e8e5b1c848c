//! Progress of the data that a transfer sends on, if they come from outside its machine's transfers.

use super::job::Transmission;

/// Progress of the data that a hop sends on, if they come from outside its machine's transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// Available.
    #[default]
    AtHand,
    /// Not arrived, not even the first layer.
    Awaited,
    /// The first layer has arrived; these are its times.
    Comes(Transmission),
}

impl Feed {
    /// Returns the progress of a step in flight; available if there is no step.
    pub fn of_step(step: Option<Transmission>, now_ns: u64) -> Self {
        match step {
            None => Self::AtHand,
            Some(step) if step.first_layer_ns <= now_ns => Self::Comes(step),
            Some(_) => Self::Awaited,
        }
    }
}

/// Progress of a step that computes the data of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// The first layer is computed.
    First,
    /// This number of layers is computed, neither one nor all.
    Layers(u64),
    /// All layers are computed.
    All,
}

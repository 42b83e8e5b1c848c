//! The moves and transfers that a composed step waits for.

use crate::store::MoveId;
use crate::transfers::TransferId;

/// Moves and transfers that a composed step waits for before it starts.
#[derive(Debug, Default)]
pub(super) struct ComposedStep {
    /// Moves that free the blocks it needs.
    pub freeing_moves: Vec<MoveId>,
    /// Transfers whose final times determine its end.
    pub unsettled: Vec<TransferId>,
    /// Start of its wait.
    pub since_ns: u64,
    /// Extra time for the copies submitted before its start.
    pub copies_ns: u64,
}

impl ComposedStep {
    /// True if it waits for nothing, or no step is composed.
    pub fn is_ready(&self) -> bool {
        self.freeing_moves.is_empty() && self.unsettled.is_empty()
    }
}

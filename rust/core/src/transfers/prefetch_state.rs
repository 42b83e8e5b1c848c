//! Prefetching: the number of blocks in flight, and the requests held back in the queue for them (the rules
//! of `Prefetcher` in `spec/movement_policies.py`).

use std::collections::HashMap;

use super::storage_wait::{HoldBack, StorageWaits};
use crate::store::MoveId;

/// Limits of prefetching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchConfig {
    /// Maximum number of blocks in flight.
    pub prefetch_blocks: u64,
    /// Time for which requests wait for their blocks.
    pub hold_back: HoldBack,
    /// Increase of [`HoldBack::For`] for each 1,024 tokens requested, in ns, if an engine's storage brings
    /// the blocks. `None`: no storage does.
    pub storage_per_ki_token_ns: Option<u64>,
}

/// A request's wait: moves that have not finished, and a deadline.
#[derive(Debug)]
struct Awaited {
    moves: Vec<MoveId>,
    until_ns: u64,
}

/// Counts prefetched blocks, and the requests that wait for them.
///
/// ```
/// use kvsim_core::transfers::{HoldBack, PrefetchConfig, PrefetchState};
///
/// let config = PrefetchConfig { prefetch_blocks: 10, hold_back: HoldBack::UntilCome, ..Default::default() };
/// let mut state = PrefetchState::new(config);
/// state.leaves(7);
/// assert_eq!(state.prefetch_blocks(), 3);
/// state.await_moves(5, vec![1], u64::MAX);
/// assert!(state.holds_back(5, 0));
/// state.came(5, 1, 7); // the move 1 has brought them
/// assert!(!state.holds_back(5, 0));
/// assert_eq!((state.prefetch_blocks(), state.blocks), (10, 7));
/// ```
#[derive(Debug, Default)]
pub struct PrefetchState {
    pub(crate) config: PrefetchConfig,
    in_transit_blocks: u64,
    /// Blocks prefetched so far, those in flight included.
    pub blocks: u64,
    awaited: HashMap<u32, Awaited>,
    /// Requests that wait for an engine's storage, if a storage brings the blocks.
    pub storage: Option<StorageWaits>,
}

impl PrefetchState {
    /// Creates a state without blocks in flight.
    pub fn new(config: PrefetchConfig) -> Self {
        let per_ki_token_ns = config.storage_per_ki_token_ns;
        let storage = per_ki_token_ns.map(|ns| StorageWaits::new(config.hold_back, ns));
        Self {
            config,
            storage,
            ..Self::default()
        }
    }

    /// Returns how many more blocks may be in flight.
    pub fn prefetch_blocks(&self) -> u64 {
        self.config.prefetch_blocks - self.in_transit_blocks
    }

    /// Counts blocks whose prefetch starts now.
    pub fn leaves(&mut self, blocks: u64) {
        self.in_transit_blocks += blocks;
        self.blocks += blocks;
    }

    /// Counts blocks of a request that a move has brought.
    pub fn came(&mut self, request: u32, id: MoveId, blocks: u64) {
        self.in_transit_blocks -= blocks;
        if let Some(awaited) = self.awaited.get_mut(&request) {
            awaited.moves.retain(|&other| other != id);
        }
    }

    /// Holds a request back in the queue until these moves have finished, at most until a deadline.
    pub fn await_moves(&mut self, request: u32, moves: Vec<MoveId>, until_ns: u64) {
        self.awaited.insert(request, Awaited { moves, until_ns });
    }

    /// Returns true if a request that could be admitted now still waits for its blocks.
    pub fn holds_back(&mut self, request: u32, now_ns: u64) -> bool {
        let Some(awaited) = self.awaited.get(&request) else {
            return false;
        };
        let stays = now_ns < awaited.until_ns && !awaited.moves.is_empty();
        if !stays {
            self.awaited.remove(&request);
        }
        stays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetch_state() -> PrefetchState {
        PrefetchState::new(PrefetchConfig {
            prefetch_blocks: 8,
            hold_back: HoldBack::For(50),
            storage_per_ki_token_ns: None,
        })
    }

    #[test]
    fn a_request_stays_until_its_time_or_its_last_move() {
        let mut prefetch_state = prefetch_state();
        prefetch_state.leaves(5);
        prefetch_state.await_moves(1, vec![3, 4], 50);
        prefetch_state.came(1, 3, 2);
        assert!(prefetch_state.holds_back(1, 49), "one move is running");
        assert!(!prefetch_state.holds_back(1, 50));
        assert!(
            !prefetch_state.holds_back(1, 49),
            "once it may go it may go"
        );
        prefetch_state.came(1, 4, 3);
        assert_eq!(prefetch_state.prefetch_blocks(), 8);
    }

    #[test]
    fn a_request_without_blocks_in_flight_is_not_held_back() {
        let mut prefetch_state = prefetch_state();
        assert!(!prefetch_state.holds_back(1, 0));
        prefetch_state.leaves(8);
        prefetch_state.came(2, 9, 8);
        assert_eq!(
            (prefetch_state.prefetch_blocks(), prefetch_state.blocks),
            (8, 8)
        );
    }
}

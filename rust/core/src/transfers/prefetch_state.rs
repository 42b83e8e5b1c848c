//! What comes up ahead of its request: how much is on its way, and which requests stay in the queue for it (the rules
//! of `Prefetcher` in `spec/movement_policies.py`).

use std::collections::HashMap;

use super::storage_wait::StorageWait;
use crate::store::MoveId;

/// How long a request that could be admitted stays in the queue for its blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldBack {
    /// Not at all.
    #[default]
    Never,
    /// Until all have come.
    UntilCome,
    /// For so many ns from its prefetch on.
    For(u64),
}

/// How much may come up ahead of its request, and who stays for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefetchConfig {
    /// Most blocks that are on their way at once.
    pub prefetch_blocks: u64,
    /// How long requests stay for their blocks.
    pub hold_back: HoldBack,
    /// Where an engine's storage brings the blocks: how many ns longer [`HoldBack::For`] is for each 1,024 tokens that
    /// were asked for. `None`: no storage does.
    pub storage_per_ki_token_ns: Option<u64>,
}

/// What a request stays for: moves that have not ended, and a time.
#[derive(Debug)]
struct Awaited {
    moves: Vec<MoveId>,
    until_ns: u64,
}

/// Counts what comes up ahead of its request.
///
/// ```
/// use kvsim_core::transfers::{Ahead, PrefetchConfig, HoldBack};
///
/// let hold_back = HoldBack::UntilCome;
/// let mut ahead = Ahead::new(PrefetchConfig { prefetch_blocks: 10, hold_back, ..PrefetchConfig::default() });
/// ahead.leaves(7);
/// assert_eq!(ahead.prefetch_blocks(), 3);
/// ahead.await_moves(5, vec![1], u64::MAX);
/// assert!(ahead.holds_back(5, 0));
/// ahead.came(5, 1, 7); // the move 1 has brought them
/// assert!(!ahead.holds_back(5, 0));
/// assert_eq!((ahead.prefetch_blocks(), ahead.blocks), (10, 7));
/// ```
#[derive(Debug, Default)]
pub struct PrefetchState {
    pub(crate) config: PrefetchConfig,
    in_transit_blocks: u64,
    /// Blocks brought up so far, those on their way included.
    pub blocks: u64,
    awaited: HashMap<u32, Awaited>,
    pub(super) from_storage: HashMap<u32, StorageWait>,
}

impl PrefetchState {
    /// With nothing on its way.
    pub fn new(config: PrefetchConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    /// How many more blocks may be on their way.
    pub fn prefetch_blocks(&self) -> u64 {
        self.config.prefetch_blocks - self.in_transit_blocks
    }

    /// Counts blocks that are on their way from now on.
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

    /// Lets a request stay in the queue until these moves have ended, at most until a time.
    pub fn await_moves(&mut self, request: u32, moves: Vec<MoveId>, until_ns: u64) {
        self.awaited.insert(request, Awaited { moves, until_ns });
    }

    /// Whether a request that could be admitted now still stays for its blocks.
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
        assert!(prefetch_state.holds_back(1, 49), "one move is under way");
        assert!(!prefetch_state.holds_back(1, 50));
        assert!(
            !prefetch_state.holds_back(1, 49),
            "once it may go it may go"
        );
        prefetch_state.came(1, 4, 3);
        assert_eq!(prefetch_state.prefetch_blocks(), 8);
    }

    #[test]
    fn who_has_nothing_on_its_way_does_not_stay() {
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

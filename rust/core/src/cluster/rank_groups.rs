//! The engines whose machines step together as data-parallel ranks, and the time that the ranks share.

use crate::convert::fit;
use crate::step_time::RankStep;

/// Time that the ranks of an engine take together, on top of the slowest rank's own part of a step: experts that
/// they share, and the exchange of tokens. Empty: none.
#[derive(Clone, Debug, Default)]
pub struct SharedTime {
    /// By the tokens of the largest rank, if a CUDA graph holds each rank's step: all ranks are padded to it.
    pub padded_ns: Vec<u64>,
    /// By the tokens of all ranks, for other steps.
    pub total_ns: Vec<u64>,
}

impl SharedTime {
    /// Returns the time of a step of these ranks in ns; the last entry holds beyond the table.
    pub(super) fn of(&self, ranks: &[RankStep]) -> u64 {
        let largest = ranks.iter().map(|rank| rank.tokens).max().unwrap_or(0);
        let total = ranks.iter().map(|rank| rank.tokens).sum::<u64>();
        let found = self.padded_ns.get(fit::<usize>(largest));
        let found = found.or_else(|| self.total_ns.get(fit::<usize>(total)));
        found.or(self.total_ns.last()).copied().unwrap_or(0)
    }
}

/// Assignment of machines to engines as ranks, and the end times of the engines' steps.
#[derive(Debug)]
pub(super) struct Ranks {
    /// Number of consecutive machines that form one engine.
    pub size: u32,
    /// By engine, duration of the dummy step of a rank without requests.
    pub dummy_ns: Vec<u64>,
    /// By engine, time that its ranks take together.
    pub shared: Vec<SharedTime>,
    /// By engine, time at which its step ends or the next step is composed.
    pub boundaries_ns: Vec<Option<u64>>,
}

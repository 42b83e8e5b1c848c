//! A replica as one data-parallel rank of an engine: its steps last as long as those of the slowest rank.

use super::{Now, Replica};
use crate::step_time::RankStep;
use crate::store::Answer;

impl Replica {
    /// Composes a rank's next step; returns its own part of it, or `None` if no request runs.
    pub(super) fn compose_alone(&mut self, now: &mut Now<'_>) -> Answer<Option<RankStep>> {
        self.compose(now)?;
        Ok((!self.batch.is_empty()).then(|| self.batch.rank_step()))
    }

    /// Starts a rank's composed step, which takes as long as that of the slowest rank.
    pub(super) fn start_with_others(&mut self, now: &mut Now<'_>, together_ns: u64) -> Answer<()> {
        let waits_ns = together_ns.saturating_sub(self.batch.step_ns());
        self.batch.start(now.store, now.ns, waits_ns)?;
        self.running.stepping = true;
        // A rank runs its steps one by one: the next steps of the other ranks are not known.
        self.batch.interrupt(now.store, now.ns)?;
        Ok(())
    }
}

//! A replica as one data-parallel rank of an engine: its steps last as long as those of the slowest rank.

use super::{Replica, ServingStore};
use crate::store::Answer;

impl Replica {
    /// Composes a rank's next step; what it would take alone, `None` where nothing runs.
    pub(super) fn compose_alone<S: ServingStore>(
        &mut self,
        store: &mut S,
        now_ns: u64,
    ) -> Answer<Option<u64>> {
        self.compose(store, now_ns)?;
        Ok((!self.batch.is_empty()).then(|| self.batch.step_ns()))
    }

    /// Starts a rank's composed step, which takes as long as that of the slowest rank.
    pub(super) fn start_with_others<S: ServingStore>(
        &mut self,
        store: &mut S,
        now_ns: u64,
        together_ns: u64,
    ) -> Answer<()> {
        let waits_ns = together_ns.saturating_sub(self.batch.step_ns());
        self.batch.start(store, now_ns, waits_ns)?;
        self.running.stepping = true;
        // Every step of a rank is one: what the others take next is not known.
        self.batch.interrupt(store, now_ns)?;
        Ok(())
    }
}

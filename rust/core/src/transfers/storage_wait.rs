//! Waits of requests for an engine's storage (SGLang's stop policies): none under `best-effort`, to the end
//! under `wait`. Under `timeout` a request waits for a time that grows with the tokens requested, from the
//! first time that it could have been admitted.

use super::prefetch_state::{HoldBack, PrefetchState};

/// A request whose blocks a storage brings.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorageWait {
    wait_ns: u64,
    /// End of its wait; `None`: it could not have been admitted yet.
    until_ns: Option<u64>,
}

impl PrefetchState {
    /// Returns true if an engine's storage brings the blocks.
    pub fn is_from_storage(&self) -> bool {
        self.config.storage_per_ki_token_ns.is_some()
    }

    /// Records a prefetch of `tokens` tokens from the storage.
    pub fn asked_storage(&mut self, request: u32, tokens: u64) {
        if let (HoldBack::For(base_ns), Some(per_ki_token_ns)) =
            (self.config.hold_back, self.config.storage_per_ki_token_ns)
        {
            let more_ns = u128::from(tokens) * u128::from(per_ki_token_ns) / 1024;
            let more_ns = u64::try_from(more_ns).unwrap_or(u64::MAX);
            let wait = StorageWait {
                wait_ns: base_ns.saturating_add(more_ns),
                until_ns: None,
            };
            self.from_storage.insert(request, wait);
        }
    }

    /// Returns true if a request that could be admitted now waits for its blocks from the storage. Also
    /// returns the end of the wait, the first time that it is known.
    pub fn waits_for_storage(&mut self, request: u32, now_ns: u64) -> (bool, Option<u64>) {
        match (self.config.hold_back, self.from_storage.get_mut(&request)) {
            (HoldBack::UntilCome, _) => (true, None),
            (HoldBack::For(_), Some(wait)) => {
                let known = wait.until_ns;
                let until_ns = known.unwrap_or(now_ns.saturating_add(wait.wait_ns));
                wait.until_ns = Some(until_ns);
                (now_ns < until_ns, known.is_none().then_some(until_ns))
            }
            _ => (false, None),
        }
    }

    /// Ends the wait of a request: its prefetch has finished.
    pub fn storage_came(&mut self, request: u32) {
        self.from_storage.remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfers::PrefetchConfig;

    fn prefetch_state(hold_back: HoldBack) -> PrefetchState {
        PrefetchState::new(PrefetchConfig {
            hold_back,
            storage_per_ki_token_ns: Some(512),
            ..PrefetchConfig::default()
        })
    }

    #[test]
    fn a_timeout_begins_when_a_request_could_first_be_admitted_and_grows_with_its_tokens() {
        let mut prefetch_state = prefetch_state(HoldBack::For(100));
        prefetch_state.asked_storage(7, 100);
        assert_eq!(
            prefetch_state.waits_for_storage(7, 1000),
            (true, Some(1150))
        );
        assert_eq!(prefetch_state.waits_for_storage(7, 1149), (true, None));
        assert_eq!(prefetch_state.waits_for_storage(7, 1150), (false, None));
    }

    #[test]
    fn the_other_rules_wait_to_the_end_or_not_at_all() {
        for (rule, waits) in [(HoldBack::UntilCome, true), (HoldBack::Never, false)] {
            let mut prefetch_state = prefetch_state(rule);
            prefetch_state.asked_storage(7, 100);
            assert_eq!(prefetch_state.waits_for_storage(7, 1), (waits, None));
        }
    }
}

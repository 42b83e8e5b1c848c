//! Waits of requests for an engine's storage (SGLang's stop policies): none under `best-effort`, to the end
//! under `wait`. Under `timeout` a request waits for a time that grows with the tokens requested, from the
//! first time that it could have been admitted.

use std::collections::HashMap;

/// Time for which a request that could be admitted waits in the queue for its prefetch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldBack {
    /// No wait.
    #[default]
    Never,
    /// Until all blocks have arrived.
    UntilCome,
    /// For this many ns from its prefetch on.
    For(u64),
}

/// The wait of a request whose blocks a storage brings.
#[derive(Clone, Copy, Debug)]
struct StorageWait {
    wait_ns: u64,
    /// End of its wait; `None`: it could not have been admitted yet.
    until_ns: Option<u64>,
}

/// The requests whose blocks an engine's storage brings.
#[derive(Debug)]
pub struct StorageWaits {
    hold_back: HoldBack,
    per_ki_token_ns: u64,
    waits: HashMap<u32, StorageWait>,
}

/// A request that could be admitted now, and the storage that brings its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitNow {
    /// True if it waits.
    pub waits: bool,
    /// The end of its wait, the first time that it is known.
    pub until_ns: Option<u64>,
}

impl StorageWaits {
    /// Creates the waits of a storage; [`HoldBack::For`] grows by `per_ki_token_ns` for each 1,024 tokens.
    pub fn new(hold_back: HoldBack, per_ki_token_ns: u64) -> Self {
        Self {
            hold_back,
            per_ki_token_ns,
            waits: HashMap::new(),
        }
    }

    /// Records a prefetch of `tokens` tokens.
    pub fn asked(&mut self, request: u32, tokens: u64) {
        if let HoldBack::For(base_ns) = self.hold_back {
            let more_ns = u128::from(tokens) * u128::from(self.per_ki_token_ns) / 1024;
            let more_ns = u64::try_from(more_ns).unwrap_or(u64::MAX);
            let wait = StorageWait {
                wait_ns: base_ns.saturating_add(more_ns),
                until_ns: None,
            };
            self.waits.insert(request, wait);
        }
    }

    /// Returns the wait of a request that could be admitted now.
    pub fn wait_now(&mut self, request: u32, now_ns: u64) -> WaitNow {
        let (waits, until_ns) = match (self.hold_back, self.waits.get_mut(&request)) {
            (HoldBack::UntilCome, _) => (true, None),
            (HoldBack::For(_), Some(wait)) => {
                let known = wait.until_ns;
                let until_ns = known.unwrap_or(now_ns.saturating_add(wait.wait_ns));
                wait.until_ns = Some(until_ns);
                (now_ns < until_ns, known.is_none().then_some(until_ns))
            }
            _ => (false, None),
        };
        WaitNow { waits, until_ns }
    }

    /// Ends the wait of a request: its prefetch has finished.
    pub fn came(&mut self, request: u32) {
        self.waits.remove(&request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_now(waits: &mut StorageWaits, now_ns: u64) -> (bool, Option<u64>) {
        let wait = waits.wait_now(7, now_ns);
        (wait.waits, wait.until_ns)
    }

    #[test]
    fn a_timeout_begins_when_a_request_could_first_be_admitted_and_grows_with_its_tokens() {
        let mut waits = StorageWaits::new(HoldBack::For(100), 512);
        waits.asked(7, 100);
        assert_eq!(wait_now(&mut waits, 1000), (true, Some(1150)));
        assert_eq!(wait_now(&mut waits, 1149), (true, None));
        assert_eq!(wait_now(&mut waits, 1150), (false, None));
    }

    #[test]
    fn the_other_rules_wait_to_the_end_or_not_at_all() {
        for (rule, is_held) in [(HoldBack::UntilCome, true), (HoldBack::Never, false)] {
            let mut waits = StorageWaits::new(rule, 512);
            waits.asked(7, 100);
            assert_eq!(wait_now(&mut waits, 1), (is_held, None));
        }
    }
}

//! Requests that are turned away when they come (`AsyncLLM.check_admission`, HTTP 503): their clients may try another
//! machine.

use super::super::Replica;
use super::blocks::Blocks;
use super::VllmScheduler;

impl<B: Blocks> VllmScheduler<B> {
    /// True if a request that comes now is one too many, or prompts without a token have too many tokens. Requests
    /// that their clients have aborted do not count.
    pub(super) fn is_full(&self, desk: &Replica) -> bool {
        let limits = &self.config.limits;
        if limits.max_num_queued_reqs.is_none() && limits.max_num_queued_tokens.is_none() {
            return false;
        }
        let here = self.running.iter().copied().chain(self.waiting.iter());
        let here = here.chain(self.remote.holding.iter());
        let (mut requests, mut tokens) = (0, 0);
        for slot in here.filter(|&slot| !desk.is_aborted(slot)) {
            let s = &self.sequences[slot];
            requests += 1;
            tokens += if s.last_token_ns.is_none() {
                s.prompt
            } else {
                0
            };
        }
        limits
            .max_num_queued_reqs
            .is_some_and(|most| requests >= most)
            || limits
                .max_num_queued_tokens
                .is_some_and(|most| tokens >= most)
    }
}

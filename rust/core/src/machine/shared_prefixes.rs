//! How much of a found run a request may reuse, and what its look-up counts for later ones (seed 000, 3.2 and 3.4).
//!
//! A follow-up turn whose prompt is longer than what its session has may reuse all that is found. Any other request
//! may reuse a run as far as its prefixes were admitted: long enough, and seen in enough prompts before.

use super::{Place, Replica, ServingStore};

impl Replica {
    /// Tokens that the last completed turn of a request's session left, `None` where no turn of it is known.
    pub(super) fn session_tokens<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
    ) -> Option<u64> {
        let session = self.requests[place as usize].arrival.session;
        match store.sessions() {
            _ if session < 0 => None,
            Some(kept) => kept.session_tokens(session, now_ns),
            None => self.views.sessions.tokens(session, now_ns),
        }
    }

    /// Enters a request's completed turn, which left so many tokens, into the session view.
    pub(super) fn turn_completed<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        tokens: u64,
        now_ns: u64,
    ) {
        let arrival = &self.requests[place as usize].arrival;
        let (request, session) = (arrival.request, arrival.session);
        match store.sessions() {
            Some(kept) => kept.complete_turn(request, session, tokens, now_ns),
            None => {
                self.views.sessions.complete_turn(session, tokens, now_ns);
            }
        }
    }

    /// How many of the `found` leading blocks a request may reuse.
    pub(super) fn reusable_blocks<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        found: u32,
        now_ns: u64,
    ) -> u32 {
        if self.views.prefixes.is_none() {
            return found;
        }
        let arrival = self.requests[place as usize].arrival;
        let session_tokens = self.session_tokens(store, place, now_ns);
        if session_tokens.is_some_and(|total| arrival.prompt_tokens > total) {
            return found;
        }
        match (&self.views.prefixes, store.block_keys()) {
            (Some(prefixes), Some(keys)) => prefixes.admitted_blocks(keys, arrival.request, found),
            _ => found,
        }
    }

    /// Counts the prefixes of a request's prompt, after its own first look-up.
    pub(super) fn count_prefixes<S: ServingStore>(&mut self, store: &mut S, place: Place) {
        let arrival = &self.requests[place as usize].arrival;
        if let Some(kept) = store.sessions() {
            kept.observe(arrival.request, arrival.prompt_tokens);
        } else if let (Some(prefixes), Some(keys)) = (&mut self.views.prefixes, store.block_keys())
        {
            let blocks = arrival.prompt_tokens / self.config.block_size_tokens;
            prefixes.observe(keys, arrival.request, blocks as u32);
        }
    }
}

//! Prefix sharing: the part of a found run that a request may reuse, and the counts for later requests (seed 000, 3.2
//! and 3.4).
//!
//! A turn that continues its session may reuse all that is found. Any other request may reuse a run as far as its
//! prefixes were admitted, long enough and seen in enough prompts before, and are within the store's size limit.

use super::{Now, Replica, Slot};

impl Replica {
    /// Tokens that the last completed turn of a request's session left, `None` if no turn of the session is known.
    pub(super) fn session_tokens(&mut self, now: &mut Now<'_>, slot: Slot) -> Option<u64> {
        let session = self.requests[slot].arrival.session;
        match now.store.sessions() {
            _ if session < 0 => None,
            Some(kept) => kept.session_tokens(session, now.ns),
            None => self.sessions.tokens(session, now.ns),
        }
    }

    /// Adds a request's completed turn, which left `tokens` tokens, to the session view.
    pub(super) fn turn_completed(&mut self, now: &mut Now<'_>, slot: Slot, tokens: u64) {
        let arrival = &self.requests[slot].arrival;
        let (request, session) = (arrival.request, arrival.session);
        match now.store.sessions() {
            Some(kept) => kept.complete_turn(request, session, tokens, now.ns),
            None => {
                self.sessions.complete_turn(session, tokens, now.ns);
            }
        }
    }

    /// Number of the `found` leading blocks that a request may reuse.
    pub(super) fn reusable_blocks(&mut self, now: &mut Now<'_>, slot: Slot, found: u32) -> u32 {
        let arrival = self.requests[slot].arrival;
        let shareable = now.store.shareable_blocks(arrival.request, found);
        let continues = |total| arrival.continues(total);
        if shareable < found && self.session_tokens(now, slot).is_some_and(continues) {
            return found;
        }
        shareable
    }
}

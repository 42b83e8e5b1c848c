//! Tokens that a completed turn keeps for the session's next turn, and that a lease returns to its session.

use super::{Lease, TokenStore};
use crate::ids::LeaseId;
use crate::views::NO_ENTRY;

impl TokenStore {
    /// Returns the tokens that a session's last completed turn left here, after sessions past their time to
    /// live are dropped.
    pub fn session_tokens(&mut self, session: i64, now_ns: u64) -> Option<u64> {
        self.expire_sessions(now_ns);
        self.sessions.left_by(session)
    }

    /// Counts the prefixes of a prompt that is admitted for the first time.
    pub fn observe(&mut self, request: u32, prompt_tokens: u64) {
        let blocks = (prompt_tokens / self.block_size_tokens) as u32;
        self.prefixes.admission.observe(&self.keys, request, blocks);
    }

    /// Enters a completed turn of `tokens` tokens into the session view, and keeps its tokens. A session
    /// whose tokens do not fit is forgotten.
    pub fn complete_turn(&mut self, request: u32, session: i64, tokens: u64, now_ns: u64) {
        for gone in self.sessions.complete_turn(session, tokens, now_ns) {
            self.drop_kept(gone);
        }
        if !self.keep(request, session, tokens, now_ns) {
            self.sessions.forget(session);
        }
    }

    /// Drops the sessions past their time to live, and their kept tokens.
    pub(super) fn expire_sessions(&mut self, now_ns: u64) {
        for gone in self.sessions.expire(now_ns) {
            self.drop_kept(gone);
        }
    }

    /// Drops a session and its kept tokens.
    pub(super) fn forget_session(&mut self, session: i64) {
        if self.sessions.forget(session) {
            self.drop_kept(session);
        }
    }

    /// Forgets the session of a request that is alone: tokens that both count would keep it from ever fitting. Returns
    /// false if there is another request, or nothing to forget.
    pub(super) fn forget_own(&mut self, lease: LeaseId, now_ns: u64) -> bool {
        let (request, kept) = (self.leases[lease].request, self.leases[lease].kept);
        let session = self
            .session_of(request)
            .filter(|&session| self.kept.same(session, kept).is_some());
        let (Some(session), 1) = (session, self.leases.iter().count()) else {
            return false;
        };
        let before = self.used();
        self.forget_session(session);
        self.count_eviction(before - self.used(), now_ns);
        true
    }

    /// Frees the tokens kept by a session; prefixes that it shares become evictable.
    fn drop_kept(&mut self, session: i64) {
        let Some(held) = self.kept.remove(session) else {
            return;
        };
        if held.last != NO_ENTRY {
            if held.users > 0 {
                self.prefixes.unpin(held.last);
            }
            self.prefixes.release(held.last);
        }
    }

    /// Keeps a finished turn's tokens for its session, in place of the last turn's; false if they do not fit.
    fn keep(&mut self, request: u32, session: i64, tokens: u64, now_ns: u64) -> bool {
        self.drop_kept(session);
        let candidates = tokens.div_ceil(self.block_size_tokens) as u32;
        let last = self.prefixes.hold_longest(&self.keys, request, candidates);
        let shared = u64::from(self.prefixes.length(last)) * self.block_size_tokens;
        let remainder = tokens.saturating_sub(shared);
        let fits = self.evict_for(remainder, now_ns);
        if last != NO_ENTRY {
            self.prefixes.unpin(last);
            if !fits {
                self.prefixes.release(last);
            }
        }
        if fits {
            self.kept
                .keep(session, last, remainder, self.prefixes.access);
        }
        fits
    }

    /// Makes a lease a user of its session's kept tokens, and takes up to `most` of them over. Returns their
    /// serial number, 0 if the session keeps nothing, and the tokens taken.
    pub(super) fn take_over(&mut self, session: i64, most: u64) -> (u64, u64) {
        let Some((held, taken, is_first)) = self.kept.take(session, most) else {
            return (0, 0);
        };
        if is_first && held.last != NO_ENTRY {
            self.prefixes.pin(held.last);
        }
        (held.serial, taken)
    }

    /// Returns the tokens that a lease took over to its session, as after a preemption.
    pub(super) fn return_taken(&mut self, left: &Lease, now_ns: u64) {
        let Some(session) = self.session_of(left.request) else {
            return;
        };
        let Some(last) = self.kept.same(session, left.kept).map(|held| held.last) else {
            return;
        };
        // If some of the session's tokens have become shared prefixes since, it keeps those instead.
        let is_as_it_was = left.blocks == left.first_blocks;
        let returned = if is_as_it_was { left.taken } else { 0 };
        let is_last = self.kept.restore(session, returned);
        if is_last && last != NO_ENTRY {
            self.prefixes.unpin(last);
        }
        if is_last && !is_as_it_was {
            let tokens = self.sessions.left_by(session).unwrap_or(0);
            if !self.keep(left.request, session, tokens, now_ns) {
                self.sessions.forget(session);
            }
        }
    }
}

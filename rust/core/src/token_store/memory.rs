//! Eviction: the oldest unused entry is evicted, a session's tokens or a shared prefix.

use super::TokenStore;

impl TokenStore {
    /// Returns the unique tokens in memory.
    pub fn used(&self) -> u64 {
        self.prefix_tokens() + self.kept.remainders() + self.private
    }

    /// Returns the tokens of shared prefixes, each counted once.
    pub(super) fn prefix_tokens(&self) -> u64 {
        self.prefixes.blocks() * self.block_size_tokens
    }

    /// Returns the tokens of prefixes and sessions that running requests keep from being evicted.
    pub(super) fn pinned(&self) -> u64 {
        self.prefixes.pinned_blocks() * self.block_size_tokens + self.kept.pinned_remainders()
    }

    /// Evicts the shortfall, the oldest unused entry first. Returns false, evicting nothing, if too much is
    /// pinned.
    pub(super) fn evict_for(&mut self, tokens: u64, now_ns: u64) -> bool {
        let Some(capacity) = self.capacity else {
            return true;
        };
        let needed = |used: u64| used.saturating_add(tokens);
        if needed(self.used()) <= capacity {
            return true;
        }
        if needed(self.private + self.pinned()) > capacity {
            return false;
        }
        while needed(self.used()) > capacity {
            if !self.evict_oldest(now_ns) {
                return false; // tokens that are not pinned can always be evicted
            }
        }
        true
    }

    /// Evicts the oldest unused entry; false if there is none.
    fn evict_oldest(&mut self, now_ns: u64) -> bool {
        let before = self.used();
        let session = self.kept.oldest_unused();
        match (session, self.prefixes.oldest_unused()) {
            (Some((session, _)), None) => self.forget_session(session),
            (Some((session, kept)), Some((_, accessed))) if kept < accessed => {
                self.forget_session(session);
            }
            (_, Some((prefix, _))) => self.prefixes.evict(prefix),
            (None, None) => return false,
        }
        self.count_eviction(before - self.used(), now_ns);
        true
    }

    pub(super) fn count_eviction(&mut self, tokens: u64, now_ns: u64) {
        self.evicted += tokens;
        if tokens > 0 {
            self.records.log_eviction(crate::tiers::GPU, tokens, now_ns);
        }
    }
}

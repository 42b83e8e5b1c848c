//! What a store in time asks of the pool: a request comes with all of its room at once, and gets more by the page.

use super::UnifiedPool;

impl UnifiedPool {
    /// Looks a request up, loads what is on the host and takes `pages` more, those for what is loaded among them;
    /// `limit`: the pages that it may find. False, nothing changed, where `total` tokens of it would not fit if
    /// everything went that may.
    pub fn admit_whole(&mut self, request: u32, limit: u32, pages: u64, total: u64) -> bool {
        let sight = self.tree.peek(request, limit);
        let on_device = u64::from(sight.device_pages);
        let asked = pages.saturating_add(on_device).saturating_mul(self.page);
        if asked > self.capacity_tokens {
            return false;
        }
        let total = total.max(asked);
        let loose = self.tree.counts().evictable_pages - u64::from(sight.idle_device_pages);
        let room = self.free_tokens + (loose + on_device) * self.page;
        if room < self.paged(total) + self.slack() {
            return false;
        }
        let (protected, _) = self.admit(request, u64::from(limit) * self.page);
        let loaded = self.load(request);
        let own = (pages * self.page).saturating_sub(loaded);
        self.demand(own + self.slack());
        self.take(own);
        if let Some(held) = &mut self.held[request as usize] {
            held.filled = protected + loaded.max(pages * self.page);
        }
        true
    }

    /// Takes so many pages for each of some running requests, all or nothing; each has a page evicted ahead of its use.
    pub fn extend_all(&mut self, wanted: &[(u32, u64)]) -> bool {
        self.demand(wanted.len() as u64 * self.page);
        let pages = wanted.iter().try_fold(0u64, |sum, w| sum.checked_add(w.1));
        if pages.is_none_or(|pages| pages > self.free_tokens / self.page) {
            return false;
        }
        for &(request, pages) in wanted {
            self.take(pages * self.page);
            if let Some(held) = &mut self.held[request as usize] {
                held.filled += pages * self.page;
            }
        }
        true
    }

    /// Leading tokens of a running request that are the tree's and locked for it.
    pub fn protected_tokens(&self, request: u32) -> u64 {
        self.of(request).protected
    }

    /// Tokens of a running request that have room, from its first on.
    pub fn filled_tokens(&self, request: u32) -> u64 {
        self.of(request).filled
    }
}

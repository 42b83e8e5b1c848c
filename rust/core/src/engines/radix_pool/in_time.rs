//! Operations of the pool for a timed store: a request is admitted with all of its capacity, and grows by the
//! page.

use super::RadixPool;

/// Pages that a request asks for.
#[derive(Clone, Copy, Debug)]
pub struct RequestPages {
    /// The request.
    pub request: u32,
    /// Number of pages.
    pub pages: u64,
}

impl RadixPool {
    /// Looks up a request, loads its host hit and allocates `pages` more, including those for loaded pages.
    /// `limit` is the number of pages that may hit. Returns false, with no change, if `total` tokens of the
    /// request would not fit after evicting everything evictable.
    pub fn admit_whole(&mut self, request: u32, limit: u32, pages: u64, total: u64) -> bool {
        let sight = self.tree.peek(request, limit);
        let on_device = u64::from(sight.device_pages);
        let asked = pages.saturating_add(on_device).saturating_mul(self.page);
        if asked > self.capacity_tokens {
            return false;
        }
        let total = total.max(asked);
        let loose = self.tree.counts().evictable_pages - u64::from(sight.idle_device_pages);
        let spare = self.free_tokens + (loose + on_device) * self.page;
        if spare < self.paged(total) + self.slack() {
            return false;
        }
        let (protected, _) = self.admit(request, u64::from(limit) * self.page);
        let loaded = self.load(request);
        let own = (pages * self.page).saturating_sub(loaded);
        self.demand(own + self.slack());
        self.take(own);
        self.fill(request, protected + loaded.max(pages * self.page));
        true
    }

    /// Allocates pages for several running requests, all or nothing; each has a page evicted before it is used.
    pub fn extend_all(&mut self, wanted: &[RequestPages]) -> bool {
        self.demand(wanted.len() as u64 * self.page);
        let pages = wanted
            .iter()
            .try_fold(0u64, |sum, w| sum.checked_add(w.pages));
        if pages.is_none_or(|pages| pages > self.free_tokens / self.page) {
            return false;
        }
        for &RequestPages { request, pages } in wanted {
            let taken = pages * self.page;
            self.take(taken);
            self.fill(request, self.of(request).filled + taken);
        }
        true
    }

    /// Allocates up to `tokens` tokens of an admitted request; the caller ensures that the pages are free.
    pub fn grow(&mut self, request: u32, tokens: u64) {
        self.take(self.paged(tokens) - self.paged(self.of(request).filled));
        self.fill(request, tokens);
    }
}

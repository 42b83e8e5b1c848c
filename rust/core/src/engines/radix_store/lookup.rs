//! Look-ups of a request by tier; no change to the tree.

use std::sync::atomic::Ordering;

use super::RadixStore;
use crate::engines::radix_pool::LEAST_LOADED_TOKENS;

impl RadixStore {
    /// Returns the leading pages found on both tiers, and those ready on the device. Too few pages on the host
    /// alone are not loaded. The limit is kept for the request's admission.
    pub(super) fn look(&self, request: u32, limit: u32) -> (u32, u32) {
        self.limits[request as usize].store(limit, Ordering::Relaxed);
        let (on_device, pages) = self.extent(request, limit);
        (pages, self.copies.ready(request, on_device))
    }

    /// Returns the pages found on the device, and on both tiers.
    pub(super) fn extent(&self, request: u32, limit: u32) -> (u32, u32) {
        let sight = self.pool.tree.peek(request, limit);
        let on_host = u64::from(sight.pages - sight.device_pages);
        let is_worth_it = on_host * self.page >= LEAST_LOADED_TOKENS;
        let pages = if is_worth_it {
            sight.pages
        } else {
            sight.device_pages
        };
        (sight.device_pages, pages)
    }
}

//! Look-ups of a request by tier; no change to the tree.

use std::sync::atomic::Ordering;

use super::copies::Copies;
use super::RadixStore;
use crate::convert::fit;
use crate::engines::radix_pool::LEAST_LOADED_TOKENS;
use crate::engines::radix_tree::RadixTree;
use crate::store::{GPU, NO_MOVE};

/// Returns how many of a request's first `limit` pages are ready on the device.
pub(super) fn found(tree: &RadixTree, copies: &Copies, request: u32, limit: u32) -> u32 {
    ready(copies, request, tree.peek(request, limit).device_pages)
}

/// Returns the number of a request's leading pages, all on the device, that have arrived.
fn ready(copies: &Copies, request: u32, on_device: u32) -> u32 {
    if copies.arriving_pages() == 0 {
        return on_device;
    }
    let has_come = |&page: &u32| copies.bringing(GPU, request, page) == NO_MOVE;
    fit::<u32>((0..on_device).take_while(has_come).count())
}

impl RadixStore {
    /// Returns the leading pages found on both tiers, and those ready on the device. Too few pages on the host
    /// alone are not loaded. The limit is kept for the request's admission.
    pub(super) fn look(&self, request: u32, limit: u32) -> (u32, u32) {
        self.limits[request as usize].store(limit, Ordering::Relaxed);
        let (on_device, pages) = self.extent(request, limit);
        (pages, ready(&self.copies, request, on_device))
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

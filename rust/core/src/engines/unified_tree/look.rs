//! Look-ups that change nothing: no node is split, none becomes recent.

use super::{UnifiedTree, ROOT};

/// What a look-up would find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    /// Pages on the device.
    pub device_pages: u32,
    /// Of them those without a lock.
    pub idle_device_pages: u32,
    /// Pages of the whole path; those past the device's are on the host alone.
    pub pages: u32,
}

impl UnifiedTree {
    /// What is known of the request's first `limit` pages.
    pub fn peek(&self, request: u32, limit: u32) -> Sight {
        let (mut sight, mut above) = (Sight::default(), ROOT);
        while let Some((at, common)) = self.step(above, request, sight.pages, limit) {
            let node = &self.nodes[at as usize];
            sight.pages += common;
            if node.on_device {
                sight.device_pages = sight.pages;
                sight.idle_device_pages += if node.locks == 0 { common } else { 0 };
            }
            if common < node.pages {
                break;
            }
            above = at;
        }
        sight
    }
}

//! HiCache's storage below the host (L3): every page written to the host is kept here too, and comes back to
//! the host for a request that waits. Transfers take no time here.

use super::{Found, Node, UnifiedTree, ROOT};
use crate::engines::leaf_order::NodeUse;
use crate::engines::linked_keys::LinkedKeys;

/// Pages under their keys, least recent first.
#[derive(Debug)]
pub struct Storage {
    pages: LinkedKeys,
    /// Pages of room; None: without a bound.
    capacity_pages: Option<u64>,
    /// Fewer pages are not brought to the host (SGLang's `prefetch_threshold`).
    least_pages: u32,
    moved: StorageMoves,
}

/// What is in the storage, and what was written to it and left it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageMoves {
    /// Pages there.
    pub pages: u64,
    /// Pages written that were not there.
    pub written_pages: u64,
    /// Pages that went for others.
    pub evicted_pages: u64,
}

impl Storage {
    /// An empty storage.
    pub fn new(capacity_pages: Option<u64>, least_pages: u32) -> Self {
        Self {
            pages: LinkedKeys::default(),
            capacity_pages,
            least_pages,
            moved: StorageMoves::default(),
        }
    }

    /// Keeps a page, the most recent now. Where there is no room for it, SGLang's file backend removes the least
    /// recent until nine tenths are taken; they are returned.
    fn write(&mut self, key: u64) -> Vec<u64> {
        let mut gone = Vec::new();
        if !self.pages.contains(key) {
            self.moved.written_pages += 1;
            if let Some(capacity) = self.capacity_pages {
                let is_full = self.pages.len() as u64 >= capacity;
                while is_full && 10 * (self.pages.len() as u64 + 1) > 9 * capacity {
                    let Some(oldest) = self.pages.pop() else {
                        break;
                    };
                    gone.push(oldest);
                }
            }
            self.moved.evicted_pages += gone.len() as u64;
        }
        self.pages.push(key);
        gone
    }
}

impl UnifiedTree {
    fn storage(&self) -> Option<&Storage> {
        self.host.as_ref()?.storage.as_ref()
    }

    fn storage_mut(&mut self) -> Option<&mut Storage> {
        self.host.as_mut()?.storage.as_mut()
    }

    /// What is in the storage, and what moved.
    pub fn storage_moves(&self) -> StorageMoves {
        self.storage().map_or(StorageMoves::default(), |storage| {
            let pages = storage.pages.len() as u64;
            StorageMoves {
                pages,
                ..storage.moved
            }
        })
    }

    /// Whether there is a storage.
    pub fn has_storage(&self) -> bool {
        self.storage().is_some()
    }

    /// Whether a page of a request is in the storage.
    pub fn is_stored(&self, request: u32, page: u32) -> bool {
        let key = self.keys.key(request, page);
        self.storage()
            .is_some_and(|storage| storage.pages.contains(key))
    }

    /// Writes a node's pages, which are on the host now, to the storage.
    pub(super) fn store(&mut self, at: u32) {
        if !self.has_storage() {
            return;
        }
        let Node {
            request,
            start,
            pages,
            ..
        } = self.nodes[at as usize];
        for page in start..start + pages {
            let key = self.keys.key(request, page);
            let gone = self.storage_mut().expect("it is there").write(key);
            if let Some(log) = &mut self.log {
                gone.into_iter().for_each(|key| log.evicted(key, 1));
            }
        }
    }

    /// Brings the request's pages behind what was found, up to `limit`, from the storage to the host; returns
    /// how many. Where the host has no room for all, the first of them come.
    pub fn prefetch(&mut self, request: u32, found: Found, limit: u32) -> u32 {
        let anchor = found.node;
        let Some(storage) = self.storage() else {
            return 0;
        };
        let (start, least) = (found.pages, storage.least_pages);
        // half the host is a prefetch's limit
        let is_allowed = self.host_page_tokens() >= 2;
        let goes_on = anchor == ROOT || self.nodes[anchor as usize].on_host;
        if limit - start < least || !goes_on || !is_allowed {
            return 0;
        }
        let is_there = |page: &u32| storage.pages.contains(self.keys.key(request, *page));
        let mut pages = (start..limit).take_while(is_there).count() as u32;
        if pages < least {
            return 0;
        }
        if u64::from(pages) > self.host_free_pages() {
            self.pin(anchor);
            self.evict_host(u64::from(pages));
            self.unpin(anchor);
            pages = u64::from(pages).min(self.host_free_pages()) as u32;
        }
        if pages < least {
            return 0;
        }
        for page in start..start + pages {
            let key = self.keys.key(request, page);
            self.storage_mut().expect("it is there").pages.push(key);
        }
        self.insert_host(request, (start, start + pages), anchor);
        pages
    }

    /// Adds pages that have come from storage, which the tree does not have, behind their anchor.
    fn insert_host(&mut self, request: u32, (start, end): (u32, u32), anchor: u32) {
        let now = self.tick();
        self.change(anchor, |n| n.used.last_access = now);
        let (last_access, creation) = (self.tick(), self.tick());
        let leaf = self.add(Node {
            request,
            start,
            pages: end - start,
            parent: anchor,
            children: 0,
            device_children: 0,
            locks: 0,
            on_device: false,
            on_host: true,
            used: NodeUse {
                last_access,
                creation,
                hit_count: 0,
            },
            priority: self.nodes[anchor as usize].priority,
            history: end,
            duplicate: 0,
        });
        self.change(anchor, |n| n.children += 1);
        self.enter(leaf);
        self.raise_history(anchor, end);
    }
}

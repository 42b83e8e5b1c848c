//! HiCache's storage below the host (L3): every page written to the host is stored here too, and is prefetched
//! to the host for a waiting request. In a replay transfers take no time.

use super::node::{Node, ROOT};
use super::stored_pages::{Storage, StorageMoves};
use super::{Found, RadixTree};
use crate::convert::fit;
use crate::ids::BlockRange;

impl RadixTree {
    fn storage(&self) -> Option<&Storage> {
        self.host.as_ref()?.storage.as_ref()
    }

    fn storage_mut(&mut self) -> Option<&mut Storage> {
        self.host.as_mut()?.storage.as_mut()
    }

    /// Returns the contents of the storage, and its counts.
    pub fn storage_moves(&self) -> StorageMoves {
        self.storage()
            .map_or(StorageMoves::default(), Storage::moves)
    }

    /// Returns true if there is a storage.
    pub fn has_storage(&self) -> bool {
        self.storage().is_some()
    }

    /// Returns true if a page of a request is in the storage.
    pub fn is_stored(&self, request: u32, page: u32) -> bool {
        let key = self.keys.key(request, page);
        self.storage().is_some_and(|storage| storage.contains(key))
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

    /// Prefetches the request's pages behind its hit, up to `limit`, from the storage to the host, at once.
    /// Returns their number.
    pub fn prefetch(&mut self, request: u32, found: Found, limit: u32) -> u32 {
        // A prefetch takes at most half the host.
        if self.host_page_tokens() < 2 {
            return 0;
        }
        let Some(mut storage) = self.host.as_mut().and_then(|host| host.storage.take()) else {
            return 0;
        };
        let pages = self.take_for_prefetch(&mut storage, request, found, limit);
        if let Some(host) = &mut self.host {
            host.storage = Some(storage);
        }
        if pages > 0 {
            self.insert_host(
                request,
                BlockRange::new(found.pages, found.pages + pages),
                found.node,
            );
        }
        pages
    }

    /// Reserves host pages for the request's stored pages behind its hit, up to `limit`. Returns the number of
    /// pages to prefetch, only the first of them if the host cannot hold all.
    pub fn take_for_prefetch(
        &mut self,
        storage: &mut Storage,
        request: u32,
        found: Found,
        limit: u32,
    ) -> u32 {
        let (start, least, anchor) = (found.pages, storage.least_pages, found.node);
        if limit - start < least || !self.may_prefetch_behind(anchor) {
            return 0;
        }
        let pages = self.count_stored_from(storage, request, BlockRange::new(start, limit));
        self.lock_host(anchor, 1);
        let pages = self.take_host(pages, least);
        self.unlock_host(anchor, 1);
        for page in start..start + pages {
            storage.read(self.keys.key(request, page));
        }
        pages
    }

    /// Returns true if pages behind a node may be prefetched: it has a copy on the host, or is the root.
    pub fn may_prefetch_behind(&self, anchor: u32) -> bool {
        anchor == ROOT || self.nodes[anchor as usize].on_host
    }

    /// Returns how many of a request's pages the storage has without a gap.
    pub fn count_stored_from(&self, storage: &Storage, request: u32, pages: BlockRange) -> u32 {
        let is_there = |page: &u32| storage.contains(self.keys.key(request, *page));
        fit::<u32>((pages.start..pages.end).take_while(is_there).count())
    }

    /// Reserves host pages for a prefetch, only some of them if the host cannot hold all. Returns their number; 0 if
    /// there would be fewer than `least`.
    pub fn take_host(&mut self, wanted: u32, least: u32) -> u32 {
        if wanted < least {
            return 0;
        }
        if u64::from(wanted) > self.host_free_pages() {
            self.evict_host(u64::from(wanted));
        }
        let pages = fit::<u32>(u64::from(wanted).min(self.host_free_pages()));
        if pages < least {
            return 0;
        }
        self.reserve_host(pages);
        pages
    }

    /// Inserts prefetched pages behind their anchor, into the reserved host pages. Returns the number of pages
    /// that the tree already had.
    pub fn insert_host(&mut self, request: u32, blocks: BlockRange, anchor: u32) -> u32 {
        let BlockRange { start, end } = blocks;
        self.release_host(blocks.len());
        let (is_kept, now) = (!self.writes_back(), self.tick());
        self.rerank(anchor, |n| n.used.last_access = now);
        let (mut node, mut walked, mut spare) = (anchor, start, 0);
        while let Some((child, common)) = self.step(node, request, walked, end) {
            node = self.walk_into(child, common, now);
            if self.nodes[node as usize].on_host || !is_kept {
                spare += common;
            } else {
                self.change(node, |n| n.on_host = true);
                self.note_on_host(node);
            }
            walked += common;
        }
        let follows = node == ROOT || self.nodes[node as usize].on_host || !is_kept;
        if walked < end && !follows {
            return blocks.len();
        }
        if walked < end {
            self.add_host_leaf(request, BlockRange::new(walked, end), node);
        }
        spare
    }

    fn add_host_leaf(&mut self, request: u32, blocks: BlockRange, parent: u32) {
        let now = self.tick();
        let leaf = self.add(Node {
            on_host: true,
            priority: self.nodes[parent as usize].priority,
            ..Node::new(request, blocks, parent, now)
        });
        self.rerank(parent, |n| n.children += 1);
        self.enter(leaf);
        self.note_on_host(leaf);
        self.raise_history(parent, blocks.end);
    }

    /// Counts the pages of the tree that are in a storage; a page at two positions counts twice. Cost: linear
    /// in pages.
    pub fn count_stored(&self, storage: &Storage) -> u64 {
        let nodes = self.nodes.iter().filter(|n| n.on_device || n.on_host);
        let stored = nodes.map(|n| {
            let pages = n.start..n.start + n.pages;
            let is_stored = |&page: &u32| storage.contains(self.keys.key(n.request, page));
            pages.filter(is_stored).count() as u64
        });
        stored.sum()
    }
}

//! Storage below the host (L3): pages written to the host are then written to the storage, and waiting requests
//! prefetch from it, batch by batch.
//!
//! A page is in the storage when its write has ended. Under write-through a page stays on the host until then.

use super::storage_tier::{Fetch, StorageConfig, StorageTier, Transfer, DISK};
use super::RadixStore;
use crate::engines::radix_tree::host_tier::HostLock;
use crate::engines::radix_tree::ROOT;
use crate::store::contract::{MovingStore, PrefetchingStore};
use crate::store::{Answer, MoveId, Order, StoreError, Times};

impl RadixStore {
    /// Adds a storage below the store.
    #[must_use]
    pub fn above(self, config: StorageConfig) -> Self {
        Self {
            storage: Some(StorageTier::new(config)),
            ..self
        }
    }

    /// Returns true if there is a storage.
    pub fn has_storage(&self) -> bool {
        self.storage.is_some()
    }

    /// Returns the prefetched pages that the tree did not have.
    pub fn prefetched_pages(&self) -> u64 {
        let storage = self.storage.as_ref();
        storage.map_or(0, |storage| storage.prefetched_pages)
    }

    /// Starts the tree's writes: to the host, and from there to the storage; under write-back, after the host
    /// copy.
    pub(super) fn start_writes(&mut self) {
        let tree = &mut self.pool.tree;
        for written in tree.take_written() {
            let (id, run) = self.copies.write(tree, written);
            if let (true, Some(storage)) = (tree.writes_back(), &mut self.storage) {
                let keys = self.copies.keys_of(run);
                if let Some(threads) = &mut storage.threads {
                    let (node, pages) = (written.node, run.end - run.start);
                    threads.wrote(keys, HostLock { node, pages });
                    continue;
                }
                storage.back_up(tree, keys, None, &mut self.copies.orders, vec![id]);
            }
        }
    }

    /// Ends the copies between device and host that a move stands for, and writes to the storage.
    fn finish_copies(&mut self, id: MoveId) -> Answer<()> {
        let tree = &mut self.pool.tree;
        for id in self.copies.ending_with(id) {
            let run = self.copies.finish(tree, id)?;
            if let Some(HostLock { node, pages }) = run.host_lock() {
                tree.unlock_host(node, pages);
                tree.register_loaded(node, pages);
            } else if let (Some(storage), true) = (&mut self.storage, run.kept != ROOT) {
                if let Some(threads) = &mut storage.threads {
                    // a node that was split meanwhile is written in parts
                    let (mut keys, pages) = (self.copies.keys_of(run), run.end - run.start);
                    for part in tree.nodes_of(run.kept, pages) {
                        let rest = keys.split_off(part.pages as usize);
                        tree.lock_host(part.node, part.pages);
                        threads.wrote(std::mem::replace(&mut keys, rest), part);
                    }
                    continue;
                }
                let kept = Some(HostLock {
                    node: run.kept,
                    pages: run.end - run.start,
                });
                let keys = self.copies.keys_of(run);
                storage.back_up(tree, keys, kept, &mut self.copies.orders, Vec::new());
            }
        }
        Ok(())
    }
}

impl PrefetchingStore for RadixStore {
    /// Starts the prefetch of the pages behind the known part of a request's first `limit` pages. Returns the
    /// number of pages requested.
    ///
    /// Returns 0 if no page comes, for one of three reasons. Too few pages are requested or found. The prefix
    /// ends at a node without a host copy. Prefetches in flight have requested their share of the host.
    fn start_prefetch(&mut self, request: u32, limit: u32, now_ns: u64) -> Answer<u32> {
        self.leases.known_request(request)?;
        let (before, mut asked) = (self.evictions(), 0);
        let tree = &mut self.pool.tree;
        let Some(storage) = &mut self.storage else {
            return Ok(0);
        };
        let found = tree.match_prefix(request, limit);
        let is_asking = storage.fetching.contains_key(&request);
        if is_asking || storage.requested_pages * self.page >= storage.config.share_tokens {
            return Ok(0);
        }
        let pages = tree.take_for_prefetch(&mut storage.pages, request, found, limit);
        if pages > 0 {
            let anchor_pages = tree.pages_of(found.node);
            tree.lock_host(found.node, anchor_pages);
            let requested_pages = limit - found.pages;
            let id = storage.fetches.insert(Fetch {
                request,
                anchor: found.node,
                anchor_pages,
                requested_pages,
                start: found.pages,
                pages,
                done: 0,
                is_stopped: false,
            });
            storage.fetching.insert(request, id);
            storage.requested_pages += u64::from(requested_pages);
            storage.read_on(id, &mut self.copies.orders);
            asked = requested_pages;
        }
        self.note_evicted(before, now_ns);
        Ok(asked)
    }

    /// Returns true if pages of a request are still to come from the storage.
    fn is_prefetching(&self, request: u32) -> bool {
        let storage = self.storage.as_ref();
        storage.is_some_and(|storage| storage.fetching.contains_key(&request))
    }

    /// Ends a request's prefetch, keeping the batches that have arrived.
    fn stop_prefetch(&mut self, request: u32) -> Answer<()> {
        let storage = self.storage.as_mut().ok_or(StoreError::NoSuchMove)?;
        let id = storage.fetching.get(&request).copied();
        let id = id.ok_or(StoreError::NoSuchMove)?;
        storage.fetches[id].is_stopped = true;
        storage.end(&mut self.pool.tree, id);
        Ok(())
    }
}

impl MovingStore for RadixStore {
    fn has_orders(&self) -> bool {
        !self.copies.orders.is_empty()
    }

    fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.copies.orders)
    }

    /// Sets the time at which a move ends, used for writes to the storage.
    fn set_times(&mut self, id: MoveId, times: Times) -> Answer<()> {
        if let Some(storage) = &mut self.storage {
            storage.set_times(id, times.ready_ns);
        }
        Ok(())
    }

    /// Finishes a move: the pages written are ready, the pages read may be evicted.
    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        let transfer = self.storage.as_mut().and_then(|tier| tier.moves.remove(id));
        let (tree, orders) = (&mut self.pool.tree, &mut self.copies.orders);
        match (transfer, &mut self.storage) {
            (Some(Transfer::OfThread), _) => {}
            (Some(Transfer::Read(fetch)), Some(storage)) => storage.came(tree, fetch, orders),
            (Some(Transfer::Write(backup)), Some(storage)) => {
                storage.backups.remove(&id);
                let write = |key: u64| storage.pages.write(key).len() as u64;
                let gone: u64 = backup.keys.into_iter().map(write).sum();
                self.records.evicted_from(DISK, gone, backup.done_ns);
                if let Some(HostLock { node, pages }) = backup.kept {
                    tree.unlock_host(node, pages);
                }
            }
            _ => return self.finish_copies(id),
        }
        Ok(())
    }
}

//! Storage below the host (L3): pages written to the host are then written to the storage, and waiting requests
//! prefetch from it, batch by batch.
//!
//! A page is in the storage when its write has ended. Under write-through a page stays on the host until then.

use std::collections::{BTreeMap, BTreeSet};

use super::RadixStore;
use crate::engines::radix_tree::storage::Storage;
use crate::engines::radix_tree::{RadixTree, ROOT};
use crate::store::contract::{MovingStore, PrefetchingStore};
use crate::store::{Answer, MoveId, Order, Slots, StoreError, Times, STAGING, UNBOUNDED};

/// Tier index of the storage.
pub(super) const DISK: usize = STAGING + 1;
/// Pages per read (SGLang's `STORAGE_BATCH_SIZE`); a prefetch ends between two reads.
const BATCH_PAGES: u32 = 128;

/// Configuration of a storage.
#[derive(Debug, Clone, Copy)]
pub struct StorageConfig {
    /// Capacity in pages; None: unbounded.
    pub pages: Option<u64>,
    /// Least number of pages that a prefetch brings.
    pub least_pages: u32,
    /// Tokens that prefetches in flight may request in total.
    pub share_tokens: u64,
}

/// A prefetch: the node that its pages follow, the pages requested, and the pages to come.
#[derive(Debug, Clone, Copy, Default)]
struct Fetch {
    request: u32,
    anchor: u32,
    anchor_pages: u32,
    requested_pages: u32,
    start: u32,
    pages: u32,
    done: u32,
    is_stopped: bool,
}

/// Pages being written to the storage, and the nodes that keep them, with the number of pages of each.
#[derive(Debug, Default)]
struct Backup {
    keys: Vec<u64>,
    kept: Option<(u32, u32)>,
    done_ns: u64,
}

/// Moves from or to the storage.
#[derive(Debug, Default)]
enum Transfer {
    #[default]
    None,
    Read(u64),
    Write(Backup),
}

/// Storage, and the moves from and to it.
#[derive(Debug)]
pub(super) struct StorageTier {
    config: StorageConfig,
    pub pages: Storage,
    moves: Slots<Transfer>,
    /// Writes in flight, in the order of their decisions.
    backups: BTreeSet<MoveId>,
    fetches: Slots<Fetch>,
    /// Prefetch of each request, until it ends.
    fetching: BTreeMap<u32, u64>,
    requested_pages: u64,
    pub prefetched_pages: u64,
}

impl StorageTier {
    pub fn new(config: StorageConfig) -> Self {
        Self {
            config,
            pages: Storage::new(config.pages, config.least_pages),
            moves: Slots::default(),
            backups: BTreeSet::new(),
            fetches: Slots::default(),
            fetching: BTreeMap::new(),
            requested_pages: 0,
            prefetched_pages: 0,
        }
    }

    /// Returns the number of free pages.
    pub fn free_pages(&self) -> u64 {
        self.config.pages.unwrap_or(UNBOUNDED) - self.pages.moves().pages
    }

    fn backup(&mut self, id: MoveId) -> Option<&mut Backup> {
        match self.moves.get_mut(id) {
            Some(Transfer::Write(backup)) => Some(backup),
            _ => None,
        }
    }

    /// Writes pages after given moves; pages that are present already are not written again. The nodes that
    /// `kept` ends with stay on the host meanwhile.
    pub fn back_up(
        &mut self,
        tree: &mut RadixTree,
        keys: Vec<u64>,
        kept: Option<(u32, u32)>,
        (orders, after): (&mut Vec<Order>, Vec<MoveId>),
    ) {
        let new = keys
            .iter()
            .filter(|&&key| !self.pages.contains(key))
            .count();
        let last = self.backups.last().copied();
        match last.filter(|_| new == 0).and_then(|id| self.backup(id)) {
            // The pages become recent after those being written.
            Some(backup) => backup.keys.extend(keys),
            None if new == 0 => keys.into_iter().for_each(|key| self.pages.read(key)),
            None => {
                let backup = Backup {
                    keys,
                    kept,
                    done_ns: 0,
                };
                let id = self.moves.insert(Transfer::Write(backup));
                self.backups.insert(id);
                orders.push(Order {
                    id,
                    from: STAGING,
                    to: DISK,
                    blocks: new as u64,
                    after,
                });
                if let Some((node, pages)) = kept {
                    tree.lock_host(node, pages);
                }
            }
        }
    }

    /// Sets the time at which a write ends.
    pub fn set_times(&mut self, id: MoveId, done_ns: u64) {
        if let Some(backup) = self.backup(id) {
            backup.done_ns = done_ns;
        }
    }

    fn read_on(&mut self, id: u64, orders: &mut Vec<Order>) {
        let fetch = self.fetches[id];
        orders.push(Order {
            id: self.moves.insert(Transfer::Read(id)),
            from: DISK,
            to: STAGING,
            blocks: u64::from(BATCH_PAGES.min(fetch.pages - fetch.done)),
            after: Vec::new(),
        });
    }

    /// Inserts the pages that have arrived into the tree.
    fn end(&mut self, tree: &mut RadixTree, id: u64) {
        let fetch = self.fetches[id];
        self.fetching.remove(&fetch.request);
        self.requested_pages -= u64::from(fetch.requested_pages);
        if fetch.done > 0 {
            let pages = (fetch.start, fetch.start + fetch.done);
            let spare = tree.insert_host(fetch.request, pages, fetch.anchor);
            self.prefetched_pages += u64::from(fetch.done - spare);
        }
        tree.unlock_host(fetch.anchor, fetch.anchor_pages);
    }

    fn came(&mut self, tree: &mut RadixTree, id: u64, orders: &mut Vec<Order>) {
        let fetch = self.fetches[id];
        if fetch.is_stopped {
            // The batch that was in flight is not used.
            tree.release_host(fetch.pages - fetch.done);
            self.fetches.remove(id);
            return;
        }
        let done = fetch.pages.min(fetch.done + BATCH_PAGES);
        self.fetches[id].done = done;
        if done < fetch.pages {
            self.read_on(id, orders);
        } else {
            self.end(tree, id);
            self.fetches.remove(id);
        }
    }

    /// Returns the nodes whose host copies are needed, each with the number of pages that end with it.
    pub fn kept(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let fetches = self.fetching.values().map(|&id| self.fetches[id]);
        let anchors = fetches.map(|fetch| (fetch.anchor, fetch.anchor_pages));
        let writes = self
            .moves
            .iter()
            .filter_map(|(_, transfer)| match transfer {
                Transfer::Write(backup) => backup.kept,
                _ => None,
            });
        anchors.chain(writes)
    }

    /// Counts the pages of the host that prefetches take, from scratch.
    pub fn coming(&self) -> u64 {
        let each = self.fetches.iter().map(|(_, fetch)| {
            let used = if fetch.is_stopped { fetch.done } else { 0 };
            u64::from(fetch.pages - used)
        });
        each.sum()
    }
}

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
                storage.back_up(tree, keys, None, (&mut self.copies.orders, vec![id]));
            }
        }
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
            (Some(Transfer::Read(fetch)), Some(storage)) => storage.came(tree, fetch, orders),
            (Some(Transfer::Write(backup)), Some(storage)) => {
                storage.backups.remove(&id);
                let write = |key: u64| storage.pages.write(key).len() as u64;
                let gone: u64 = backup.keys.into_iter().map(write).sum();
                self.records.evicted_from(DISK, gone, backup.done_ns);
                if let Some((node, pages)) = backup.kept {
                    tree.unlock_host(node, pages);
                }
            }
            (_, storage) => {
                let run = self.copies.finish(tree, id)?;
                if let (Some(storage), true) = (storage, run.kept != ROOT) {
                    let kept = Some((run.kept, run.end - run.start));
                    let keys = self.copies.keys_of(run);
                    storage.back_up(tree, keys, kept, (&mut self.copies.orders, Vec::new()));
                }
            }
        }
        Ok(())
    }
}

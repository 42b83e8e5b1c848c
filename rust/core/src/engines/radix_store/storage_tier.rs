//! The storage below the host in a timed store: its pages, and the moves from and to it.

use std::collections::{BTreeMap, BTreeSet};

use super::storage_threads::Threads;
use crate::engines::radix_tree::host_tier::HostLock;
use crate::engines::radix_tree::stored_pages::Storage;
use crate::engines::radix_tree::RadixTree;
use crate::ids::BlockRange;
use crate::store::{MoveId, Order, Slots, STAGING, UNBOUNDED};

/// Tier index of the storage.
pub(super) const DISK: usize = STAGING + 1;
/// Pages per read (SGLang's `STORAGE_BATCH_SIZE`); a prefetch ends between two reads.
pub(super) const BATCH_PAGES: u32 = 128;

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
pub(super) struct Fetch {
    pub request: u32,
    pub anchor: u32,
    pub anchor_pages: u32,
    pub requested_pages: u32,
    pub start: u32,
    pub pages: u32,
    pub done: u32,
    pub is_stopped: bool,
}

/// Pages being written to the storage, and the nodes that keep them, with the number of pages of each.
#[derive(Debug, Default)]
pub(super) struct Backup {
    pub keys: Vec<u64>,
    pub kept: Option<HostLock>,
    pub done_ns: u64,
}

/// Moves from or to the storage.
#[derive(Debug, Default)]
pub(super) enum Transfer {
    #[default]
    None,
    Read(u64),
    Write(Backup),
    /// A batch of the engine's threads, which know its end themselves.
    OfThread,
}

/// Storage, and the moves from and to it.
#[derive(Debug)]
pub(super) struct StorageTier {
    pub config: StorageConfig,
    pub pages: Storage,
    pub moves: Slots<Transfer>,
    /// Writes in flight, in the order of their decisions.
    pub backups: BTreeSet<MoveId>,
    pub fetches: Slots<Fetch>,
    /// Prefetch of each request, until it ends.
    pub fetching: BTreeMap<u32, u64>,
    pub requested_pages: u64,
    pub prefetched_pages: u64,
    /// The engine's threads, under its own scheduler.
    pub threads: Option<Threads>,
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
            threads: None,
        }
    }

    /// Returns the number of free pages.
    pub fn free_pages(&self) -> u64 {
        self.config.pages.unwrap_or(UNBOUNDED) - self.pages.moves().pages
    }

    pub fn backup(&mut self, id: MoveId) -> Option<&mut Backup> {
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
        kept: Option<HostLock>,
        orders: &mut Vec<Order>,
        after: Vec<MoveId>,
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
                if let Some(HostLock { node, pages }) = kept {
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

    pub fn read_on(&mut self, id: u64, orders: &mut Vec<Order>) {
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
    pub fn end(&mut self, tree: &mut RadixTree, id: u64) {
        let fetch = self.fetches[id];
        self.fetching.remove(&fetch.request);
        self.requested_pages -= u64::from(fetch.requested_pages);
        if fetch.done > 0 {
            let pages = BlockRange::new(fetch.start, fetch.start + fetch.done);
            let spare = tree.insert_host(fetch.request, pages, fetch.anchor);
            self.prefetched_pages += u64::from(fetch.done - spare);
        }
        tree.unlock_host(fetch.anchor, fetch.anchor_pages);
    }

    pub fn came(&mut self, tree: &mut RadixTree, id: u64, orders: &mut Vec<Order>) {
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

    /// Returns the nodes whose host copies are needed.
    pub fn kept(&self) -> impl Iterator<Item = HostLock> + '_ {
        let fetches = self.fetching.values().map(|&id| self.fetches[id]);
        let anchors = fetches.map(|fetch| HostLock {
            node: fetch.anchor,
            pages: fetch.anchor_pages,
        });
        let writes = self
            .moves
            .iter()
            .filter_map(|(_, transfer)| match transfer {
                Transfer::Write(backup) => backup.kept,
                _ => None,
            });
        let threads = self.threads.iter().flat_map(Threads::kept);
        anchors.chain(writes).chain(threads)
    }

    /// Counts the pages of the host that prefetches take, from scratch.
    pub fn coming(&self) -> u64 {
        let each = self.fetches.iter().map(|(_, fetch)| {
            let used = if fetch.is_stopped { fetch.done } else { 0 };
            u64::from(fetch.pages - used)
        });
        let threads = self.threads.as_ref().map_or(0, Threads::reserved_pages);
        each.sum::<u64>() + threads
    }
}

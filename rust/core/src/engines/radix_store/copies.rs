//! Copies between device and host while they are in flight, and their pages.

use std::sync::Arc;

use crate::convert::fit;
use crate::engines::key_index::KeyMap;
use crate::engines::radix_tree::host_tier::HostLock;
use crate::engines::radix_tree::{RadixTree, Written, ROOT};
use crate::ids::BlockRange;
use crate::keys::BlockKeys;
use crate::store::{Answer, MoveId, Order, Slots, StoreError, GPU, NO_MOVE, STAGING};
use crate::tiers::Route;

/// Copy of a request's pages `[start, end)`, and the node whose path stays on the device until it ends.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Copy {
    request: u32,
    pub start: u32,
    pub end: u32,
    pub is_load: bool,
    /// Node that is kept, or the root for none. A load's pages are its request's, and under write-back SGLang
    /// waits for each write before it continues.
    pub kept: u32,
}

impl Copy {
    /// Returns the host copies that a load needs until it ends.
    pub fn host_lock(&self) -> Option<HostLock> {
        (self.is_load && self.kept != ROOT).then_some(HostLock {
            node: self.kept,
            pages: self.end - self.start,
        })
    }
}

/// Indices in `Copies::moving`.
const WRITES: usize = 0;
const LOADS: usize = 1;

/// Copies in flight, and those still to be sent.
#[derive(Debug)]
pub(super) struct Copies {
    keys: Arc<BlockKeys>,
    moves: Slots<Copy>,
    /// Copies decided but not taken yet.
    pub orders: Vec<Order>,
    /// Moves of the pages that are being written, and of those being loaded, by key.
    moving: [KeyMap<u64, MoveId>; 2],
    /// Writes, and loads, that are to be submitted as one copy each.
    queued: [Vec<Order>; 2],
    /// Further moves of a copy that was submitted for several.
    merged: KeyMap<MoveId, Vec<MoveId>>,
}

impl Copies {
    /// No copies, for pages of `keys`.
    pub fn new(keys: Arc<BlockKeys>) -> Self {
        Self {
            keys,
            moves: Slots::default(),
            orders: Vec::new(),
            moving: Default::default(),
            queued: Default::default(),
            merged: KeyMap::default(),
        }
    }

    /// Returns the move that brings a request's page to a tier, or `NO_MOVE` if the page is ready.
    pub fn bringing(&self, tier: usize, request: u32, page: u32) -> MoveId {
        let moving = &self.moving[usize::from(tier == GPU)];
        if moving.is_empty() {
            return NO_MOVE;
        }
        let key = self.keys.key(request, page);
        moving.get(&key).copied().unwrap_or(NO_MOVE)
    }

    /// Returns the number of a request's leading pages, all on the device, that have arrived.
    pub fn ready(&self, request: u32, on_device: u32) -> u32 {
        if self.arriving_pages() == 0 {
            return on_device;
        }
        let has_come = |&page: &u32| self.bringing(GPU, request, page) == NO_MOVE;
        fit::<u32>((0..on_device).take_while(has_come).count())
    }

    /// Returns how many of a request's first `limit` pages are ready on the device.
    pub fn found(&self, tree: &RadixTree, request: u32, limit: u32) -> u32 {
        self.ready(request, tree.peek(request, limit).device_pages)
    }

    /// Returns the number of pages being loaded.
    pub fn arriving_pages(&self) -> u64 {
        self.moving[LOADS].len() as u64
    }

    /// Returns the number of host pages being written.
    pub fn writing_pages(&self, tree: &RadixTree) -> u64 {
        let writes = self.moves.iter().filter(|(_, copy)| !copy.is_load);
        let copies = writes.flat_map(|(id, copy)| {
            let keys = (copy.start..copy.end).map(|page| self.keys.key(copy.request, page));
            let its_own = keys.filter(move |key| self.moving[WRITES].get(key) == Some(&id));
            its_own.map(|key| tree.copies_on_host(key))
        });
        copies.sum()
    }

    /// Returns the nodes that are kept, once for each copy.
    pub fn kept(&self) -> impl Iterator<Item = u32> + '_ {
        self.moves.iter().map(|(_, copy)| copy.kept)
    }

    /// Loads a request's pages to the device after given moves.
    pub fn load(&mut self, request: u32, pages: BlockRange, after: &[MoveId]) -> MoveId {
        let copy = Copy {
            request,
            start: pages.start,
            end: pages.end,
            is_load: true,
            kept: ROOT,
        };
        self.start(copy, Route::up_from(STAGING), after)
    }

    /// Queues the load of the pages up to a node, whose path is locked, and locks their host copies.
    pub fn load_path(&mut self, tree: &mut RadixTree, request: u32, pages: BlockRange, kept: u32) {
        tree.lock_host(kept, pages.len());
        let copy = Copy {
            request,
            start: pages.start,
            end: pages.end,
            is_load: true,
            kept,
        };
        self.start(copy, Route::up_from(STAGING), &[]);
        self.queued[LOADS].extend(self.orders.pop());
    }

    /// Queues the orders from a position on, which are writes.
    pub fn queue_from(&mut self, position: usize) {
        self.queued[WRITES].extend(self.orders.drain(position..));
    }

    /// Orders the queued writes as one copy.
    pub fn submit_writes(&mut self) {
        self.submit(WRITES);
    }

    /// Orders the queued loads as one copy.
    pub fn submit_loads(&mut self) {
        self.submit(LOADS);
    }

    fn submit(&mut self, kind: usize) {
        let mut queued = std::mem::take(&mut self.queued[kind]).into_iter();
        let Some(mut order) = queued.next() else {
            return;
        };
        let further: Vec<Order> = queued.collect();
        order.blocks += further.iter().map(|order| order.blocks).sum::<u64>();
        if !further.is_empty() {
            let ids = further.iter().map(|order| order.id).collect();
            self.merged.insert(order.id, ids);
        }
        self.orders.push(order);
    }

    /// Returns the moves that end with a move, itself first.
    pub fn ending_with(&mut self, id: MoveId) -> Vec<MoveId> {
        let mut moves = vec![id];
        moves.extend(self.merged.remove(&id).into_iter().flatten());
        moves
    }

    /// Returns the host copies that loads need.
    pub fn host_locks(&self) -> impl Iterator<Item = HostLock> + '_ {
        let loads = self.moves.iter().map(|(_, copy)| copy);
        loads.filter_map(Copy::host_lock)
    }

    /// Starts the copy of pages that the tree has written; they stay on the device meanwhile, except under
    /// write-back. Returns the move and the copy.
    pub fn write(&mut self, tree: &mut RadixTree, written: Written) -> (MoveId, Copy) {
        let copy = Copy {
            request: written.request,
            start: written.start,
            end: written.end,
            is_load: false,
            kept: if tree.writes_back() {
                ROOT
            } else {
                written.node
            },
        };
        let id = self.start(copy, Route::new(GPU, STAGING), &[]);
        tree.lock(copy.kept);
        (id, copy)
    }

    /// Returns the keys of a copy.
    pub fn keys_of(&self, copy: Copy) -> Vec<u64> {
        let pages = copy.start..copy.end;
        pages
            .map(|page| self.keys.key(copy.request, page))
            .collect()
    }

    fn start(&mut self, copy: Copy, route: Route, after: &[MoveId]) -> MoveId {
        let id = self.moves.insert(copy);
        let moving = &mut self.moving[usize::from(copy.is_load)];
        for page in copy.start..copy.end {
            moving.insert(self.keys.key(copy.request, page), id);
        }
        self.orders.push(Order {
            id,
            from: route.from,
            to: route.to,
            blocks: u64::from(copy.end - copy.start),
            after: after.to_vec(),
        });
        id
    }

    /// Ends a copy and returns it. Pages that another copy has taken over are still in flight.
    pub fn finish(&mut self, tree: &mut RadixTree, id: MoveId) -> Answer<Copy> {
        let copy = self.moves.remove(id).ok_or(StoreError::NoSuchMove)?;
        let moving = &mut self.moving[usize::from(copy.is_load)];
        for page in copy.start..copy.end {
            let key = self.keys.key(copy.request, page);
            if moving.get(&key) == Some(&id) {
                moving.remove(&key);
            }
        }
        tree.unlock(copy.kept);
        Ok(copy)
    }
}

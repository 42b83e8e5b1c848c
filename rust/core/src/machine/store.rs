//! What serving asks of the blocks of a machine, beyond what a running batch does.

use crate::cluster::neighbours::Neighbours;
use crate::engines::group_store::GroupStore;
use crate::engines::pool_store::PoolStore;
use crate::engines::radix_store::RadixStore;
use crate::engines::tiered_pool::TieredPool;
use crate::loading_store::{LoadingStore, MovingStore, OffersComputed};
use crate::machine_store::MachineStore;
use crate::store::{Answer, LeaseId, Store};

/// A store that requests are admitted to.
pub trait ServingStore: MachineStore {
    /// Holds the first `depth` blocks of a request's path.
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId>;

    /// Takes an acquisition back that was refused room, without a trace.
    fn abandon(&mut self, lease: LeaseId) -> Answer<()>;

    /// Gives up what a lease holds.
    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()>;

    /// Lets go of a request's blocks from `start` up to `end`; an engine's own rules keep what has room.
    fn discard(&mut self, _request: u32, _start: u32, _end: u32) -> Answer<()> {
        Ok(())
    }

    /// Whether the prompts of two requests have a block in common, at that index.
    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool;

    /// Makes a request's first blocks the most recently used; an engine's own rules do not.
    fn touch(&mut self, _request: u32, _end: u32) -> Answer<()> {
        Ok(())
    }

    /// The same store where it is a tree with lower tiers to move blocks from and to.
    fn tiered(&mut self) -> Option<&mut Store> {
        None
    }

    /// The same store where its blocks move between tiers.
    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        None
    }

    /// The same store where blocks may lie below the GPU: a tree's, or an engine's with a tier of its own.
    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        None
    }

    /// The same store where it copies down what steps compute by an engine's rules.
    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        None
    }

    /// The machines beside this one, where it reads from them.
    fn neighbours(&mut self) -> Option<&mut dyn Neighbours> {
        None
    }

    /// The same store where it is vLLM's block pool.
    fn pool(&mut self) -> Option<&mut PoolStore> {
        None
    }

    /// The same store where it is vLLM's pool of several cache groups.
    fn groups(&mut self) -> Option<&mut GroupStore> {
        None
    }

    /// The same store where it is SGLang's tree.
    fn radix(&mut self) -> Option<&mut RadixStore> {
        None
    }

    /// Lets go of what has outlived its time to live; an engine's own rules know none.
    fn expire(&mut self, _now_ns: u64) {}
}

impl ServingStore for Store {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        Store::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        Store::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        Store::release(self, lease, now_ns)
    }

    fn discard(&mut self, request: u32, start: u32, end: u32) -> Answer<()> {
        Store::discard(self, request, start, end)
    }

    fn touch(&mut self, request: u32, end: u32) -> Answer<()> {
        Store::touch(self, request, end)
    }

    fn expire(&mut self, now_ns: u64) {
        Store::expire(self, now_ns);
    }

    fn tiered(&mut self) -> Option<&mut Store> {
        (self.tiers() > 1).then_some(self)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        (self.tiers() > 1).then_some(self)
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        (self.tiers() > 1).then_some(self)
    }
}

impl ServingStore for PoolStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        PoolStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        PoolStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        PoolStore::release(self, lease)
    }

    fn pool(&mut self) -> Option<&mut PoolStore> {
        Some(self)
    }
}

impl ServingStore for TieredPool {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        TieredPool::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        TieredPool::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        TieredPool::release(self, lease)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        Some(self)
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        Some(self)
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        Some(self)
    }
}

impl ServingStore for GroupStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        GroupStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        GroupStore::have_same_block(self, a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        GroupStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        GroupStore::release(self, lease)
    }

    fn groups(&mut self) -> Option<&mut GroupStore> {
        Some(self)
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        self.tier_mut().map(|tier| tier as &mut dyn MovingStore)
    }

    fn offers(&mut self) -> Option<&mut dyn OffersComputed> {
        self.tier().is_some().then_some(self)
    }
}

impl ServingStore for RadixStore {
    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        RadixStore::acquire(self, request, depth)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.keys().have_same_block(a, b, block)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        RadixStore::abandon(self, lease)
    }

    fn release(&mut self, lease: LeaseId, _now_ns: u64) -> Answer<()> {
        RadixStore::release(self, lease)
    }
    fn radix(&mut self) -> Option<&mut RadixStore> {
        Some(self)
    }
}

//! The other machines of a cluster, as one of them meets them in the middle of its own work.

use super::{Replica, ServingStore};
use crate::keys::BlockKeys;
use crate::records::Records;
use crate::store::contract::{
    BatchStore, BlockStore, LoadingStore, MachineStore, MovingStore, TierLosses, TierRoom,
};
use crate::store::{Answer, LeaseId, MoveId, Part, Room, Store, Times, Violation};
use crate::transfers::{Brought, Came, FarTransfer, Lent, Look, Peers, SharedChannel, Source};

/// What is done on another machine: its replica and its store are changed.
pub type Errand<'a> = &'a mut dyn FnMut(&mut Replica, &mut Store) -> Answer<()>;

/// The machines beside the one that is at work.
pub trait Neighbours {
    /// How many machines there are, the one at work included.
    fn machines(&self) -> u32;

    /// Shows a machine other than the one at work; nothing is changed.
    fn look(&mut self, machine: u32, at: &mut dyn FnMut(&Replica, &Store));

    /// Does something on a machine other than the one at work.
    fn visit(&mut self, machine: u32, errand: Errand<'_>) -> Answer<()>;

    /// The channel over which a machine reads from another one.
    fn wire(&mut self, owner: u32, reader: u32) -> Answer<SharedChannel>;
}

/// A machine's store, and the way to the other machines.
pub struct Networked<'a> {
    /// Its own blocks.
    pub store: &'a mut Store,
    /// The others.
    pub neighbours: &'a mut dyn Neighbours,
}

impl BatchStore for Networked<'_> {
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        self.store.reserve(wanted, now_ns)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        BatchStore::depth(self.store, lease)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, ready: Times) -> Answer<()> {
        self.store.commit(lease, to, ready)
    }

    fn spare_blocks(&self) -> u64 {
        self.store.spare_blocks()
    }
}

impl MachineStore for Networked<'_> {
    fn known_request(&self, request: u32) -> Answer<()> {
        self.store.known_request(request)
    }

    fn peek(&self, request: u32, limit: u32) -> Answer<(u32, u32)> {
        MachineStore::peek(self.store, request, limit)
    }

    fn room(&self, tier: usize) -> Answer<TierRoom> {
        self.store.room(tier)
    }

    fn losses(&self, tier: usize) -> Answer<TierLosses> {
        self.store.losses(tier)
    }

    fn merged_blocks(&self) -> u64 {
        self.store.merged_blocks
    }

    fn records(&self) -> &Records {
        &self.store.records
    }

    fn records_mut(&mut self) -> &mut Records {
        &mut self.store.records
    }

    fn check(&self) -> Result<(), Violation> {
        self.store.check()
    }
}

impl BlockStore for Networked<'_> {
    fn block_keys(&self) -> Option<&BlockKeys> {
        self.store.block_keys()
    }

    fn acquire(&mut self, request: u32, depth: u32) -> Answer<LeaseId> {
        self.store.acquire(request, depth)
    }

    fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.store.abandon(lease)
    }

    fn release(&mut self, lease: LeaseId, now_ns: u64) -> Answer<()> {
        self.store.release(lease, now_ns)
    }

    fn discard(&mut self, request: u32, start: u32, end: u32) -> Answer<()> {
        self.store.discard(request, start, end)
    }

    fn touch(&mut self, request: u32, end: u32) -> Answer<()> {
        self.store.touch(request, end)
    }

    fn have_same_block(&self, a: u32, b: u32, block: u32) -> bool {
        self.store.have_same_block(a, b, block)
    }

    fn expire(&mut self, now_ns: u64) {
        self.store.expire(now_ns);
    }

    fn tiered(&mut self) -> Option<&mut Store> {
        self.store.tiered()
    }

    fn moving(&mut self) -> Option<&mut dyn MovingStore> {
        self.store.moving()
    }

    fn loading(&mut self) -> Option<&mut dyn LoadingStore> {
        self.store.loading()
    }
}

impl ServingStore for Networked<'_> {
    fn peers(&mut self) -> Option<&mut dyn Peers> {
        Some(&mut self.neighbours)
    }
}

impl Peers for &mut (dyn Neighbours + '_) {
    fn machines(&self) -> u32 {
        (**self).machines()
    }

    fn look(&mut self, machine: u32, at: Look<'_>) {
        (**self).look(machine, &mut |replica, store| at(replica.mover(), store));
    }

    fn wire(&mut self, owner: u32, reader: u32) -> Answer<SharedChannel> {
        (**self).wire(owner, reader)
    }

    fn lend(
        &mut self,
        owner: u32,
        request: u32,
        part: (Part, bool),
        now_ns: u64,
    ) -> Answer<Option<Source>> {
        visited(*self, owner, |replica, store| {
            replica.lend(store, request, part, now_ns)
        })
    }

    fn bring(&mut self, lent: &Lent, now_ns: u64) -> Answer<Brought> {
        visited(*self, lent.source.owner, |replica, store| {
            replica.bring(store, lent, now_ns)
        })
        .map(Option::unwrap_or_default)
    }

    fn came(&mut self, machine: u32, came: &Came, now_ns: u64) -> Answer<()> {
        self.visit(machine, &mut |replica, store| {
            replica.came_elsewhere(store, came, now_ns)
        })
    }

    fn lent_is_read(&mut self, owner: u32, lent: MoveId, now_ns: u64) -> Answer<()> {
        self.visit(owner, &mut |replica, store| {
            replica.lent_is_read(store, lent, now_ns)
        })
    }

    fn lands(
        &mut self,
        pool: u32,
        (request, blocks): (u32, (u32, u32)),
        now_ns: u64,
    ) -> Answer<bool> {
        visited(*self, pool, |replica, store| {
            replica.lands(store, request, blocks, now_ns)
        })
        .map(Option::unwrap_or_default)
    }

    fn take_in(&mut self, pool: u32, from: (Source, &SharedChannel), now_ns: u64) -> Answer<()> {
        self.visit(pool, &mut |replica, store| {
            replica.take_in(store, from, now_ns)
        })
    }

    fn frees_room(
        &mut self,
        machine: u32,
        room: &[MoveId],
        (handover, hop): (u32, FarTransfer),
    ) -> Answer<u32> {
        visited(*self, machine, |replica, _| {
            let mover = replica.mover.as_deref_mut();
            Ok(mover.map_or(0, |mover| mover.frees_room(room, handover, hop)))
        })
        .map(Option::unwrap_or_default)
    }
}

/// Does something on another machine; its answer, `None` where that machine has no tree of runs.
fn visited<T>(
    neighbours: &mut dyn Neighbours,
    machine: u32,
    mut errand: impl FnMut(&mut Replica, &mut Store) -> Answer<T>,
) -> Answer<Option<T>> {
    let mut answer = None;
    neighbours.visit(machine, &mut |replica, store| {
        answer = Some(errand(replica, store)?);
        Ok(())
    })?;
    Ok(answer)
}

//! What a machine has at hand while it is at work, the other machines of its cluster with it.

use super::cross_machine::{Brought, Came, FarTransfer, Lent, Source};
use super::mover::{Mover, SharedChannel};
use crate::store::contract::BlockStore;
use crate::store::{Answer, LeaseId, MoveId, Part, Reservation, Store};

/// A machine's blocks, the way to the other machines, and the time.
pub struct Now<'a> {
    /// The blocks that it serves from.
    pub store: &'a mut dyn BlockStore,
    /// The machines beside it, where it reads from them.
    pub peers: Option<&'a mut dyn Peers>,
    /// The time; what runs ahead moves it on.
    pub ns: u64,
}

impl<'a> Now<'a> {
    /// A machine that reads from no other.
    pub fn alone(store: &'a mut dyn BlockStore, ns: u64) -> Self {
        let peers = None;
        Self { store, peers, ns }
    }

    /// Holds the first blocks of a request's path, and reserves so many others for it; `None`, without a trace, when
    /// room is refused, else the lease and the moves that free its room.
    pub fn reserve_lease(
        &mut self,
        (request, held_blocks): (u32, u32),
        blocks: u64,
    ) -> Answer<Option<(LeaseId, Vec<MoveId>)>> {
        let lease = self.store.acquire(request, held_blocks)?;
        Ok(match self.store.reserve(&[(lease, blocks)], self.ns)? {
            Reservation::Refused => {
                self.store.abandon(lease)?;
                None
            }
            Reservation::Ready => Some((lease, Vec::new())),
            Reservation::Pending(moves) => Some((lease, moves)),
        })
    }
}

/// The machines beside the one at work: reads from their lower tiers, puts into a shared pool, hand-overs over memory.
pub trait Peers {
    /// How many machines there are, the one at work included.
    fn machines(&self) -> u32;

    /// Shows a machine other than the one at work: its mover and its blocks; nothing is changed.
    fn look(&mut self, machine: u32, at: &mut dyn FnMut(&Mover, &Store));

    /// The channel over which a machine reads from another one.
    fn wire(&mut self, owner: u32, reader: u32) -> Answer<SharedChannel>;

    /// Lends a part of a request's path at its owner, which keeps it until it has been read. The flag: it comes up to
    /// the tier that the network reads first, where that has room. `None` where the owner has nothing to lend from.
    fn lend(
        &mut self,
        owner: u32,
        request: u32,
        part: (Part, bool),
        now_ns: u64,
    ) -> Answer<Option<Source>>;

    /// Brings what has been lent to where the network reads it.
    fn bring(&mut self, lent: &Lent, now_ns: u64) -> Answer<Brought>;

    /// Reports to a machine that what one of its transfers waits for has come.
    fn came(&mut self, machine: u32, came: &Came, now_ns: u64) -> Answer<()>;

    /// Ends a loan: it has been read.
    fn lent_is_read(&mut self, owner: u32, lent: MoveId, now_ns: u64) -> Answer<()>;

    /// Takes room of a pool for blocks of a request; false where it has none.
    fn lands(&mut self, pool: u32, blocks: (u32, (u32, u32)), now_ns: u64) -> Answer<bool>;

    /// Sends what has room in a pool from where it is ready.
    fn take_in(&mut self, pool: u32, from: (Source, &SharedChannel), now_ns: u64) -> Answer<()>;

    /// Lets a hop wait for moves of another machine that free its room there; returns for how many.
    fn relay_freed(
        &mut self,
        machine: u32,
        freeing_moves: &[MoveId],
        hop: (u32, FarTransfer),
    ) -> Answer<u32>;
}

//! The context of a running machine: its store, the time, and the other machines of its cluster.

use super::channel::SharedChannel;
use super::handles::FarTransfer;
use super::mover::Mover;
use super::remote_read::{Brought, Came, Lent, Source};
use crate::ids::BlockRange;
use crate::store::contract::BlockStore;
use crate::store::{Answer, LeaseBlocks, LeaseId, MoveId, Part, Reservation, Store, StoreError};

/// A machine's blocks, its access to the other machines, and the time.
pub struct Now<'a> {
    /// The machine's blocks.
    pub store: &'a mut dyn BlockStore,
    /// The other machines, if it reads from them.
    pub peers: Option<&'a mut dyn Peers>,
    /// The time; lookahead advances it.
    pub ns: u64,
}

impl<'a> Now<'a> {
    /// Creates the context of a machine that reads from no other.
    pub fn alone(store: &'a mut dyn BlockStore, ns: u64) -> Self {
        let peers = None;
        Self { store, peers, ns }
    }

    /// Holds the first blocks of a request's path, and reserves further blocks. Returns the lease and the
    /// moves that free its blocks. `None`, without a trace, if the reservation is refused.
    pub fn reserve_lease(
        &mut self,
        request: u32,
        held_blocks: u32,
        blocks: u64,
    ) -> Answer<Option<(LeaseId, Vec<MoveId>)>> {
        let lease = self.store.acquire(request, held_blocks)?;
        Ok(
            match self
                .store
                .reserve(&[LeaseBlocks::new(lease, blocks)], self.ns)?
            {
                Reservation::Refused => {
                    self.store.abandon(lease)?;
                    None
                }
                Reservation::Ready => Some((lease, Vec::new())),
                Reservation::Pending(moves) => Some((lease, moves)),
            },
        )
    }
}

/// The other machines: reads from their lower tiers, writes into a shared pool, hand-overs over memory.
/// By default none of them lends, receives or is notified.
pub trait Peers {
    /// Returns the number of machines, this one included.
    fn machines(&self) -> u32;

    /// Passes the mover and the blocks of another machine to `at`; nothing is changed.
    fn look(&mut self, _machine: u32, _at: &mut dyn FnMut(&Mover, &Store)) {}

    /// Returns the channel over which a machine reads from another one.
    fn wire(&mut self, _owner: u32, _reader: u32) -> Answer<SharedChannel> {
        Err(StoreError::NotFound)
    }

    /// Lends a part of a request's path at its owner, which keeps it until it has been read. With `stage` it is
    /// moved first to the tier that the network reads, if that has free blocks. `None` if the owner has no
    /// blocks to lend.
    fn lend(
        &mut self,
        _owner: u32,
        _request: u32,
        _part: Part,
        _stage: bool,
        _now_ns: u64,
    ) -> Answer<Option<Source>> {
        Ok(None)
    }

    /// Brings lent blocks to the tier that the network reads.
    fn bring(&mut self, _lent: &Lent, _now_ns: u64) -> Answer<Brought> {
        Ok(Brought::default())
    }

    /// Notifies a machine that a transfer, which one of its own waits for, has arrived.
    fn came(&mut self, machine: u32, came: &Came, now_ns: u64) -> Answer<()>;

    /// Ends a loan: the blocks have been read.
    fn lent_is_read(&mut self, _owner: u32, _lent: MoveId, _now_ns: u64) -> Answer<()> {
        Ok(())
    }

    /// Reserves blocks of a pool for blocks of a request; false if there are too few.
    fn reserve_in_pool(
        &mut self,
        _pool: u32,
        _request: u32,
        _blocks: BlockRange,
        _now_ns: u64,
    ) -> Answer<bool> {
        Ok(false)
    }

    /// Sends the blocks reserved in a pool from a machine on which they are ready.
    fn take_in(
        &mut self,
        _pool: u32,
        _source: Source,
        _wire: &SharedChannel,
        _now_ns: u64,
    ) -> Answer<()> {
        Ok(())
    }

    /// Makes a hop wait for another machine's moves, which free its target blocks there; returns their
    /// number.
    fn relay_freed(
        &mut self,
        _machine: u32,
        _freeing_moves: &[MoveId],
        _handover: u32,
        _waiting: FarTransfer,
    ) -> Answer<u32> {
        Ok(0)
    }
}

//! Access of a machine to the other machines of its cluster, in the middle of its own work.

use super::{Now, Replica};
use crate::ids::BlockRange;
use crate::store::{Answer, MoveId, Part, Store};
use crate::transfers::{Brought, Came, FarTransfer, Lent, Mover, Peers, SharedChannel, Source};

/// Work on another machine, which changes its replica and its store.
pub type Visitor<'a> = &'a mut dyn FnMut(&mut Replica, &mut Store) -> Answer<()>;

/// The machines other than the machine at work.
pub trait Neighbours {
    /// Number of machines, the machine at work included.
    fn machines(&self) -> u32;

    /// Calls a function with a machine other than the machine at work; nothing is changed.
    fn look(&mut self, machine: u32, at: &mut dyn FnMut(&Replica, &Store));

    /// Runs a function on a machine other than the machine at work.
    fn visit(&mut self, machine: u32, visitor: Visitor<'_>) -> Answer<()>;

    /// The channel over which a machine reads from another machine.
    fn wire(&mut self, owner: u32, reader: u32) -> Answer<SharedChannel>;
}

impl<N: Neighbours> Peers for N {
    fn machines(&self) -> u32 {
        Neighbours::machines(self)
    }

    fn look(&mut self, machine: u32, at: &mut dyn FnMut(&Mover, &Store)) {
        Neighbours::look(self, machine, &mut |replica, store| {
            at(&replica.mover, store);
        });
    }

    fn wire(&mut self, owner: u32, reader: u32) -> Answer<SharedChannel> {
        Neighbours::wire(self, owner, reader)
    }

    fn lend(
        &mut self,
        owner: u32,
        request: u32,
        part: Part,
        stage: bool,
        now_ns: u64,
    ) -> Answer<Option<Source>> {
        visited(self, owner, |replica, store| {
            replica.lend(store, request, part, stage, now_ns).map(Some)
        })
    }

    fn bring(&mut self, lent: &Lent, now_ns: u64) -> Answer<Brought> {
        visited(self, lent.source.owner, |replica, store| {
            replica.bring(&mut Now::alone(store, now_ns), lent)
        })
    }

    fn came(&mut self, machine: u32, came: &Came, now_ns: u64) -> Answer<()> {
        self.visit(machine, &mut |replica, store| {
            replica.came_elsewhere(&mut Now::alone(store, now_ns), came)
        })
    }

    fn lent_is_read(&mut self, owner: u32, lent: MoveId, now_ns: u64) -> Answer<()> {
        self.visit(owner, &mut |replica, store| {
            replica.lent_is_read(store, lent, now_ns)
        })
    }

    fn reserve_in_pool(
        &mut self,
        pool: u32,
        request: u32,
        blocks: BlockRange,
        now_ns: u64,
    ) -> Answer<bool> {
        visited(self, pool, |replica, store| {
            replica.reserve_in_pool(store, request, blocks, now_ns)
        })
    }

    fn take_in(
        &mut self,
        pool: u32,
        source: Source,
        wire: &SharedChannel,
        now_ns: u64,
    ) -> Answer<()> {
        self.visit(pool, &mut |replica, store| {
            replica.take_in(store, source, wire, now_ns)
        })
    }

    fn relay_freed(
        &mut self,
        machine: u32,
        freeing_moves: &[MoveId],
        handover: u32,
        waiting: FarTransfer,
    ) -> Answer<u32> {
        visited(self, machine, |replica, _| {
            Ok(replica.mover.relay_freed(freeing_moves, handover, waiting))
        })
    }
}

/// Runs a function on another machine and returns its result, or the default if that machine has no tree of runs.
fn visited<T: Default>(
    neighbours: &mut impl Neighbours,
    machine: u32,
    mut visitor: impl FnMut(&mut Replica, &mut Store) -> Answer<T>,
) -> Answer<T> {
    let mut answer = T::default();
    neighbours.visit(machine, &mut |replica, store| {
        answer = visitor(replica, store)?;
        Ok(())
    })?;
    Ok(answer)
}

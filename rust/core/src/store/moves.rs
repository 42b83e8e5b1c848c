//! Moves: copies in flight from one tier to another. The store issues orders, channels compute the arrival,
//! and [`Store::finish_move`] makes the blocks ready.

use super::lease::Lease;
use super::node::{PathPart, State};
use super::pending::{moves_of, Waiting};
use super::ready::{Times, NOT_YET};
use super::{Answer, Store, StoreError, GPU};
use crate::ids::{BlockRange, HoldId, LeaseId, MoveId, NodeId};
use crate::tiers::Route;

/// A transfer to send over the channel of its edge, once the moves in `after` have finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The move to finish at the arrival.
    pub id: MoveId,
    /// The tier to read, or [`super::REMOTE`].
    pub from: usize,
    /// The tier to write.
    pub to: usize,
    /// Number of blocks.
    pub blocks: u64,
    /// Moves that must finish before the start: they free the target's blocks, or write the source's.
    pub after: Vec<MoveId>,
}

/// A path protected on a tier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hold {
    pub tier: usize,
    pub tail: NodeId,
}

/// A copy in flight.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub to: usize,
    pub blocks: u64,
    /// Ready times, as far as they are known.
    pub times: Times,
    /// Runs being written.
    pub parts: Vec<PathPart>,
    /// The lease into whose reserved blocks it loads (moves to the GPU).
    pub lease: Option<LeaseId>,
    /// The tier it reads.
    pub from: usize,
    /// Paths held on that tier until they have been read, by their last runs.
    pub sources: Vec<NodeId>,
    /// Leases that wait for the GPU blocks it frees.
    pub waiting: Vec<Waiting>,
    /// True for a manual claim that is not filled yet.
    pub claimed: bool,
    /// Moves that finish first. A move that stands for a backlog waits for itself until its last batch.
    pub after: Vec<MoveId>,
}

impl Default for Move {
    fn default() -> Self {
        Self {
            to: GPU,
            blocks: 0,
            times: Times::UNKNOWN,
            parts: Vec::new(),
            lease: None,
            from: GPU,
            sources: Vec::new(),
            waiting: Vec::new(),
            claimed: false,
            after: Vec::new(),
        }
    }
}

impl Store {
    /// Returns a move that has not finished.
    pub(super) fn in_flight(&self, id: MoveId) -> Answer<&Move> {
        self.moves.get(id).ok_or(StoreError::NoSuchMove)
    }

    /// Returns true if a move has not finished.
    pub fn is_moving(&self, id: MoveId) -> bool {
        self.moves.get(id).is_some()
    }

    pub(super) fn all_in_flight(&self, ids: &[MoveId]) -> Answer<()> {
        ids.iter().try_for_each(|&id| self.in_flight(id).map(drop))
    }

    /// Returns the orders issued since the last call, in order of issue, after those of the backlogs.
    pub fn take_orders(&mut self) -> Vec<Order> {
        self.settle_backlogs();
        std::mem::take(&mut self.orders)
    }

    /// Returns true if orders were issued since the last call of [`Store::take_orders`], or blocks wait.
    pub fn has_orders(&self) -> bool {
        !self.orders.is_empty() || self.has_backlogs()
    }

    /// Loads blocks `[depth of the lease, to)` from the next tier down into the lease's reserved GPU blocks.
    /// The source is held until the read finishes. `after`: moves that must finish first. Returns the move.
    pub fn load(&mut self, id: LeaseId, to: u32, after: &[MoveId]) -> Answer<MoveId> {
        let Lease {
            request,
            depth,
            reserved,
            loading,
            ..
        } = *self.lease(id)?;
        if to <= depth {
            return Err(StoreError::NoBlocks);
        }
        let blocks = u64::from(to - depth);
        if blocks > reserved - loading {
            return Err(StoreError::NotReserved);
        }
        self.all_in_flight(after)?;
        self.known_tier(GPU + 1)?;
        let tail = self.node_at(request, to)?;
        self.can_be_copied(PathPart { tail, start: depth }, Route::up_from(GPU + 1))?;
        self.leases[id].loading += blocks;
        Ok(self.land(tail, depth, GPU, 1, after, Some(id)))
    }

    /// Refuses to copy a path part if one of its blocks has no copy on the source tier, or has one on the
    /// target.
    fn can_be_copied(&self, part: PathPart, route: Route) -> Answer<()> {
        for run in self.path(part.tail, part.start) {
            self.on_tier(run, route.from)?;
            if self.copy(run, route.to).state != State::Absent {
                return Err(StoreError::OnTierAlready);
            }
        }
        Ok(())
    }

    /// Protects the first `end` blocks of a request's path on a tier from eviction; returns the hold.
    pub fn protect(&mut self, request: u32, end: u32, tier: usize) -> Answer<HoldId> {
        self.known_tier(tier)?;
        let tail = self.node_at(request, end)?;
        self.on_tier(tail, tier)?;
        self.hold(tier, tail);
        Ok(self.holds.insert(Hold { tier, tail }))
    }

    /// Ends a [`Store::protect`].
    pub fn unprotect(&mut self, tier: usize, hold: HoldId) -> Answer<()> {
        let held = self.holds.get(hold).filter(|held| held.tier == tier);
        let Hold { tail, .. } = *held.ok_or(StoreError::NoSuchHold)?;
        self.holds.remove(hold);
        self.unhold(tier, tail);
        self.sweep_orphans(tail);
        Ok(())
    }

    /// Shares the load of blocks that another request is already loading.
    pub fn join(&mut self, id: LeaseId, to: u32) -> Answer<()> {
        let Lease { request, depth, .. } = *self.lease(id)?;
        if to <= depth {
            return Err(StoreError::NoBlocks);
        }
        let tail = self.node_at(request, to)?;
        self.on_tier(tail, GPU)?;
        self.extend_hold(id, tail, to);
        Ok(())
    }

    /// Stages blocks of a request one tier up to `to_tier` (disk → cpu), freeing blocks there
    /// first. Returns the move, or `None` if too few blocks can be freed.
    ///
    /// `ready` is the move that is still writing the source, if any.
    pub fn stage(
        &mut self,
        request: u32,
        blocks: BlockRange,
        to_tier: usize,
        ready: Option<MoveId>,
        now_ns: u64,
    ) -> Answer<Option<MoveId>> {
        let BlockRange { start, end } = blocks;
        self.known_tier(to_tier)?;
        if to_tier == GPU || to_tier + 1 == self.tiers.len() {
            return Err(StoreError::WrongTier);
        }
        if let Some(writing) = ready {
            self.in_flight(writing)?;
        }
        let tail = self.part(request, blocks)?;
        self.can_be_copied(PathPart { tail, start }, Route::up_from(to_tier + 1))?;
        self.hold(to_tier + 1, tail);
        let pending = self.evict_for(to_tier, u64::from(end - start), now_ns);
        self.unhold(to_tier + 1, tail);
        let Some(pending) = pending else {
            return Ok(None);
        };
        self.tiers[to_tier].in_flight += u64::from(end - start);
        let after: Vec<MoveId> = moves_of(&pending).into_iter().chain(ready).collect();
        Ok(Some(self.land(
            tail,
            start,
            to_tier,
            to_tier + 1,
            &after,
            None,
        )))
    }

    fn land(
        &mut self,
        tail: NodeId,
        start: u32,
        to: usize,
        from: usize,
        after: &[MoveId],
        lease: Option<LeaseId>,
    ) -> MoveId {
        let end = self.trie.nodes[tail as usize].end;
        let blocks = u64::from(end - start);
        let new = Move {
            to,
            blocks,
            parts: vec![PathPart { tail, start }],
            lease,
            from,
            sources: vec![tail],
            ..Move::default()
        };
        let mv = self.moves.insert(new);
        self.hold(from, tail);
        self.in_transit(PathPart { tail, start }, Route::new(from, to), mv);
        self.hold(to, tail);
        if let Some(id) = lease {
            self.extend_hold(id, tail, end);
        }
        self.order(mv, from, after.to_vec());
        mv
    }

    /// Issues the order of a move from a tier or from another machine.
    pub(super) fn order(&mut self, id: MoveId, from: usize, after: Vec<MoveId>) {
        let Move { to, blocks, .. } = self.moves[id];
        self.moves[id].after.clone_from(&after);
        self.orders.push(Order {
            id,
            from,
            to,
            blocks,
            after,
        });
    }

    /// Marks a path part as being written to a tier by a move: each copy is as recent as its source.
    pub(super) fn in_transit(&mut self, part: PathPart, route: Route, by: MoveId) {
        self.each_run(part.tail, part.start, |store, run| {
            store.copy_mut(run, route.to).access = store.copy(run, route.from).access;
            store.set_state(run, route.to, State::InFlight, by);
        });
    }

    fn extend_hold(&mut self, id: LeaseId, tail: NodeId, to: u32) {
        let Lease { depth, access, .. } = self.leases[id];
        for run in self.runs_from(tail, depth) {
            self.hold_one(run, access);
        }
        let lease = &mut self.leases[id];
        (lease.tail, lease.depth, lease.found) = (tail, to, to);
    }

    /// Finishes a move: its copies are ready, its source is released, and the blocks it frees pass to the
    /// waiting leases.
    pub fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        let Move { claimed, after, .. } = self.in_flight(id)?;
        if *claimed {
            return Err(StoreError::Unplaced);
        }
        if self.any_in_flight(after) || self.lands_too_early(id) {
            return Err(StoreError::NotFree);
        }
        let Move {
            to,
            blocks,
            parts,
            lease,
            from,
            sources,
            waiting,
            mut times,
            ..
        } = self.moves.remove(id).unwrap_or_default();
        if times.ready_ns == NOT_YET {
            times = Times::at(self.clock.now_ns); // no caller set its times
        }
        self.clock.now_ns = self.clock.now_ns.max(times.ready_ns);
        for part in &parts {
            self.each_run(part.tail, part.start, |store, run| {
                store.ready_at(run, to, times)
            });
        }
        // Counted before anything is swept: the new copies may be discarded with the path above them.
        let tier = &mut self.tiers[to];
        tier.cached += blocks;
        if let Some(lease) = lease {
            tier.active -= blocks;
            let lease = &mut self.leases[lease];
            lease.reserved -= blocks;
            lease.loading -= blocks;
        } else {
            tier.in_flight -= blocks;
        }
        // Part by part: the parts that are still held keep their runs alive while another part is swept.
        for PathPart { tail, .. } in parts {
            self.unhold(to, tail);
            self.sweep_orphans(tail);
        }
        for tail in sources {
            self.unhold(from, tail);
            self.sweep_orphans(tail);
        }
        for Waiting { lease, blocks } in waiting {
            self.tiers[GPU].in_flight -= blocks;
            self.on_freed_blocks(lease, blocks);
        }
        for tier in &mut self.tiers {
            tier.came(id);
        }
        self.join_loose();
        Ok(())
    }

    /// Returns true if it would load into a lease's blocks that a write still occupies.
    fn lands_too_early(&self, id: MoveId) -> bool {
        let Move { lease, blocks, .. } = &self.moves[id];
        let lease = lease.map(|lease| &self.leases[lease]);
        lease.is_some_and(|lease| lease.reserved - lease.pending < *blocks)
    }

    /// Returns true if one of these moves has not finished.
    pub(super) fn any_in_flight(&self, ids: &[MoveId]) -> bool {
        ids.iter().any(|&id| self.moves.get(id).is_some())
    }

    fn on_freed_blocks(&mut self, id: LeaseId, blocks: u64) {
        let owner = &mut self.leases[id];
        owner.pending -= blocks;
        if owner.live {
            self.tiers[GPU].active += blocks;
            return;
        }
        owner.reserved -= blocks;
        self.tiers[GPU].free += blocks;
        if owner.pending == 0 {
            self.leases.remove(id);
        }
    }

    /// Drops the lower copies of blocks `[start, end)` after a load (exclusive edges), unless they are held.
    pub fn drop_copy(&mut self, request: u32, start: u32, end: u32, tier: usize) -> Answer<()> {
        self.known_tier(tier)?;
        let tail = self.part(request, BlockRange::new(start, end))?;
        for run in self.runs_from(tail, start) {
            let copy = self.copy(run, tier);
            if copy.state == State::Ready && copy.holds == 0 && !self.only_on(run, tier) {
                self.vacate(run, tier);
            }
        }
        Ok(())
    }
}

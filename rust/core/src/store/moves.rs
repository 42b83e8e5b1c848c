//! Moves: copies on their way from one tier to another. The store says what is to be sent; channels say when
//! it arrives; [`Store::finish_move`] makes it true.

use super::lease::{Lease, LeaseId};
use super::node::{NodeId, State, ROOT};
use super::{Store, GPU};

/// Index of a move in the arena.
pub type MoveId = u32;
pub const NO_MOVE: MoveId = u32::MAX;

/// A transmission to be put on the channel of its edge, once the moves in `after` have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub id: MoveId,
    pub from: usize,
    pub to: usize,
    pub blocks: u64,
    pub after: Vec<MoveId>,
}

/// GPU room that a move frees when it ends: a lease has reserved it in advance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub lease: LeaseId,
    pub blocks: u64,
}

/// A copy on its way.
#[derive(Clone, Debug, Default)]
pub(super) struct Move {
    pub live: bool,
    pub to: usize,
    pub blocks: u64,
    /// Runs being written: (last run, first block of the part).
    pub parts: Vec<(NodeId, u32)>,
    /// The lease into whose reserved blocks it lands (loads to the GPU).
    pub lease: Option<LeaseId>,
    /// Held until they have been read: (tier, last run).
    pub sources: Vec<(usize, NodeId)>,
    /// Leases that wait for the room it frees on the GPU.
    pub waiting: Vec<Waiting>,
}

impl Store {
    pub(super) fn new_move(&mut self, new: Move) -> MoveId {
        if let Some(id) = self.free_moves.pop() {
            self.moves[id as usize] = new;
            return id;
        }
        self.moves.push(new);
        (self.moves.len() - 1) as MoveId
    }

    /// The transmissions decided since the last call, in the order of decision.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// Lets the lease read blocks `[from its depth, to)` into the GPU from the next tier down, into reserved
    /// blocks; the source is held until the read ends. `after`: what must end first. Returns the move.
    pub fn load(&mut self, id: LeaseId, to: u32, after: &[MoveId]) -> MoveId {
        let Lease { request, depth, .. } = self.leases[id as usize].clone();
        let tail = self.node_at(request, to);
        self.land(tail, depth, GPU, 1, after, Some(id))
    }

    /// Protects the first `end` blocks of a request's path on a tier while room is made; returns the hold.
    pub fn protect(&mut self, request: u32, end: u32, tier: usize) -> NodeId {
        let tail = self.node_at(request, end);
        self.hold(tier, tail);
        tail
    }

    /// Ends a [`Store::protect`].
    pub fn unprotect(&mut self, tier: usize, hold: NodeId) {
        self.unhold(tier, hold);
        self.sweep_orphans(hold);
    }

    /// Holds on to blocks that another request is already loading.
    pub fn join(&mut self, id: LeaseId, to: u32) {
        let request = self.leases[id as usize].request;
        let tail = self.node_at(request, to);
        self.extend_hold(id, tail, to);
    }

    /// Stages blocks `[start, end)` of a request one tier up to `to_tier` (disk → cpu), room made there first.
    /// `None` when the room cannot be made; else the move.
    ///
    /// `ready` is the move that is still writing the source, if any.
    pub fn stage(
        &mut self,
        request: u32,
        (start, end): (u32, u32),
        to_tier: usize,
        ready: Option<MoveId>,
        now_ns: u64,
    ) -> Option<MoveId> {
        let tail = self.node_at(request, end);
        if start > 0 {
            self.node_at(request, start);
        }
        self.hold(to_tier + 1, tail);
        let room = self.make_room(to_tier, u64::from(end - start), now_ns);
        self.unhold(to_tier + 1, tail);
        let room = room?;
        self.tiers[to_tier].in_flight += u64::from(end - start);
        let after: Vec<MoveId> = room.iter().map(|&(m, _)| m).chain(ready).collect();
        Some(self.land(tail, start, to_tier, to_tier + 1, &after, None))
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
        let end = self.nodes[tail as usize].end;
        let blocks = u64::from(end - start);
        let new = Move {
            live: true,
            to,
            blocks,
            parts: vec![(tail, start)],
            lease,
            sources: vec![(from, tail)],
            ..Move::default()
        };
        let mv = self.new_move(new);
        self.hold(from, tail);
        for run in self.runs_from(tail, start) {
            let access = self.nodes[run as usize].copies[from].access;
            self.nodes[run as usize].copies[to].access = access;
            self.set_state(run, to, State::InFlight, mv);
        }
        self.hold(to, tail);
        if let Some(id) = lease {
            self.extend_hold(id, tail, end);
        }
        self.orders.push(Order {
            id: mv,
            from,
            to,
            blocks,
            after: after.to_vec(),
        });
        mv
    }

    fn extend_hold(&mut self, id: LeaseId, tail: NodeId, to: u32) {
        let Lease { depth, access, .. } = self.leases[id as usize];
        self.leases[id as usize].found = to;
        for run in self.runs_from(tail, depth) {
            self.hold_one(run, access);
        }
        (
            self.leases[id as usize].tail,
            self.leases[id as usize].depth,
        ) = (tail, to);
    }

    /// The runs of a path part from its last run up to the one that starts at block `start`, deepest first.
    pub(super) fn runs_from(&self, tail: NodeId, start: u32) -> Vec<NodeId> {
        let mut runs = Vec::new();
        let mut at = tail;
        while at != ROOT && self.nodes[at as usize].start >= start {
            runs.push(at);
            at = self.nodes[at as usize].parent;
        }
        runs
    }

    /// Ends a move: what it wrote is ready, its source is released, the room it freed goes to who waits.
    pub fn finish_move(&mut self, id: MoveId) {
        let Move {
            live,
            to,
            blocks,
            parts,
            lease,
            sources,
            waiting,
        } = std::mem::take(&mut self.moves[id as usize]);
        debug_assert!(live, "a move ends once");
        self.free_moves.push(id);
        for &(tail, start) in &parts {
            for run in self.runs_from(tail, start) {
                self.set_state(run, to, State::Ready, NO_MOVE);
            }
        }
        // One by one: what is still held keeps its runs alive while another part is swept.
        for (tail, _) in parts {
            self.unhold(to, tail);
            self.sweep_orphans(tail);
        }
        for (tier, tail) in sources {
            self.unhold(tier, tail);
            self.sweep_orphans(tail);
        }
        let tier = &mut self.tiers[to];
        tier.cached += blocks;
        if let Some(lease) = lease {
            tier.active -= blocks;
            self.leases[lease as usize].reserved -= blocks;
        } else {
            tier.in_flight -= blocks;
        }
        for Waiting { lease, blocks } in waiting {
            self.tiers[GPU].in_flight -= blocks;
            self.room_is_free(lease, blocks);
        }
    }

    fn room_is_free(&mut self, id: LeaseId, blocks: u64) {
        let owner = &mut self.leases[id as usize];
        owner.pending -= blocks;
        if owner.live {
            self.tiers[GPU].active += blocks;
            return;
        }
        owner.reserved -= blocks;
        self.tiers[GPU].free += blocks;
        if owner.pending == 0 {
            self.free_leases.push(id);
        }
    }

    /// Gives up the lower copies of blocks `[start, end)` after a load (exclusive edges), where nobody holds them.
    pub fn drop_copy(&mut self, request: u32, start: u32, end: u32, tier: usize) {
        let tail = self.node_at(request, end);
        if start > 0 {
            self.node_at(request, start);
        }
        for run in self.runs_from(tail, start) {
            let node = &self.nodes[run as usize];
            let copy = &node.copies[tier];
            if copy.state == State::Ready && copy.holds == 0 && !node.only_on(tier) {
                let blocks = u64::from(node.blocks());
                self.set_state(run, tier, State::Absent, NO_MOVE);
                self.tiers[tier].cached -= blocks;
                self.tiers[tier].free += blocks;
            }
        }
    }
}

//! vLLM's pool of several KV cache groups as the GPU tier of a timed replica: leases, room and records over
//! `groups`.
//!
//! Found, shared and depth are counted in blocks of the alignment, which every hit is a multiple of; room is
//! asked in tokens, and taken step by step: what lies behind a window is given back before a step takes more.
//! `TierRoom` counts blocks of the pool. A request has one lease at a time.

use super::groups::admission::Room as Within;
use super::groups::lost::{Junction, Losses};
use super::groups::manager::GroupManager;
use super::groups::rules::{chunk_end, next_change, Chunk};
use super::groups::{Found, Group, Kind, Limits};
use super::leases::EngineLeases;
use super::newcomer::{Entry, Newcomer};
use crate::batch::BatchStore;
use crate::records::Records;
use crate::store::{Answer, LeaseId, Room, StoreError, Times, Violation};

/// What is known of a running request.
#[derive(Debug, Clone, Copy, Default)]
struct Running {
    /// Tokens that it has room for; all of them are computed when it asks for more.
    room_tokens: u64,
    /// Tokens at which it parted from what was found, 0 where it did not.
    junction: u64,
    /// Tokens of its prompt.
    prompt_tokens: u64,
    /// Most tokens of one of its chunks.
    chunk_tokens: u64,
    /// Blocks of the alignment that were found or have been through the key step.
    depth: u32,
    /// Whether it has been admitted before, and what it found was counted.
    is_counted: bool,
}

/// The blocks of one GPU under the rules of vLLM's cache groups.
#[derive(Debug)]
pub struct GroupStore {
    manager: GroupManager,
    capacity: u64,
    leases: EngineLeases,
    running: Vec<Running>,
    /// Whether a chunk of a prompt ends where a state can be kept.
    has_states: bool,
    /// What first admissions could not go on from.
    losses: Losses,
    junctions: Vec<Junction>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl GroupStore {
    /// A pool of free blocks for some groups, at least one; `align` is a multiple of every group's block.
    pub fn new(groups: Vec<Group>, align: u64, limits: Limits, capacity_blocks: u32) -> Self {
        let requests = groups[0].keys.requests();
        Self {
            has_states: groups.iter().any(|group| group.kind == Kind::Linear),
            losses: Losses::new(groups.len()),
            junctions: Vec::new(),
            manager: GroupManager::new(groups, align, limits, capacity_blocks),
            capacity: u64::from(capacity_blocks),
            leases: EngineLeases::new(requests),
            running: vec![Running::default(); requests as usize],
            records: Records::default(),
        }
    }

    /// Refuses a request beyond the trace.
    pub fn known_request(&self, request: u32) -> Answer<()> {
        self.leases.known_request(request)
    }

    fn tokens(&self, blocks: u32) -> u64 {
        u64::from(blocks) * self.manager.align()
    }

    /// How many leading blocks of the alignment every group can go on from.
    pub fn peek(&self, request: u32, limit: u32) -> u32 {
        let found = self.manager.look_up(request, self.tokens(limit));
        (found.tokens / self.manager.align()) as u32
    }

    /// Blocks of the pool that a sequence of so many tokens can hold while so many steps are under way.
    pub fn most_blocks(&self, tokens: u64, steps_in_flight: u64) -> u64 {
        u64::from(self.manager.most_blocks(tokens, steps_in_flight))
    }

    /// Most tokens that one step computes.
    pub fn max_num_batched_tokens(&self) -> u64 {
        self.manager.limits().max_num_batched_tokens
    }

    /// Notes that another step is composed: states that get their keys from now on are computed in it.
    pub fn begin_step(&mut self) {
        self.manager.begin_step();
    }

    /// Group and key of the free blocks, next to be taken first.
    pub fn free_queue(&self) -> Vec<Option<(u8, u64)>> {
        self.manager.free_queue().collect()
    }

    /// Looks a request up and admits it with what is cached and room for its first step.
    pub fn admit(&mut self, asked: &Newcomer, now_ns: u64) -> Answer<Entry> {
        let (request, known) = (asked.request, asked.known_tokens);
        self.known_request(request)?;
        let limit = self.tokens(asked.matchable_blocks);
        let found = self.manager.look_up(request, limit);
        let lease = self.leases.give(
            request,
            (found.tokens / self.manager.align()) as u32,
            |_, b| b,
        )?;
        let limits = self.manager.limits();
        let room = Within {
            blocks: self
                .manager
                .free_blocks()
                .saturating_sub(asked.kept_blocks as u32),
            whole_tokens: asked.whole.then_some(known),
            in_flight_tokens: asked.steps_in_flight * limits.max_num_batched_tokens,
        };
        let running = Running {
            junction: found.junction,
            prompt_tokens: asked.prompt_tokens,
            chunk_tokens: asked.chunk_tokens,
            is_counted: true,
            ..Running::default()
        };
        let tokens = asked.step_tokens.min(known - found.tokens);
        let end = self.chunk_end(&running, found.tokens, known, tokens);
        let entry = if end <= found.tokens && end < known {
            Entry::NoTokens
        } else if self.manager.is_computed_now(request, found.tokens) {
            Entry::NotYet
        } else if self.hold_counted(lease, room, (running, end), found, now_ns) {
            let hit_blocks = (found.tokens / self.manager.align()) as u32;
            return Ok(Entry::Admitted {
                lease,
                hit_blocks,
                room_tokens: end,
            });
        } else {
            Entry::NoRoom
        };
        self.leases.abandon(lease)?;
        Ok(entry)
    }

    /// As `hold`; at the first admission of a request what it found is counted.
    fn hold_counted(
        &mut self,
        lease: LeaseId,
        room: Within,
        running: (Running, u64),
        found: Found,
        now_ns: u64,
    ) -> bool {
        let request = self.leases.request(lease);
        if found.junction == 0 || self.running[request as usize].is_counted {
            return self.hold(lease, room, running, found, now_ns);
        }
        let mut losses = self.losses.clone();
        let junction = losses.count(&self.manager, request, found);
        let held = self.hold(lease, room, running, found, now_ns);
        if held {
            self.losses = losses;
            self.junctions.extend(junction);
        }
        held
    }

    /// Holds what a lease found, and room up to `end`; false, and no change, where it does not fit.
    fn hold(
        &mut self,
        lease: LeaseId,
        room: Within,
        (running, end): (Running, u64),
        found: Found,
        now_ns: u64,
    ) -> bool {
        let request = self.leases.request(lease);
        let (before, prompt) = (self.manager.counts().evicted, running.prompt_tokens);
        if !self.manager.admit_within(room, request, prompt, found, end) {
            return false;
        }
        self.leases.admit(lease);
        self.running[request as usize] = Running {
            room_tokens: end,
            ..running
        };
        self.running[request as usize].depth = (found.tokens / self.manager.align()) as u32;
        let evicted = self.manager.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        true
    }

    fn chunk_end(&self, running: &Running, computed: u64, known: u64, tokens: u64) -> u64 {
        let chunk = Chunk {
            computed,
            tokens,
            most_tokens: running.chunk_tokens,
            known,
            prompt: running.prompt_tokens,
            junction: running.junction,
        };
        chunk_end(self.manager.groups(), chunk)
    }

    /// Lets go of what nobody reads once `computed` tokens are, then takes room up to `end` tokens; false where
    /// blocks are too few, and what was let go stays so.
    pub fn grow(
        &mut self,
        lease: LeaseId,
        (computed, end): (u64, u64),
        now_ns: u64,
    ) -> Answer<bool> {
        let request = self.leases.admitted(lease)?.request;
        self.manager.computed_to(request, computed);
        let before = self.manager.counts().evicted;
        if !self.manager.extend(request, end) {
            return Ok(false);
        }
        let running = &mut self.running[request as usize];
        running.room_tokens = running.room_tokens.max(end);
        let evicted = self.manager.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(true)
    }

    /// The next number of computed tokens, at least `computed`, at which a decode that computes one token while
    /// `ahead` - 1 are under way changes a table.
    pub fn next_change(&self, computed: u64, ahead: u64) -> u64 {
        next_change(self.manager.groups(), computed, ahead, self.manager.align())
    }

    /// Notes what a request found; its blocks are held when its room is reserved, in one step with it.
    pub fn acquire(&mut self, request: u32, hits: u32) -> Answer<LeaseId> {
        let (manager, tokens) = (&self.manager, u64::from(hits) * self.manager.align());
        let found = |request, _| (manager.look_up(request, tokens).tokens / manager.align()) as u32;
        self.leases.give(request, hits, found)
    }

    /// Takes an acquisition back.
    pub fn abandon(&mut self, lease: LeaseId) -> Answer<()> {
        self.leases.abandon(lease)
    }

    /// Lets go of a request's blocks.
    pub fn release(&mut self, lease: LeaseId) -> Answer<()> {
        let ended = self.leases.end(lease)?;
        self.manager.release(ended.request);
        Ok(())
    }

    /// (free without a key, held, free with a key, which may all be evicted) blocks.
    pub fn room(&self) -> (u64, u64, u64, u64) {
        let (free, idle) = (
            u64::from(self.manager.free_blocks()),
            self.manager.idle_keyed(),
        );
        (free - idle, self.capacity - free, idle, idle)
    }

    /// What first admissions could not go on from, in sum and where a group had kept nothing there.
    pub fn lost(&self) -> (&Losses, &[Junction]) {
        (&self.losses, &self.junctions)
    }

    /// Blocks given back since another one had their key, under the tree's rules.
    pub fn merged_blocks(&self) -> u64 {
        self.manager.merged_blocks()
    }

    /// By group, blocks that got a key, and that lost it.
    pub fn by_group(&self) -> &[(u64, u64)] {
        self.manager.by_group()
    }

    /// Blocks that lost their key so far.
    pub fn evictions(&self) -> u64 {
        self.manager.counts().evicted
    }

    /// Checks the pool and the tables from scratch (I2, I3, I4); the first violation is the error.
    pub fn check(&self) -> Result<(), Violation> {
        self.manager.check()
    }
}

impl BatchStore for GroupStore {
    /// `wanted` are tokens beyond those that each lease has room for, and all of those are computed.
    fn reserve(&mut self, wanted: &[(LeaseId, u64)], now_ns: u64) -> Answer<Room> {
        if let [(lease, tokens)] = *wanted {
            let asked = self.leases.get(lease)?;
            if !asked.admitted {
                return self.reserve_first(lease, tokens, now_ns);
            }
        }
        let mut missing = 0u64;
        for &(lease, tokens) in wanted {
            let request = self.leases.admitted(lease)?.request;
            let computed = self.running[request as usize].room_tokens;
            self.manager.computed_to(request, computed);
            self.manager.drop_unread(request);
            missing += u64::from(self.manager.lacking(request, computed + tokens));
        }
        if missing > u64::from(self.manager.free_blocks()) {
            return Ok(Room::Refused);
        }
        let before = self.manager.counts().evicted;
        for &(lease, tokens) in wanted {
            let request = self.leases.request(lease);
            let running = &mut self.running[request as usize];
            running.room_tokens += tokens;
            self.manager.take(request, running.room_tokens);
        }
        let evicted = self.manager.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(Room::Ready)
    }

    fn depth(&self, lease: LeaseId) -> Answer<u32> {
        let lease = self.leases.get(lease)?;
        if lease.admitted {
            return Ok(self.running[lease.request as usize].depth);
        }
        Ok(lease.hits)
    }

    fn commit(&mut self, lease: LeaseId, to: u32, _ready: Times) -> Answer<()> {
        let request = self.leases.admitted(lease)?.request;
        let end = self.tokens(to);
        if self.manager.lacking_positions(request, end) > 0 {
            return Err(StoreError::NotReserved);
        }
        let running = &mut self.running[request as usize];
        running.depth = running.depth.max(to);
        self.manager.give_keys(request, end);
        Ok(())
    }

    fn spare_blocks(&self) -> u64 {
        u64::from(self.manager.free_blocks())
    }

    fn chunk(&self, lease: LeaseId, computed: u64, target: u64, tokens: u64) -> Answer<u64> {
        if !self.has_states {
            return Ok(tokens);
        }
        let request = self.leases.admitted(lease)?.request;
        let running = &self.running[request as usize];
        let end = self.chunk_end(running, computed, target, tokens);
        Ok(end.saturating_sub(computed))
    }

    fn lacking_blocks(&self, lease: LeaseId, tokens: u64) -> Answer<u64> {
        let request = self.leases.admitted(lease)?.request;
        Ok(self.manager.lacking_positions(request, tokens))
    }
}

impl GroupStore {
    /// The first room of a lease that was acquired by hand: for all its tokens at once.
    fn reserve_first(&mut self, lease: LeaseId, tokens: u64, now_ns: u64) -> Answer<Room> {
        let asked = self.leases.get(lease)?;
        let mut found = self.manager.look_up(asked.request, self.tokens(asked.hits));
        if found.tokens < self.tokens(asked.hits) {
            return Err(StoreError::NotFound);
        }
        found.junction = 0;
        let known = found.tokens + tokens;
        let room = Within {
            blocks: self.manager.free_blocks(),
            whole_tokens: None,
            in_flight_tokens: 0,
        };
        let running = Running {
            prompt_tokens: known.max(1),
            chunk_tokens: self.manager.limits().max_num_batched_tokens,
            ..Running::default()
        };
        let held = self.hold(lease, room, (running, known), found, now_ns);
        Ok(if held { Room::Ready } else { Room::Refused })
    }
}

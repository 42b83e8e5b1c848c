//! vLLM's pool of several KV cache groups as the GPU tier of a timed replica: leases, capacity and records over
//! `groups`.
//!
//! Found and shared blocks and depth are counted in blocks of the alignment, of which every hit is a multiple.
//! Capacity is requested in tokens and taken step by step: blocks behind a window are released before a step takes
//! more. `TierOccupancy` counts blocks of the pool. A request has one lease at a time.

use super::group_tier::{FoundBelow, GroupTier};
mod batch;
mod connector;
mod contract;
mod tier;

use super::groups::admission::AdmissionLimits as Within;
use super::groups::lost::{Junction, Losses};
use super::groups::manager::GroupManager;
use super::groups::rules::{chunk_end, next_change, Chunk};
use super::groups::{Found, Group, Kind, Limits};
use super::leases::EngineLeases;
use super::simple_tier::SimpleTier;
use crate::convert::fit;
use crate::records::Records;
use crate::store::newcomer::Newcomer;
use crate::store::LeaseId;

/// State of a running request.
#[derive(Debug, Clone, Copy, Default)]
struct Running {
    /// Tokens with reserved capacity; all are computed when the request asks for more.
    reserved_tokens: u64,
    /// Tokens at which the request diverged from the prefix found, 0 if it did not.
    junction: u64,
    /// Tokens of the prompt.
    prompt_tokens: u64,
    /// Tokens of one chunk at most.
    chunk_tokens: u64,
    /// Blocks of the alignment that were found or have been through the key step.
    depth: u32,
    /// True if the request was admitted before and its hit was counted.
    is_counted: bool,
}

impl Running {
    /// Returns the state of a request as it is first admitted with a hit: nothing is reserved yet.
    fn admitted(asked: &Newcomer, found: Found) -> Self {
        Self {
            junction: found.junction,
            prompt_tokens: asked.prompt_tokens,
            chunk_tokens: asked.chunk_tokens,
            is_counted: true,
            ..Self::default()
        }
    }
}

/// Blocks of one GPU under the rules of vLLM's cache groups.
#[derive(Debug)]
pub struct GroupStore {
    manager: GroupManager,
    capacity: u64,
    leases: EngineLeases,
    running: Vec<Running>,
    /// True if chunks of a prompt end where a state can be kept.
    has_states: bool,
    /// Prefixes that first admissions could not continue from.
    losses: Losses,
    junctions: Vec<Junction>,
    /// Tier below, if any.
    pub(super) below: Option<Box<GroupTier>>,
    /// Tier of vLLM's second offloader below, if any.
    simple: Option<Box<SimpleTier>>,
    /// Digest and evictions of this machine.
    pub records: Records,
}

impl GroupStore {
    /// A pool of free blocks for one or more groups; `align` is a multiple of every group's block.
    pub fn new(groups: Vec<Group>, align: u64, limits: Limits, capacity_blocks: u32) -> Self {
        let requests = groups[0].keys.requests();
        Self {
            has_states: groups.iter().any(|group| group.kind == Kind::Linear),
            losses: Losses::new(groups.len()),
            junctions: Vec::new(),
            below: None,
            simple: None,
            manager: GroupManager::new(groups, align, limits, capacity_blocks),
            capacity: u64::from(capacity_blocks),
            leases: EngineLeases::new(requests),
            running: vec![Running::default(); requests as usize],
            records: Records::default(),
        }
    }

    /// Adds an empty tier below the pool.
    #[must_use]
    pub fn above(mut self, tier: GroupTier) -> Self {
        self.manager.log_given();
        self.below = Some(Box::new(tier));
        self
    }

    /// Adds an empty tier of vLLM's second offloader.
    #[must_use]
    pub fn above_simple(mut self, tier: SimpleTier) -> Self {
        self.simple = Some(Box::new(tier));
        self
    }

    fn tokens(&self, blocks: u32) -> u64 {
        u64::from(blocks) * self.manager.align()
    }

    fn look_up(&self, request: u32, limit: u64) -> FoundBelow {
        if let Some(tier) = &self.below {
            return tier.look_up(&self.manager, request, limit);
        }
        let mut found = self.manager.look_up(request, limit);
        let pool_tokens = found.tokens;
        if let Some(tier) = &self.simple {
            found.tokens += tier.peek(&self.manager, request, pool_tokens, limit + 1);
        }
        FoundBelow { found, pool_tokens }
    }

    /// Returns the blocks of the pool that a sequence of `tokens` can hold while `steps_in_flight` steps are
    /// in flight.
    pub fn most_blocks(&self, tokens: u64, steps_in_flight: u64) -> u64 {
        u64::from(self.manager.most_blocks(tokens, steps_in_flight))
    }

    /// Begins to compose another step; states that get their keys from now on are computed in it.
    pub fn begin_step(&mut self) {
        self.manager.begin_step();
    }

    /// Returns group and key of the free blocks in the order in which they are taken.
    pub fn free_queue(&self) -> Vec<Option<(u8, u64)>> {
        self.manager.pool.free_queue().collect()
    }

    /// Holds as in `hold`; at the first admission of a request, counts its hit.
    fn hold_counted(
        &mut self,
        lease: LeaseId,
        admission_limits: Within,
        running: Running,
        end: u64,
        looked: FoundBelow,
        now_ns: u64,
    ) -> bool {
        let (request, found) = (self.leases.request(lease), looked.found);
        if found.junction == 0 || self.running[request as usize].is_counted {
            return self.hold(lease, admission_limits, running, end, looked, now_ns);
        }
        let mut losses = self.losses.clone();
        let junction = losses.count(&self.manager, request, found);
        let held = self.hold(lease, admission_limits, running, end, looked, now_ns);
        if held {
            self.losses = losses;
            self.junctions.extend(junction);
        }
        held
    }

    /// Holds the blocks found for a lease, and capacity up to `end`. Returns false, with no change, if it does
    /// not fit.
    fn hold(
        &mut self,
        lease: LeaseId,
        admission_limits: Within,
        running: Running,
        end: u64,
        looked: FoundBelow,
        now_ns: u64,
    ) -> bool {
        let (request, found) = (self.leases.request(lease), looked.found);
        let (before, prompt) = (self.manager.pool.counts().evicted, running.prompt_tokens);
        let held = if self.below.is_some() {
            self.hold_and_bring(lease, admission_limits, prompt, end, looked, now_ns)
        } else {
            self.manager
                .admit_within(admission_limits, request, prompt, found, end)
        };
        if !held {
            return false;
        }
        self.leases.admit(lease);
        self.running[request as usize] = Running {
            reserved_tokens: end,
            ..running
        };
        self.running[request as usize].depth = fit::<u32>(found.tokens / self.manager.align());
        if self.below.is_none() {
            let evicted = self.manager.pool.counts().evicted - before;
            self.records.evicted_blocks(evicted, now_ns);
        }
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

    /// Returns the next number of computed tokens, at least `computed`, at which a decode changes a table. The
    /// decode computes one token while `lookahead` - 1 are in flight.
    pub fn next_change(&self, computed: u64, lookahead: u64) -> u64 {
        next_change(
            self.manager.groups(),
            computed,
            lookahead,
            self.manager.align(),
        )
    }

    /// Returns block counts: free without a key, held, and free with a key.
    pub fn occupancy(&self) -> (u64, u64, u64) {
        let (free, idle) = (
            u64::from(self.manager.pool.free_blocks()),
            self.manager.pool.idle_keyed(),
        );
        (free - idle, self.capacity - free, idle)
    }

    /// Returns the prefixes that first admissions could not continue from: totals, and those where a group kept
    /// nothing.
    pub fn lost(&self) -> (&Losses, &[Junction]) {
        (&self.losses, &self.junctions)
    }

    /// Returns, for each group, the number of blocks that got a key and that lost it.
    pub fn by_group(&self) -> &[(u64, u64)] {
        self.manager.pool.by_group()
    }
}

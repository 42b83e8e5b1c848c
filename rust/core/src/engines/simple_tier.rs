//! vLLM's second CPU offloader (0.33.0, `v1/simple_kv_offload/manager.py`): a block pool of its own below that of the
//! GPU, under the same keys.
//!
//! A look-up holds the tier's blocks until the request is admitted or looked up again. A copy holds its blocks in both
//! pools; a stored block can be hit when its copy has ended. Blocks leave in the order of the tier's free queue.
//!
//! | file | contents |
//! |---|---|
//! | `stores` | blocks that a step stores: those that it finds computed (eager), or those next to leave the pool (lazy) |
//! | `scan` | the walk of lazy stores over the pool's free blocks |

mod scan;
mod stores;

use std::collections::{BTreeMap, BTreeSet};

use super::copies::{Copies, Copy};
use super::group_tier::bring::count_by_group;
use super::group_tier::{GroupSlot, Known};
use super::groups::joint_hit::{InPool, Presence};
use super::groups::manager::GroupManager;
use super::groups::pool::Pool;
use super::groups::{Group, Kind};
use crate::convert::fit;
use crate::store::contract::{MovingStore, TierOccupancy};
use crate::store::{Answer, MoveId, Order, Violation, GPU};
use scan::Scan;

/// Blocks of both pools in a copy, in the same order.
#[derive(Debug, Default)]
struct Transfer {
    gpu: Vec<u32>,
    cpu: Vec<u32>,
}

/// A copy whose end is not reported.
#[derive(Debug)]
struct Open {
    /// Requests that wait for it.
    requests: Vec<u32>,
    /// Its blocks of each group.
    by_group: Vec<u64>,
}

/// Copies decided since the last step, which begin with the next one.
#[derive(Debug, Default)]
struct Decided {
    loads: Transfer,
    /// Requests that wait for the loads.
    loading: Vec<u32>,
    /// Last stores of requests that have ended.
    last: Transfer,
}

/// Requests that the connector knows.
#[derive(Debug, Default)]
struct Followed {
    /// Blocks of the tier that look-ups hold.
    found: BTreeMap<u32, Vec<u32>>,
    /// Requests whose computed blocks are stored.
    known: BTreeMap<u32, Known>,
    /// Requests that were preempted and have not ended.
    resumed: BTreeSet<u32>,
}

/// Pool of the tier, and the copies between it and the GPU.
#[derive(Debug)]
pub struct SimpleTier {
    cpu: Pool,
    capacity: u32,
    /// Copies in flight; their keys are blocks of the tier.
    pub copies: Copies,
    open: BTreeMap<MoveId, Open>,
    /// Copies that have ended and are not reported.
    arrived: Vec<MoveId>,
    decided: Decided,
    requests: Followed,
    /// Blocks of the GPU that stores of computed blocks read.
    read: BTreeSet<u32>,
    /// Walk over the GPU's free blocks, of lazy stores.
    scan: Option<Scan>,
    preempts: bool,
    has_ended: bool,
    /// Evictions in the records.
    recorded: u64,
}

/// Presence in the tier behind the first `from` tokens, counted from there on.
struct Behind<'a> {
    tier: InPool<'a>,
    from: u64,
}

impl Behind<'_> {
    fn first(&self, group: usize) -> u32 {
        self.tier.groups[group].whole(self.from)
    }
}

impl Presence for Behind<'_> {
    fn run(&self, group: usize, block: u32, limit: u32) -> u32 {
        self.tier.run(group, self.first(group) + block, limit)
    }

    fn missing(&self, group: usize, block: u32) -> u32 {
        self.tier.missing(group, self.first(group) + block)
    }
}

impl SimpleTier {
    /// An empty tier of `capacity_blocks` blocks below a pool of `gpu_blocks`. `step_tokens`: tokens of a step that
    /// lazy stores keep free blocks for; `None`: computed blocks are stored.
    pub fn new(
        groups: &[Group],
        gpu_blocks: u32,
        capacity_blocks: u32,
        step_tokens: Option<u64>,
    ) -> Self {
        Self {
            cpu: Pool::new(groups, capacity_blocks),
            capacity: capacity_blocks,
            copies: Copies::new(gpu_blocks),
            open: BTreeMap::new(),
            arrived: Vec::new(),
            decided: Decided::default(),
            requests: Followed::default(),
            read: BTreeSet::new(),
            scan: step_tokens.map(|tokens| Scan::new(groups, tokens, gpu_blocks)),
            preempts: false,
            has_ended: false,
            recorded: 0,
        }
    }

    /// Returns the tokens that the tier has behind the pool's hit. No change.
    pub fn peek(&self, manager: &GroupManager, request: u32, in_pool: u64, known: u64) -> u64 {
        let splits_chunk = |group: &Group| match group.kind {
            Kind::Chunked(tokens) => in_pool % tokens > 0,
            _ => false,
        };
        if manager.groups().iter().any(splits_chunk) {
            return 0;
        }
        let tier = InPool {
            pool: &self.cpu,
            groups: manager.groups(),
            request,
        };
        let behind = manager.lookup_in(Behind {
            tier,
            from: in_pool,
        });
        // at least the last token is computed
        behind.find((known - 1).saturating_sub(in_pool)).tokens
    }

    /// Looks up a request behind the pool's hit, and holds what is found. Returns the whole hit.
    pub fn look_up(
        &mut self,
        manager: &GroupManager,
        request: u32,
        in_pool: u64,
        known: u64,
    ) -> u64 {
        self.release_found(request);
        in_pool + self.peek(manager, request, in_pool, known)
    }

    /// Holds the tier's blocks of a look-up until the request is admitted or looked up again.
    pub fn hold(&mut self, manager: &GroupManager, request: u32, slots: &[GroupSlot]) {
        let keys = slots.iter().map(|slot| {
            let group = &manager.groups()[slot.group];
            (slot.group, group.key(request, slot.block))
        });
        let blocks: Vec<u32> = keys
            .map(|(group, key)| self.cpu.find(group, key).0)
            .collect();
        blocks.iter().for_each(|&block| self.cpu.touch(block));
        self.requests.found.insert(request, blocks);
    }

    fn release_found(&mut self, request: u32) {
        if let Some(blocks) = self.requests.found.remove(&request) {
            self.cpu.release(blocks.into_iter());
        }
    }

    /// Notes an admission; what is found in the tier is loaded into its blocks at `slots` with the next step.
    pub fn admitted(&mut self, manager: &mut GroupManager, request: u32, slots: &[GroupSlot]) {
        if self.scan.is_none() {
            let groups = manager.groups().len();
            let known = self.requests.known.entry(request);
            known.or_insert_with(|| Known::new(groups)).is_new = true;
        }
        let Some(cpu) = self.requests.found.remove(&request) else {
            return;
        };
        for slot in slots {
            let block = manager.block_at(request, slot.group, slot.block);
            manager.pool.touch(block);
            self.decided.loads.gpu.push(block);
        }
        self.decided.loads.cpu.extend(cpu);
        self.decided.loading.push(request);
    }

    /// Starts the loads that have been decided since the last step, in one copy.
    fn start_loads(&mut self, manager: &GroupManager) -> Vec<Order> {
        if self.decided.loading.is_empty() {
            return Vec::new();
        }
        let Transfer { gpu, cpu } = std::mem::take(&mut self.decided.loads);
        let keys: Vec<_> = cpu.iter().map(|&block| self.cpu.key_of(block)).collect();
        let groups = keys.into_iter().flatten().map(|key| key.group);
        let by_group = count_by_group(manager.groups().len(), groups);
        let requests = std::mem::take(&mut self.decided.loading);
        let id = self.copies.read(numbers(&cpu), gpu, &[]);
        self.open.insert(id, Open { requests, by_group });
        self.copies.take_orders()
    }

    /// Applies the copies that have ended: loads, then stores. Returns the requests whose load has.
    pub fn copies_ended(&mut self, manager: &mut GroupManager) -> Answer<Vec<u32>> {
        let mut loaded = Vec::new();
        let (loads, stores): (Vec<MoveId>, _) = std::mem::take(&mut self.arrived)
            .into_iter()
            .partition(|&id| self.copies.writes_the_pool(id));
        for id in loads.into_iter().chain(stores) {
            let Copy {
                keys, blocks, to, ..
            } = self.copies.finish(id)?;
            if to != GPU {
                for (&below, &block) in keys.iter().zip(&blocks) {
                    self.read.remove(&block);
                    if let Some(key) = manager.pool.key_of(block) {
                        self.cpu
                            .give_keys(key.group, key.key, 1, |_| fit::<u32>(below));
                    }
                }
            }
            self.cpu.release(keys.into_iter().map(fit::<u32>));
            manager.pool.release(blocks.into_iter());
            loaded.extend(
                self.open
                    .remove(&id)
                    .into_iter()
                    .flat_map(|open| open.requests),
            );
        }
        Ok(loaded)
    }

    /// Lets the next step wait for all copies: a request was preempted.
    pub fn preempted(&mut self, groups: usize, request: u32) {
        self.preempts = true;
        self.requests.resumed.insert(request);
        if let Some(known) = self.requests.known.get_mut(&request) {
            *known = Known::new(groups);
        }
    }

    /// Returns true if the next step may store more, though nothing else has changed.
    pub fn has_more(&self) -> bool {
        self.scan.as_ref().is_some_and(Scan::has_moved)
    }

    /// Returns true if the scheduler is asked for a step without requests: some have ended, or stores are not reported.
    pub fn has_ended(&self) -> bool {
        let mut open = self.open.keys();
        let continues = self.scan.as_ref().is_none_or(Scan::continues);
        self.has_ended || continues && open.any(|&id| !self.copies.writes_the_pool(id))
    }

    /// Returns the use of the tier's blocks.
    pub fn occupancy(&self) -> TierOccupancy {
        let cached = self.cpu.idle_keyed();
        let free = u64::from(self.cpu.free_blocks()) - cached;
        let stores = self
            .open
            .keys()
            .filter(|&&id| !self.copies.writes_the_pool(id));
        let written: u64 = stores.map(|&id| self.copies.keys_of(id)).sum();
        let in_flight = written + self.decided.last.cpu.len() as u64;
        TierOccupancy {
            free,
            held: u64::from(self.capacity) - free - cached - in_flight,
            cached,
            in_flight,
            private: 0,
        }
    }

    /// Returns the number of blocks evicted so far.
    pub fn evicted(&self) -> u64 {
        self.cpu.counts().evicted
    }

    /// Returns the number of the tier's keys that the pool has too.
    pub fn duplicates(&self, manager: &GroupManager) -> u64 {
        let blocks = (1..=self.capacity).filter_map(|block| self.cpu.key_of(block));
        blocks.filter(|key| manager.has(key.group, key.key)).count() as u64
    }

    /// Returns the GPU's blocks that copies hold, a block once for each.
    pub fn held_above(&self) -> impl Iterator<Item = u32> + '_ {
        let copied = self.open.keys().flat_map(|&id| self.copies.blocks_of(id));
        let decided = self.decided.loads.gpu.iter().chain(&self.decided.last.gpu);
        copied.chain(decided).copied()
    }

    /// Checks the copies against the reference counts of the pool's blocks (I2, I3).
    pub fn check(&self, ref_counts: &[u32]) -> Result<(), Violation> {
        self.cpu.check()?;
        let unheld = self
            .held_above()
            .find(|&block| ref_counts[block as usize] == 0);
        if let Some(block) = unheld {
            return Err(format!("I3: block {block} is copied and has no holder"));
        }
        self.copies.check(ref_counts)
    }
}

impl MovingStore for SimpleTier {
    fn has_orders(&self) -> bool {
        self.copies.has_orders()
    }

    fn take_orders(&mut self) -> Vec<Order> {
        self.copies.take_orders()
    }

    fn finish_move(&mut self, id: MoveId) -> Answer<()> {
        self.arrived.push(id);
        Ok(())
    }

    fn blocks_of_move(&self, id: MoveId) -> Option<&[u64]> {
        self.open.get(&id).map(|open| open.by_group.as_slice())
    }
}

fn numbers(blocks: &[u32]) -> Vec<u64> {
    blocks.iter().copied().map(u64::from).collect()
}

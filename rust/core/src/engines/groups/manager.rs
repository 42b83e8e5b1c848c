//! Pool of several groups and the blocks that requests hold (`KVCacheManager`, watermark 0, no speculation):
//! look-ups, and the keys of computed blocks. Requests take and release blocks in `admission`, `extend` and
//! `release`.

use crate::convert::fit;
use std::ops::Range;

use super::joint_hit::{kinds, Found, InPool, Lookup, Presence};
use super::pool::{Given, Pool, NULL};
use super::rules::{admission_blocks, retained, skipped_blocks};
use super::tables::Table;
use super::{Group, Kind, Limits, Reuse};

/// Blocks of a running request.
#[derive(Debug, Clone, Default)]
pub struct Held {
    pub(super) tables: Vec<Table>,
    /// Positions that a later request can continue from.
    pub(super) boundaries: Vec<u64>,
    pub(super) computed: u64,
}

/// Pool and the blocks of it that running requests hold.
#[derive(Debug)]
pub struct GroupManager {
    pub(super) groups: Vec<Group>,
    kinds: Vec<Vec<usize>>,
    /// Tokens of which every hit is a multiple.
    pub(super) align: u64,
    pub(super) limits: Limits,
    /// Blocks, their queue and their keys.
    pub(in crate::engines) pool: Pool,
    /// Blocks that each request holds; none for requests that do not run.
    pub(super) held: Vec<Held>,
    /// Group and key of the states that got their keys in this step, if the caller reports steps.
    states_of_step: Option<Vec<(usize, u64)>>,
    /// States that got their keys since they were last taken, if logged.
    keyed_states: Option<Vec<KeyedState>>,
}

/// A state that has got its key.
#[derive(Debug, Clone, Copy)]
pub struct KeyedState {
    /// Its request.
    pub request: u32,
    /// Its cache group.
    pub group: usize,
    /// Its position there.
    pub position: u32,
    /// Its block.
    pub block: u32,
}

impl GroupManager {
    /// A pool of free blocks for one or more groups. `align` is a multiple of every group's block.
    pub fn new(groups: Vec<Group>, align: u64, limits: Limits, capacity_blocks: u32) -> Self {
        let requests = groups[0].keys.requests() as usize;
        Self {
            kinds: kinds(&groups),
            pool: Pool::new(&groups, capacity_blocks),
            groups,
            align,
            limits,
            held: vec![Held::default(); requests],
            states_of_step: None,
            keyed_states: None,
        }
    }

    /// Returns the groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the alignment: tokens of which every hit is a multiple.
    pub fn align(&self) -> u64 {
        self.align
    }

    /// Returns the engine's settings.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the blocks that a sequence of `tokens` tokens can hold while `steps` steps are in flight.
    pub fn most_blocks(&self, tokens: u64, steps: u64) -> u32 {
        let in_flight = steps * self.limits.max_num_batched_tokens;
        let each = self.groups.iter().map(|group| match group.kind {
            // The state that is read, and the state that each step writes.
            Kind::Linear => group.blocks(tokens).min(1 + fit::<u32>(steps)),
            _ => admission_blocks(group, tokens, in_flight, self.limits.max_model_len),
        });
        each.sum()
    }

    /// Begins to compose another step; states that get their keys from now on are computed in it.
    pub fn begin_step(&mut self) {
        self.states_of_step
            .get_or_insert_with(Default::default)
            .clear();
    }

    /// Returns true if the state at a hit is computed in the step that is being composed.
    pub fn is_computed_now(&self, request: u32, hit: u64) -> bool {
        let states = self.states_of_step.as_ref();
        states.filter(|_| hit > 0).is_some_and(|states| {
            let groups = self.groups.iter().enumerate();
            let linear = groups.filter(|(_, group)| group.kind == Kind::Linear);
            linear
                .map(|(number, group)| (number, group.key(request, group.whole(hit) - 1)))
                .any(|state| states.contains(&state))
        })
    }

    /// Returns the joint hit of a request, of at most `limit` tokens. No change.
    pub fn look_up(&self, request: u32, limit: u64) -> Found {
        self.lookup(request).find(limit)
    }

    /// Returns, for each group, its hit without the other groups. No change.
    pub fn alone(&self, request: u32, limit: u64) -> Vec<u64> {
        self.lookup(request).alone(limit)
    }

    fn lookup(&self, request: u32) -> Lookup<'_, InPool<'_>> {
        self.lookup_in(InPool {
            pool: &self.pool,
            groups: &self.groups,
            request,
        })
    }

    /// Returns a look-up in the given presence of blocks, here or elsewhere.
    pub fn lookup_in<P: Presence>(&self, has: P) -> Lookup<'_, P> {
        Lookup {
            groups: &self.groups,
            kinds: &self.kinds,
            align: self.align,
            has,
        }
    }

    /// Reports the groups that limited a hit. Calls `notify` with each group that could not continue from where
    /// another group could. The flag is true if the needed blocks were never kept, since the window had moved
    /// on or the state was no checkpoint; false if they were evicted.
    pub fn lost(&self, request: u32, found: Found, mut notify: impl FnMut(usize, bool)) {
        if found.junction <= found.tokens {
            return;
        }
        for (number, group) in self.groups.iter().enumerate() {
            let end = group.whole(found.junction);
            // A window of one token reads no block, yet its look-up needs the last block.
            let start = skipped_blocks(group, found.junction).min(end.saturating_sub(1));
            let keys = (start..end).map(|block| group.key(request, block));
            let mut missing = keys
                .filter(|&key| self.pool.find(number, key).0 == NULL)
                .peekable();
            if missing.peek().is_some() {
                notify(number, missing.any(|key| !self.pool.had(number, key)));
            }
        }
    }

    /// Records that tokens up to `end` are computed: full blocks that are kept get their keys.
    pub fn compute(&mut self, request: u32, end: u64) {
        self.computed_to(request, end);
        self.give_keys(request, end);
    }

    /// Records that tokens up to `end` are computed: blocks that are no longer read may be released.
    pub fn computed_to(&mut self, request: u32, end: u64) {
        self.held[request as usize].computed = end;
    }

    /// Gives the kept full blocks of the first `end` tokens their keys.
    pub fn give_keys(&mut self, request: u32, end: u64) {
        let held = &mut self.held[request as usize];
        let aligned = end / self.align * self.align;
        let (interval, reuse) = (self.limits.retention_interval, self.limits.reuse);
        for (number, group) in self.groups.iter().enumerate() {
            let table = &mut held.tables[number];
            let full = group.whole(aligned);
            if table.keyed >= full {
                continue;
            }
            let blocks = table.keyed.max(table.start)..full;
            table.keyed = full;
            let pool = &mut self.pool;
            let mut states = Vec::new();
            retained(
                group,
                blocks,
                self.align,
                interval,
                &held.boundaries,
                |kept| {
                    if group.kind == Kind::Linear {
                        states.extend(kept.clone().filter(|&k| table.block(k) != NULL));
                    }
                    let mut at = kept.start;
                    while at < kept.end {
                        let (key, run) = group.run(request, at);
                        let run = run.min(kept.end - at);
                        if reuse == Reuse::Tree {
                            pool.merge(number, key, run, table, at);
                        }
                        at += pool.give_keys(number, key, run, |k| table.block(at + k));
                    }
                },
            );
            if let Some(of_step) = &mut self.states_of_step {
                of_step.extend(states.iter().map(|&k| (number, group.key(request, k))));
            }
            if let Some(keyed) = &mut self.keyed_states {
                states.sort_unstable();
                states.dedup();
                keyed.extend(states.into_iter().map(|position| KeyedState {
                    request,
                    group: number,
                    position,
                    block: table.block(position),
                }));
            }
        }
    }

    /// Logs states that get their keys from now on, and no allocated blocks.
    pub fn log_states(&mut self) {
        self.pool.given = None;
        self.keyed_states.get_or_insert_with(Vec::new);
    }

    /// Returns the logged states since the last call, request by request, of each in the order of its groups.
    pub fn take_states(&mut self) -> Vec<KeyedState> {
        let states = self.keyed_states.as_mut().map(std::mem::take);
        let mut states = states.unwrap_or_default();
        states.sort_by_key(|state| state.group);
        let mut requests = Vec::new();
        for state in &states {
            if !requests.contains(&state.request) {
                requests.push(state.request);
            }
        }
        states.sort_by_key(|state| {
            requests
                .iter()
                .position(|&request| request == state.request)
        });
        states
    }

    /// Forgets the logged states of a request whose blocks are released.
    pub fn forget_states(&mut self, request: u32) {
        if let Some(states) = &mut self.keyed_states {
            states.retain(|state| state.request != request);
        }
    }

    /// Begins to log allocated blocks.
    pub fn log_given(&mut self) {
        self.pool.given = Some(Vec::new());
    }

    /// Returns the blocks allocated since the last call.
    pub fn take_given(&mut self) -> Vec<Given> {
        self.pool
            .given
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Returns true if a group's key has a block.
    pub fn has(&self, group: usize, key: u64) -> bool {
        self.pool.find(group, key).0 != NULL
    }

    /// Returns the blocks of a running request in a group, `NULL` for released positions.
    pub fn blocks_of(&self, request: u32, group: usize) -> impl Iterator<Item = u32> + '_ {
        let table = self.held[request as usize].tables.get(group);
        table
            .into_iter()
            .flat_map(|table| table.blocks.iter().copied())
    }

    /// Returns the number of positions of a running request in a group.
    pub fn positions(&self, request: u32, group: usize) -> u32 {
        let table = self.held[request as usize].tables.get(group);
        table.map_or(0, Table::positions)
    }

    /// Returns the block at a position of a group, `NULL` for a released position.
    pub fn block_at(&self, request: u32, group: usize, position: u32) -> u32 {
        let table = &self.held[request as usize].tables[group];
        if position < table.start {
            return NULL;
        }
        table.block(position)
    }

    /// Returns the positions of a group, within a range, whose blocks get a key where hits are multiples of `align`
    /// tokens; ascending.
    pub fn kept_blocks(&self, request: u32, number: usize, of: Range<u32>, align: u64) -> Vec<u32> {
        let (held, interval) = (&self.held[request as usize], self.limits.retention_interval);
        let mut kept = Vec::new();
        let group = &self.groups[number];
        retained(group, of, align, interval, &held.boundaries, |range| {
            kept.extend(range)
        });
        kept.sort_unstable();
        kept.dedup();
        kept
    }

    /// Gives a running request's block its key, regardless of the retention rule.
    pub fn give_key(&mut self, request: u32, group: usize, position: u32) {
        let block = self.block_at(request, group, position);
        let key = self.groups[group].key(request, position);
        self.pool.give_keys(group, key, 1, |_| block);
    }

    /// Returns the reference count of each block; the first entry is no block.
    pub fn ref_counts(&self) -> Vec<u32> {
        self.pool.nodes.iter().map(|node| node.ref_count).collect()
    }

    /// Returns the bytes on the heap, excluding the trace's keys.
    pub fn heap_bytes(&self) -> usize {
        let tables = self.held.iter().flat_map(|held| &held.tables);
        let held: usize = tables.map(|table| 4 * table.blocks.capacity()).sum();
        self.pool.heap_bytes() + held + std::mem::size_of::<Held>() * self.held.len()
    }
}

//! Replay of an object policy on single blocks: leaf first, or flat in one of two orders.

use super::blocks::Blocks;
use super::prompt_error::PromptError;
use super::runs::Prompts;
use super::stack::RowBlocks;
use super::{Decisions, RowReplay, Totals, TouchFrom};
use crate::causes::known_misses::EvictedMisses;
use crate::policies::leaf::Facts;
use crate::policies::object::ObjectPolicy;

/// The role of prefixes and the order of accesses in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discipline {
    /// Prefix look-up; only unheld blocks without a resident child leave; hooks deepest first.
    LeafFirst,
    /// A plain cache of objects: every block of a request is one access, in this order. Only overlapping
    /// requests hold blocks.
    Objects(TouchFrom),
    /// A flat queue behind a prefix look-up: evicts first, with the current request's blocks held, root
    /// first.
    Queue,
}

/// The tier of an object policy.
///
/// A block that finds no capacity, because all resident blocks are held, is not admitted.
pub struct Objects<'a> {
    blocks: Blocks,
    policy: Box<dyn ObjectPolicy>,
    aborts: bool,
    capacity: u64,
    discipline: Discipline,
    totals: Totals,
    facts: Facts,
    row: Vec<u32>,
    ages: Option<EvictedMisses<'a>>,
}

impl Objects<'_> {
    /// An empty tier of `capacity` ≥ 1 blocks.
    pub fn new(
        blocks: Blocks,
        capacity: u64,
        policy: Box<dyn ObjectPolicy>,
        discipline: Discipline,
    ) -> Self {
        let blocks = match discipline {
            Discipline::LeafFirst => blocks,
            Discipline::Queue => blocks.without_links(true),
            Discipline::Objects(_) => blocks.without_links(false),
        };
        Self {
            blocks,
            aborts: policy.aborts(),
            policy,
            capacity,
            discipline,
            totals: Totals::default(),
            facts: Facts {
                last_access_ns: i64::MIN,
                ..Facts::default()
            },
            row: Vec::new(),
            ages: None,
        }
    }

    fn may_go(blocks: &Blocks, discipline: Discipline, block: u32) -> bool {
        match discipline {
            Discipline::Objects(_) => !blocks.is_in_flight(block),
            Discipline::Queue => !blocks.is_held(block),
            Discipline::LeafFirst => !blocks.is_held(block) && blocks.is_leaf(block),
        }
    }

    fn evict(&mut self, incoming: u32) -> bool {
        let (blocks, discipline) = (&self.blocks, self.discipline);
        let victim = self
            .policy
            .evict(incoming, &|b| Self::may_go(blocks, discipline, b));
        let Some(victim) = victim else { return false };
        self.remove(victim);
        true
    }

    fn remove(&mut self, block: u32) {
        if let Some(above) = self.blocks.leave(block) {
            self.policy.freed(Some(above));
        }
        self.totals.resident -= 1;
        self.totals.evictions += 1;
        if let Some(ages) = &mut self.ages {
            ages.evicted(u64::from(block), 1);
        }
    }

    /// Record the blocks that a request misses.
    fn note_missed(&mut self, row: &[u32]) {
        let Some(ages) = &mut self.ages else { return };
        for (depth, &block) in row.iter().enumerate() {
            if !self.blocks.is_resident(block) {
                ages.missed(u64::from(block), depth as u32, 1);
            }
        }
    }

    fn expire(&mut self, now_ns: i64) {
        loop {
            let blocks = &self.blocks;
            let gone = self.policy.expire(now_ns, &|b| !blocks.is_in_flight(b));
            let Some(block) = gone else { break };
            self.remove(block);
            self.totals.expired += 1;
        }
    }

    /// Remove blocks beyond the policy's own limits.
    fn settle(&mut self) {
        while self.aborts {
            let (blocks, discipline) = (&self.blocks, self.discipline);
            let free = |b| Self::may_go(blocks, discipline, b);
            let Some(gone) = self.policy.abort(&free) else {
                return;
            };
            self.remove(gone);
        }
    }

    /// Use a resident block.
    fn use_block(&mut self, block: u32) {
        self.policy.on_hit(block);
        self.settle();
    }

    /// Insert a block, evicting for it; false if no block is evictable.
    fn admit(&mut self, block: u32) -> bool {
        self.policy.on_miss(block);
        while self.totals.resident >= self.capacity {
            if !self.evict(block) {
                return false;
            }
        }
        self.policy.insert(block);
        self.blocks.arrive(block);
        self.totals.resident += 1;
        self.settle();
        true
    }

    fn leaf_first(&mut self, row: &[u32], found: usize) -> u32 {
        let held = self.blocks.held_resident().unwrap_or(found as u64);
        let kept = row.len().min(found + (self.capacity - held) as usize);
        for &block in row[found..kept.max(found)].iter().rev() {
            // if the trace is no tree, a deeper block may be resident already
            if self.blocks.is_resident(block) {
                self.use_block(block);
            } else if !self.admit(block) {
                break;
            }
        }
        if self.aborts {
            row[..found]
                .iter()
                .rev()
                .for_each(|&block| self.use_block(block));
        } else {
            self.policy.on_hits(&row[..found]);
        }
        found as u32
    }

    fn access(&mut self, depth: usize, block: u32) -> bool {
        self.facts.last_access += 1;
        self.facts.depth = depth as u32;
        self.policy.facts(self.facts);
        let hit = self.policy.contains(block);
        if hit {
            self.use_block(block);
        } else {
            self.admit(block);
        }
        hit
    }

    fn queue(&mut self, row: &[u32], found: usize) -> u32 {
        let missing = row.iter().filter(|&&b| !self.blocks.is_resident(b)).count() as u64;
        let first = row.get(found).copied().unwrap_or_default();
        while self.totals.resident + missing > self.capacity {
            if !self.evict(first) {
                break;
            }
        }
        for (depth, &block) in row.iter().enumerate() {
            let resident = self.blocks.is_resident(block);
            self.facts.last_access += 1;
            self.facts.depth = depth as u32;
            self.policy.facts(self.facts);
            if resident {
                self.use_block(block);
            } else if self.totals.resident < self.capacity {
                self.admit(block);
            }
        }
        found as u32
    }
}

impl RowReplay for Objects<'_> {
    fn row(&mut self, ids: &[u32], blocks: RowBlocks, arrival_ns: i64) -> Result<u32, PromptError> {
        blocks.check()?;
        self.facts.last_access_ns = self.facts.last_access_ns.max(arrival_ns);
        self.blocks.end_oldest();
        self.expire(self.facts.last_access_ns);
        let mut row = std::mem::take(&mut self.row);
        self.blocks.number(ids, blocks, &mut row)?;
        self.blocks.take(&row);
        self.policy.freed(None);
        self.note_missed(&row);
        let resident = |&&block: &&u32| self.blocks.is_resident(block);
        let found = row.iter().take_while(resident).count();
        self.facts.found_blocks = found as u32;
        self.facts.computed_blocks = (row.len() - found) as u32;
        let accesses = row.iter().enumerate();
        let hits = match self.discipline {
            Discipline::LeafFirst => self.leaf_first(&row, found),
            Discipline::Objects(TouchFrom::Tail) => accesses
                .rev()
                .filter(|&(depth, &block)| self.access(depth, block))
                .count() as u32,
            Discipline::Objects(TouchFrom::Root) => accesses
                .filter(|&(depth, &block)| self.access(depth, block))
                .count() as u32,
            Discipline::Queue => self.queue(&row, found),
        };
        self.row = row;
        Ok(hits)
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}

/// Replay a trace against a tier of an object policy.
///
/// `known` are leading blocks of each request, for which the demand that evicted each missed block is reported.
pub fn replay<'a>(
    prompts: &Prompts,
    mut tier: Objects<'a>,
    arrival_ns: &[i64],
    known: Option<&'a [u32]>,
) -> Result<Decisions, PromptError> {
    let (ids, per) = (prompts.distinct_ids(), u64::from(prompts.blocks_per_id));
    tier.ages = known.map(|k| EvictedMisses::new(k, ids, per));
    let mut hits = Vec::with_capacity(prompts.len());
    for (i, &arrival) in arrival_ns.iter().enumerate() {
        tier.ages.iter_mut().for_each(|ages| ages.start(i));
        hits.push(tier.row(prompts.row(i), prompts.blocks_of(i), arrival)?);
    }
    let totals = tier.totals();
    let missed = tier.ages.map_or(Vec::new(), EvictedMisses::into_misses);
    Ok(Decisions::of(hits, totals, missed))
}

//! Replay of an object policy on single blocks: leaf first, or flat in one of two orders.

use super::blocks::Blocks;
use super::{Decisions, TouchFrom};
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

struct Tier<'a, 'b> {
    blocks: &'b mut Blocks<'a>,
    policy: &'b mut dyn ObjectPolicy,
    capacity: u64,
    size: u64,
    evictions: u64,
    expired: u64,
    ages: Option<EvictedMisses<'b>>,
}

impl Tier<'_, '_> {
    fn may_go(blocks: &Blocks, discipline: Discipline, block: u32) -> bool {
        match discipline {
            Discipline::Objects(_) => !blocks.is_in_flight(block),
            Discipline::Queue => !blocks.is_held(block),
            Discipline::LeafFirst => !blocks.is_held(block) && blocks.is_leaf(block),
        }
    }

    fn evict(&mut self, incoming: u32, discipline: Discipline) -> bool {
        let blocks = &*self.blocks;
        let victim = self
            .policy
            .evict(incoming, &|b| Self::may_go(blocks, discipline, b));
        let Some(victim) = victim else { return false };
        self.remove(victim);
        true
    }

    fn remove(&mut self, block: u32) {
        self.blocks.leave(block);
        self.size -= 1;
        self.evictions += 1;
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
            let blocks = &*self.blocks;
            let gone = self.policy.expire(now_ns, &|b| !blocks.is_in_flight(b));
            let Some(block) = gone else { break };
            self.remove(block);
            self.expired += 1;
        }
    }

    /// Remove blocks beyond the policy's own limits.
    fn settle(&mut self, discipline: Discipline) {
        loop {
            let blocks = &*self.blocks;
            let free = |b| Self::may_go(blocks, discipline, b);
            let Some(gone) = self.policy.abort(&free) else {
                return;
            };
            self.remove(gone);
        }
    }

    /// Use a resident block.
    fn use_block(&mut self, block: u32, discipline: Discipline) {
        self.policy.on_hit(block);
        self.settle(discipline);
    }

    /// Insert a block, evicting for it; false if no block is evictable.
    fn admit(&mut self, block: u32, discipline: Discipline) -> bool {
        self.policy.on_miss(block);
        while self.size >= self.capacity {
            if !self.evict(block, discipline) {
                return false;
            }
        }
        self.policy.insert(block);
        self.blocks.arrive(block);
        self.size += 1;
        self.settle(discipline);
        true
    }
}

/// Replay a trace against an object policy with a capacity of `capacity` ≥ 1 blocks.
///
/// A block that finds no capacity, because all resident blocks are held, is not admitted. `known` are leading
/// blocks of each request, for which the demand that evicted each missed block is reported.
pub fn replay<'b>(
    blocks: &'b mut Blocks<'_>,
    capacity: u64,
    policy: &'b mut dyn ObjectPolicy,
    discipline: Discipline,
    arrival_ns: &[i64],
    known: Option<&'b [u32]>,
) -> Decisions {
    let requests = blocks.requests();
    let (ids, per) = blocks.ids();
    let mut tier = Tier {
        blocks,
        policy,
        capacity,
        size: 0,
        evictions: 0,
        expired: 0,
        ages: known.map(|k| EvictedMisses::new(k, ids, u64::from(per))),
    };
    let mut hits = Vec::with_capacity(requests);
    let mut row = Vec::new();
    let mut facts = Facts {
        last_access_ns: i64::MIN,
        ..Facts::default()
    };
    for (i, &arrival) in arrival_ns.iter().enumerate() {
        facts.last_access_ns = facts.last_access_ns.max(arrival);
        if let Some(ages) = &mut tier.ages {
            ages.start(i);
        }
        tier.blocks.end_oldest();
        tier.expire(facts.last_access_ns);
        tier.blocks.take(i, &mut row);
        tier.note_missed(&row);
        let found = row
            .iter()
            .take_while(|&&b| tier.blocks.is_resident(b))
            .count();
        facts.found_blocks = found as u32;
        facts.computed_blocks = (row.len() - found) as u32;
        hits.push(match discipline {
            Discipline::LeafFirst => leaf_first(&mut tier, &row, found),
            Discipline::Objects(touch_from) => objects(&mut tier, &row, touch_from, &mut facts),
            Discipline::Queue => queue(&mut tier, &row, found, &mut facts),
        });
    }
    Decisions {
        hits,
        evictions: tier.evictions,
        expired: tier.expired,
        resident: tier.size,
        missed: tier.ages.map_or(Vec::new(), EvictedMisses::into_misses),
    }
}

fn leaf_first(tier: &mut Tier, row: &[u32], found: usize) -> u32 {
    let held = tier.blocks.held_resident().unwrap_or(found as u64);
    let kept = row.len().min(found + (tier.capacity - held) as usize);
    for &block in row[found..kept.max(found)].iter().rev() {
        // if the trace is no tree, a deeper block may be resident already
        if tier.blocks.is_resident(block) {
            tier.use_block(block, Discipline::LeafFirst);
        } else if !tier.admit(block, Discipline::LeafFirst) {
            break;
        }
    }
    row[..found]
        .iter()
        .rev()
        .for_each(|&block| tier.use_block(block, Discipline::LeafFirst));
    found as u32
}

fn objects(tier: &mut Tier, row: &[u32], touch_from: TouchFrom, facts: &mut Facts) -> u32 {
    let mut hits = 0;
    let mut access = |(depth, &block): (usize, &u32)| {
        facts.last_access += 1;
        facts.depth = depth as u32;
        tier.policy.facts(*facts);
        if tier.policy.contains(block) {
            hits += 1;
            tier.use_block(block, Discipline::Objects(touch_from));
        } else {
            tier.admit(block, Discipline::Objects(touch_from));
        }
    };
    match touch_from {
        TouchFrom::Tail => row.iter().enumerate().rev().for_each(&mut access),
        TouchFrom::Root => row.iter().enumerate().for_each(&mut access),
    }
    hits
}

fn queue(tier: &mut Tier, row: &[u32], found: usize, facts: &mut Facts) -> u32 {
    let missing = row.iter().filter(|&&b| !tier.blocks.is_resident(b)).count() as u64;
    let first = row.get(found).copied().unwrap_or_default();
    while tier.size + missing > tier.capacity {
        if !tier.evict(first, Discipline::Queue) {
            break;
        }
    }
    for (depth, &block) in row.iter().enumerate() {
        facts.last_access += 1;
        facts.depth = depth as u32;
        tier.policy.facts(*facts);
        if tier.blocks.is_resident(block) {
            tier.use_block(block, Discipline::Queue);
        } else if tier.size < tier.capacity {
            tier.admit(block, Discipline::Queue);
        }
    }
    found as u32
}

//! A policy as the eviction order of a tier: the simulation adds, uses and removes blocks, and the order
//! names the next victim.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::leaf::{Facts, Key, Lapse, LeafPolicy};
use super::object::ObjectPolicy;
use super::{Bounds, Kind, NativePolicy, PolicySettings};

/// A block as an order sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named {
    /// Its number, counted from 0, the same at every return of the block.
    pub number: u32,
    /// The number of the block before it; none for a first block.
    pub parent: Option<u32>,
}

/// The conditions for evicting a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Ready and not held.
    pub idle: bool,
    /// No block after it has a copy on this tier.
    pub leaf: bool,
}

impl Standing {
    /// True if the block is evictable now.
    pub fn may_go(self) -> bool {
        self.idle && self.leaf
    }
}

/// The order in which blocks are evicted from a tier.
///
/// A block joins at its first release, deepest block of a request first; later releases are uses. A block
/// that no request held here joins when it first becomes evictable. `leave` follows every removal, also of a
/// block that `next_victim` named.
pub trait EvictionOrder: Send + Sync {
    /// Add a block that is new to the tier.
    fn join(&mut self, block: Named, facts: &Facts);

    /// Record a use.
    fn used(&mut self, block: u32, facts: &Facts);

    /// Forget a block that left the tier.
    fn leave(&mut self, block: u32);

    /// Update the conditions for evicting a block.
    fn stands(&mut self, block: u32, standing: Standing);

    /// Name the next of `wanted` victims, which is then evicted; `None` if no block is evictable.
    fn next_victim(&mut self, wanted: u64, now_ns: u64) -> Option<u32>;

    /// Name an expired block, which is then discarded.
    fn next_lapsed(&mut self, _now_ns: u64) -> Option<u32> {
        None
    }
}

/// Make the eviction order of a tier of `capacity` blocks, whatever the kind of its policy.
pub fn order_of(
    policy: &NativePolicy,
    settings: &PolicySettings,
    capacity: usize,
) -> Box<dyn EvictionOrder> {
    match policy.kind {
        Kind::Ranked(make) => Box::new(Keyed::new(make(settings))),
        Kind::Queue(make) => {
            let bounds = Bounds {
                capacity,
                universe: 0, // queues grow with the blocks added
            };
            Box::new(Queued::new(make(settings, bounds)))
        }
    }
}

/// Key, deepest first, order of joining, block.
type Candidate = (Key, Reverse<u32>, u64, u32);

/// Time, deepest first, number of the join, block.
type Due = (i64, Reverse<u32>, u64, u32);

#[derive(Debug, Clone, Copy, Default)]
struct Ranked {
    facts: Facts,
    key: Key,
    /// Number of the join with which the block came; 0 while it is absent.
    joined: u64,
    standing: Standing,
}

/// A leaf policy as an order: the evictable blocks, sorted by key.
pub struct Keyed {
    policy: Box<dyn LeafPolicy>,
    blocks: Vec<Ranked>,
    candidates: BTreeSet<Candidate>,
    lapses: BinaryHeap<Reverse<Due>>,
    joins: u64,
}

impl Keyed {
    /// An order without blocks.
    pub fn new(policy: Box<dyn LeafPolicy>) -> Self {
        Self {
            policy,
            blocks: Vec::new(),
            candidates: BTreeSet::new(),
            lapses: BinaryHeap::new(),
            joins: 0,
        }
    }

    fn candidate(&self, block: u32) -> Candidate {
        let b = &self.blocks[block as usize];
        (b.key, Reverse(b.facts.depth), b.joined, block)
    }

    fn unlist(&mut self, block: u32) {
        if self.blocks[block as usize].standing.may_go() {
            let candidate = self.candidate(block);
            self.candidates.remove(&candidate);
        }
    }

    fn list(&mut self, block: u32) {
        if self.blocks[block as usize].standing.may_go() {
            let candidate = self.candidate(block);
            self.candidates.insert(candidate);
        }
    }

    fn rank(&mut self, block: u32, facts: Facts) {
        self.unlist(block);
        let b = &mut self.blocks[block as usize];
        b.facts = facts;
        b.key = self.policy.key(&facts);
        self.watch(block);
        self.list(block);
    }

    /// Schedules the time at which the block lapses.
    fn watch(&mut self, block: u32) {
        let b = &self.blocks[block as usize];
        if let Lapse::Gone(at) | Lapse::Rekey(at, _) = self.policy.lapse(&b.facts) {
            let depth = Reverse(b.facts.depth);
            self.lapses.push(Reverse((at, depth, b.joined, block)));
        }
    }

    /// Gives lapsed blocks their new keys; returns the first block that has expired and is evictable.
    fn lapse(&mut self, now_ns: i64) -> Option<u32> {
        while let Some(&Reverse((at, _, joined, block))) = self.lapses.peek() {
            if at > now_ns {
                return None;
            }
            self.lapses.pop();
            let b = self.blocks[block as usize];
            if b.joined != joined {
                continue;
            }
            match self.policy.lapse(&b.facts) {
                Lapse::Gone(due) if due == at && b.standing.may_go() => return Some(block),
                Lapse::Rekey(due, key) if due == at => {
                    self.unlist(block);
                    self.blocks[block as usize].key = key;
                    self.list(block);
                }
                _ => {}
            }
        }
        None
    }
}

impl EvictionOrder for Keyed {
    fn join(&mut self, block: Named, facts: &Facts) {
        let number = block.number as usize;
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, Ranked::default());
        }
        self.joins += 1;
        self.blocks[number].joined = self.joins;
        self.rank(block.number, *facts);
    }

    fn used(&mut self, block: u32, facts: &Facts) {
        self.rank(block, *facts);
    }

    fn leave(&mut self, block: u32) {
        self.unlist(block);
        self.blocks[block as usize] = Ranked::default();
    }

    fn stands(&mut self, block: u32, standing: Standing) {
        self.unlist(block);
        self.blocks[block as usize].standing = standing;
        self.list(block);
        if standing.may_go() {
            self.watch(block); // a lapse that fell due while the block was held takes effect now
        }
    }

    fn next_victim(&mut self, _wanted: u64, now_ns: u64) -> Option<u32> {
        if let Some(gone) = self.lapse(now_ns as i64) {
            return Some(gone);
        }
        let &(key, _, _, block) = self.candidates.first()?;
        self.policy.on_evict(key);
        Some(block)
    }

    fn next_lapsed(&mut self, now_ns: u64) -> Option<u32> {
        self.lapse(now_ns as i64)
    }
}

/// An object policy as an order: its own queues, in which blocks that are not evictable are skipped.
pub struct Queued {
    policy: Box<dyn ObjectPolicy>,
    may_go: Vec<bool>,
}

impl Queued {
    /// An order without blocks.
    pub fn new(policy: Box<dyn ObjectPolicy>) -> Self {
        Self {
            policy,
            may_go: Vec::new(),
        }
    }
}

impl EvictionOrder for Queued {
    fn join(&mut self, block: Named, _facts: &Facts) {
        self.policy.on_miss(block.number);
        self.policy.insert(block.number);
    }

    fn used(&mut self, block: u32, _facts: &Facts) {
        self.policy.on_hit(block);
    }

    fn leave(&mut self, block: u32) {
        self.policy.remove(block);
        if let Some(may_go) = self.may_go.get_mut(block as usize) {
            *may_go = false;
        }
    }

    fn stands(&mut self, block: u32, standing: Standing) {
        if self.may_go.len() <= block as usize {
            self.may_go.resize(block as usize + 1, false);
        }
        self.may_go[block as usize] = standing.may_go();
        if standing.may_go() {
            self.policy.freed(Some(block));
        }
    }

    fn next_victim(&mut self, _wanted: u64, _now_ns: u64) -> Option<u32> {
        let may_go = &self.may_go;
        let free = |block: u32| may_go.get(block as usize).copied().unwrap_or(false);
        self.policy.evict(0, &free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked_examples::settings;

    const FREE: Standing = Standing {
        idle: true,
        leaf: true,
    };
    const HELD: Standing = Standing {
        idle: false,
        leaf: true,
    };

    /// The next victim after blocks 0, 1, 2 joined in this order, 0 was used again, and 1 is held.
    fn next_victim(policy: &str) -> Option<u32> {
        let mut order = order_of(NativePolicy::named(policy).unwrap(), &settings(), 3);
        for number in 0..3 {
            let facts = Facts {
                last_access: u64::from(number) + 1,
                created: u64::from(number) + 1,
                hits: 1,
                ..Facts::default()
            };
            let parent = None;
            order.join(Named { number, parent }, &facts);
            order.stands(number, FREE);
        }
        let used = Facts {
            last_access: 4,
            created: 1,
            hits: 2,
            ..Facts::default()
        };
        order.used(0, &used);
        order.stands(1, HELD);
        order.next_victim(1, 0)
    }

    #[test]
    fn a_held_block_is_passed_over_by_either_kind() {
        assert_eq!(next_victim("lru"), Some(2));
        assert_eq!(next_victim("fifo"), Some(0));
        assert_eq!(next_victim("arc"), Some(2));
    }

    #[test]
    fn where_no_block_may_go_none_is_named() {
        for policy in ["lru", "sieve"] {
            let mut order = order_of(NativePolicy::named(policy).unwrap(), &settings(), 3);
            let (number, parent) = (0, None);
            order.join(Named { number, parent }, &Facts::default());
            order.stands(0, HELD);
            assert_eq!(order.next_victim(1, 0), None);
        }
    }
}

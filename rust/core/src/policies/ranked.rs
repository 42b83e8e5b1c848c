//! A leaf policy on single blocks: candidates in a heap, whose stale entries are skipped.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::leaf::{Facts, Key, Lapse, LeafPolicy};
use super::object::{MayGo, ObjectPolicy};

const NONE: u32 = u32::MAX;

/// Data of a resident block.
#[derive(Debug, Clone, Copy)]
struct Slot {
    key: Key,
    facts: Facts,
}

/// Ties of the key go to the deepest block, then to the lower number.
type Entry = Reverse<(Key, Reverse<u32>, u32)>;

/// A ranked policy on single blocks: evicts the evictable block with the smallest key.
pub struct Ranked {
    policy: Box<dyn LeafPolicy>,
    slot_of: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    heap: BinaryHeap<Entry>,
    lapses: BinaryHeap<Reverse<(i64, Reverse<u32>, u32)>>,
    /// Facts of the block that the next call is about.
    now: Facts,
}

impl Ranked {
    /// A policy without resident blocks; `universe` blocks are known, more may come.
    pub fn new(policy: Box<dyn LeafPolicy>, universe: usize) -> Self {
        Self {
            policy,
            slot_of: vec![NONE; universe],
            slots: Vec::new(),
            free: Vec::new(),
            heap: BinaryHeap::new(),
            lapses: BinaryHeap::new(),
            now: Facts::default(),
        }
    }

    fn set(&mut self, slot: u32, block: u32, facts: Facts) {
        let key = self.policy.key(&facts);
        self.slots[slot as usize] = Slot { key, facts };
        self.heap.push(Reverse((key, Reverse(facts.depth), block)));
        match self.policy.lapse(&facts) {
            Lapse::Never => {}
            Lapse::Gone(at) | Lapse::Rekey(at, _) => {
                self.lapses.push(Reverse((at, Reverse(facts.depth), block)));
            }
        }
    }

    fn slot(&self, block: u32) -> Option<&Slot> {
        match self.slot_of.get(block as usize) {
            None | Some(&NONE) => None,
            Some(&slot) => Some(&self.slots[slot as usize]),
        }
    }

    fn forget(&mut self, block: u32) {
        let slot = std::mem::replace(&mut self.slot_of[block as usize], NONE);
        self.free.push(slot);
    }
}

impl ObjectPolicy for Ranked {
    fn contains(&self, block: u32) -> bool {
        self.slot(block).is_some()
    }

    fn facts(&mut self, facts: Facts) {
        self.now = facts;
    }

    fn on_hit(&mut self, block: u32) {
        let slot = self.slot_of[block as usize];
        let old = self.slots[slot as usize].facts;
        let facts = Facts {
            hits: old.hits + 1,
            created: old.created,
            found_blocks: old.found_blocks,
            computed_blocks: old.computed_blocks,
            ..self.now
        };
        self.set(slot, block, facts);
    }

    fn insert(&mut self, block: u32) {
        let facts = Facts {
            hits: 1,
            created: self.now.last_access,
            ..self.now
        };
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(Slot {
                    key: Key::default(),
                    facts,
                });
                (self.slots.len() - 1) as u32
            }
        };
        if self.slot_of.len() <= block as usize {
            self.slot_of.resize(block as usize + 1, NONE);
        }
        self.slot_of[block as usize] = slot;
        self.set(slot, block, facts);
    }

    fn evict(&mut self, _incoming: u32, may_go: &MayGo) -> Option<u32> {
        let mut passed = Vec::new();
        let mut victim = None;
        while let Some(entry) = self.heap.pop() {
            let Reverse((key, _, block)) = entry;
            if self.slot(block).map(|slot| slot.key) != Some(key) {
                continue;
            }
            if may_go(block) {
                self.policy.on_evict(key);
                self.forget(block);
                victim = Some(block);
                break;
            }
            passed.push(entry);
        }
        self.heap.extend(passed);
        victim
    }

    fn remove(&mut self, block: u32) {
        if self.contains(block) {
            self.forget(block);
        }
    }

    fn expire(&mut self, now_ns: i64, may_go: &MayGo) -> Option<u32> {
        let mut waiting = Vec::new();
        let mut gone = None;
        while let Some(&entry) = self.lapses.peek() {
            let Reverse((at, _, block)) = entry;
            if at > now_ns {
                break;
            }
            self.lapses.pop();
            let Some(&Slot { facts, .. }) = self.slot(block) else {
                continue;
            };
            match self.policy.lapse(&facts) {
                Lapse::Gone(due) if due == at && may_go(block) => {
                    self.forget(block);
                    gone = Some(block);
                    break;
                }
                Lapse::Gone(due) if due == at => waiting.push(entry),
                Lapse::Rekey(due, key) if due == at => {
                    let slot = self.slot_of[block as usize] as usize;
                    self.slots[slot].key = key;
                    self.heap.push(Reverse((key, Reverse(facts.depth), block)));
                }
                _ => {}
            }
        }
        self.lapses.extend(waiting);
        gone
    }
}

//! A tier of leaf-first eviction: segments of runs with equal facts, and the leaves that may go, ordered by key.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

use super::growing::TierRuns;
use super::holds::Holds;
use super::Totals;
use crate::causes::known_misses::{run_key, EvictedMisses};
use crate::ids::NONE;
use crate::policies::leaf::{Facts, Key, Lapse, LeafPolicy};

/// Blocks of one run with equal facts; the segments of a run are stacked, the deepest on top.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) run: u32,
    pub(super) len: u32,
    pub(super) facts: Facts,
    pub(super) key: Key,
    /// The segment above it in the prompt.
    pub(super) below: u32,
}

#[derive(Default)]
pub(super) struct Segments {
    pub(super) all: Vec<Segment>,
    pub(super) free: Vec<u32>,
}

impl Segments {
    pub(super) fn add(&mut self, segment: Segment) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.all[index as usize] = segment;
                index
            }
            None => {
                self.all.push(segment);
                (self.all.len() - 1) as u32
            }
        }
    }
}

/// The resident part of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack {
    pub(super) top: u32,
    pub(super) resident: u32,
    /// Runs below this one with resident blocks.
    pub(super) live_children: u32,
    pub(super) candidate: bool,
}

/// Among equal keys the deepest first.
type Candidate = (Key, Reverse<u32>, u32);

/// The tier: the resident part of each run, and the leaves that may go, ordered by key.
///
/// For each request: with `window` running, the oldest ends; lapsed blocks leave; look up; hold the path; evict the
/// shortfall, candidates by (key, deepest first); insert the missing blocks; count a use of the found blocks. If all
/// resident blocks are held, the head of the missing blocks is kept and the rest not admitted.
pub struct Leaves<'a> {
    pub(super) runs: TierRuns<'a>,
    pub(super) policy: Box<dyn LeafPolicy>,
    pub(super) capacity: u64,
    pub(super) segments: Segments,
    pub(super) stacks: Vec<Stack>,
    pub(super) candidates: BTreeSet<Candidate>,
    pub(super) lapses: BinaryHeap<Reverse<(i64, Reverse<u32>, u32)>>,
    pub(super) holds: Holds,
    /// Paths of the requests in flight, the oldest first.
    pub(super) in_flight: VecDeque<Vec<u32>>,
    /// Number and time of the last request.
    pub(super) now: Facts,
    pub(super) totals: Totals,
    pub(super) ages: Option<EvictedMisses<'a>>,
}

pub(super) const IDLE: Stack = Stack {
    top: NONE,
    resident: 0,
    live_children: 0,
    candidate: false,
};

impl<'a> Leaves<'a> {
    /// An empty tier of `capacity` blocks; `window` requests overlap.
    pub fn new(
        runs: TierRuns<'a>,
        capacity: u64,
        policy: Box<dyn LeafPolicy>,
        window: u32,
    ) -> Self {
        let slots = runs.len.len();
        Self {
            runs,
            policy,
            capacity,
            segments: Segments::default(),
            stacks: vec![IDLE; slots],
            candidates: BTreeSet::new(),
            lapses: BinaryHeap::new(),
            holds: Holds::new(window, slots),
            in_flight: VecDeque::new(),
            now: Facts {
                last_access_ns: i64::MIN,
                ..Facts::default()
            },
            totals: Totals::default(),
            ages: None,
        }
    }

    /// Distributes `spare` blocks among the runs of a path, first runs first, up to what each lacks.
    pub(super) fn share(&self, path: &[u32], mut spare: u64) -> Vec<u32> {
        let share = |&run: &u32| {
            let have = self.stacks[run as usize].resident;
            let want = spare.min(u64::from(self.runs.len[run as usize] - have));
            spare -= want;
            want as u32
        };
        path.iter().map(share).collect()
    }

    fn candidate(&self, run: u32) -> Candidate {
        let top = &self.segments.all[self.stacks[run as usize].top as usize];
        (top.key, Reverse(top.facts.depth), run)
    }

    pub(super) fn offer(&mut self, run: u32) {
        let stack = self.stacks[run as usize];
        let free = stack.live_children == 0 && !self.holds.is_held(run);
        if free && stack.resident > 0 && !stack.candidate {
            self.candidates.insert(self.candidate(run));
            self.stacks[run as usize].candidate = true;
        }
    }

    pub(super) fn withdraw(&mut self, run: u32) {
        if self.stacks[run as usize].candidate {
            let candidate = self.candidate(run);
            self.candidates.remove(&candidate);
            self.stacks[run as usize].candidate = false;
        }
    }

    /// Recompute the key of a segment whose facts changed.
    pub(super) fn rank(&mut self, segment: u32) {
        let s = &mut self.segments.all[segment as usize];
        s.key = self.policy.key(&s.facts);
        self.watch(segment);
    }

    /// Note when the key of a segment changes unless it is used.
    pub(super) fn watch(&mut self, segment: u32) {
        let s = &self.segments.all[segment as usize];
        if let Lapse::Gone(at) | Lapse::Rekey(at, _) = self.policy.lapse(&s.facts) {
            self.lapses
                .push(Reverse((at, Reverse(s.facts.depth), segment)));
        }
    }

    /// Remove up to `most` of the deepest blocks of a run's top segment; the run is not a candidate now.
    fn trim(&mut self, run: u32, most: u64) -> u64 {
        let top = self.stacks[run as usize].top;
        let segment = &mut self.segments.all[top as usize];
        let cut = most.min(u64::from(segment.len)) as u32;
        segment.len -= cut;
        segment.facts.depth = segment.facts.depth.wrapping_sub(cut);
        self.totals.resident -= u64::from(cut);
        self.stacks[run as usize].resident -= cut;
        if let Some(ages) = &mut self.ages {
            ages.evicted(run_key(run, self.stacks[run as usize].resident), cut);
        }
        if segment.len == 0 {
            self.stacks[run as usize].top = segment.below;
            self.segments.free.push(top);
        } else if self.policy.by_depth() {
            self.rank(top);
        }
        let parent = self.runs.parent[run as usize];
        if self.stacks[run as usize].resident == 0 && parent != NONE {
            self.stacks[parent as usize].live_children -= 1;
            self.offer(parent);
        }
        self.offer(run);
        u64::from(cut)
    }

    /// Evict `shortfall` blocks; return the number evicted.
    pub(super) fn evict(&mut self, shortfall: u64) -> u64 {
        let mut removed = 0;
        while removed < shortfall {
            let Some((key, _, run)) = self.candidates.pop_first() else {
                break;
            };
            self.stacks[run as usize].candidate = false;
            self.policy.on_evict(key);
            let most = if self.policy.by_depth() {
                1
            } else {
                shortfall - removed
            };
            removed += self.trim(run, most);
        }
        removed
    }

    /// Remove lapsed blocks; return the number removed.
    pub(super) fn lapse(&mut self, now_ns: i64) -> u64 {
        let mut removed = 0;
        let mut waiting = Vec::new();
        while let Some(&Reverse((at, depth, index))) = self.lapses.peek() {
            if at > now_ns {
                break;
            }
            self.lapses.pop();
            let segment = self.segments.all[index as usize];
            let run = segment.run;
            let stack = self.stacks[run as usize];
            if segment.len == 0 {
                continue;
            }
            match self.policy.lapse(&segment.facts) {
                // a held block lapses after its release
                Lapse::Gone(due) if due == at && self.holds.is_held(run) => {
                    waiting.push(Reverse((at, depth, index)));
                }
                Lapse::Gone(due) if due == at && stack.top == index && stack.live_children == 0 => {
                    self.withdraw(run);
                    removed += self.trim(run, u64::from(segment.len));
                }
                Lapse::Rekey(due, key) if due == at => {
                    let listed = stack.candidate && stack.top == index;
                    if listed {
                        self.withdraw(run);
                    }
                    self.segments.all[index as usize].key = key;
                    if listed {
                        self.offer(run);
                    }
                }
                _ => {}
            }
        }
        self.lapses.extend(waiting);
        removed
    }

    /// Put `blocks` more of a run into the tier, split where the policy requires it.
    pub(super) fn insert(&mut self, run: u32, blocks: u32, facts: Facts) {
        let base = self.runs.depth[run as usize];
        let mut from = base + self.stacks[run as usize].resident;
        let to = from + blocks;
        if self.stacks[run as usize].resident == 0 && self.runs.parent[run as usize] != NONE {
            self.stacks[self.runs.parent[run as usize] as usize].live_children += 1;
        }
        self.stacks[run as usize].resident += blocks;
        self.totals.resident += u64::from(blocks);
        self.holds.arrived(run, blocks);
        while from < to {
            let boundary = self
                .policy
                .split_at()
                .iter()
                .copied()
                .find(|&c| from < c && c < to);
            let end = boundary.unwrap_or(to);
            let below = self.stacks[run as usize].top;
            let facts = Facts {
                depth: end - 1,
                ..facts
            };
            let segment = Segment {
                run,
                len: end - from,
                facts,
                key: Key::default(),
                below,
            };
            let index = self.segments.add(segment);
            self.stacks[run as usize].top = index;
            self.rank(index);
            from = end;
        }
    }

    /// Release the blocks that a request held.
    pub(super) fn release(&mut self, path: &[u32]) {
        for &run in path {
            if self.holds.release(run, self.stacks[run as usize].resident) {
                self.offer(run);
            }
        }
    }

    pub(super) fn hit(&mut self, run: u32) {
        let mut index = self.stacks[run as usize].top;
        while index != NONE {
            let facts = &mut self.segments.all[index as usize].facts;
            facts.hits += 1;
            facts.last_access = self.now.last_access;
            facts.last_access_ns = self.now.last_access_ns;
            self.rank(index);
            index = self.segments.all[index as usize].below;
        }
    }
}

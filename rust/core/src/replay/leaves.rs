//! Prefix-aware replay of a leaf policy: segments of runs, leaf first; requests in flight hold their
//! segments.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::holds::Holds;
use super::runs::Runs;
use super::Decisions;
use crate::causes::known_misses::{run_key, EvictedMisses, RUN_LENGTH};
use crate::ids::NONE;
use crate::policies::leaf::{Facts, Key, Lapse, LeafPolicy};

/// Blocks of one run with equal facts; the segments of a run are stacked, the deepest on top.
#[derive(Debug, Clone, Copy)]
struct Segment {
    run: u32,
    len: u32,
    facts: Facts,
    key: Key,
    /// The segment above it in the prompt.
    below: u32,
}

/// The resident part of a run.
#[derive(Debug, Clone, Copy)]
struct Stack {
    top: u32,
    resident: u32,
    /// Runs below this one with resident blocks.
    live_children: u32,
    candidate: bool,
}

/// Among equal keys the deepest first.
type Candidate = (Key, Reverse<u32>, u32);

struct Tier<'a> {
    runs: &'a Runs,
    policy: &'a mut dyn LeafPolicy,
    segments: Vec<Segment>,
    free: Vec<u32>,
    stacks: Vec<Stack>,
    candidates: BTreeSet<Candidate>,
    lapses: BinaryHeap<Reverse<(i64, Reverse<u32>, u32)>>,
    size: u64,
    holds: Holds,
    ages: Option<EvictedMisses<'a>>,
}

impl<'a> Tier<'a> {
    fn new(
        runs: &'a Runs,
        policy: &'a mut dyn LeafPolicy,
        window: u32,
        known: Option<&'a [u32]>,
    ) -> Self {
        let idle = Stack {
            top: NONE,
            resident: 0,
            live_children: 0,
            candidate: false,
        };
        Self {
            runs,
            policy,
            segments: Vec::new(),
            free: Vec::new(),
            stacks: vec![idle; runs.len.len()],
            candidates: BTreeSet::new(),
            lapses: BinaryHeap::new(),
            size: 0,
            holds: Holds::new(window, runs.len.len()),
            ages: known.map(|k| EvictedMisses::new(k, runs.len.len(), RUN_LENGTH)),
        }
    }

    /// Distributes `spare` blocks among the runs of a path, first runs first, up to what each lacks.
    fn share(&self, path: &[u32], mut spare: u64, wanted: &mut Vec<u32>) {
        wanted.clear();
        for &run in path {
            let have = self.stacks[run as usize].resident;
            let want = spare.min(u64::from(self.runs.len[run as usize] - have));
            spare -= want;
            wanted.push(want as u32);
        }
    }

    fn candidate(&self, run: u32) -> Candidate {
        let top = &self.segments[self.stacks[run as usize].top as usize];
        (top.key, Reverse(top.facts.depth), run)
    }

    fn offer(&mut self, run: u32) {
        let stack = self.stacks[run as usize];
        let free = stack.live_children == 0 && !self.holds.is_held(run);
        if free && stack.resident > 0 && !stack.candidate {
            self.candidates.insert(self.candidate(run));
            self.stacks[run as usize].candidate = true;
        }
    }

    fn withdraw(&mut self, run: u32) {
        if self.stacks[run as usize].candidate {
            let candidate = self.candidate(run);
            self.candidates.remove(&candidate);
            self.stacks[run as usize].candidate = false;
        }
    }

    /// Recompute the key of a segment whose facts changed.
    fn rank(&mut self, segment: u32) {
        let s = &mut self.segments[segment as usize];
        s.key = self.policy.key(&s.facts);
        if let Lapse::Gone(at) | Lapse::Rekey(at, _) = self.policy.lapse(&s.facts) {
            self.lapses
                .push(Reverse((at, Reverse(s.facts.depth), segment)));
        }
    }

    /// Remove up to `most` of the deepest blocks of a run's top segment; the run is not a candidate now.
    fn trim(&mut self, run: u32, most: u64) -> u64 {
        let top = self.stacks[run as usize].top;
        let segment = &mut self.segments[top as usize];
        let cut = most.min(u64::from(segment.len)) as u32;
        segment.len -= cut;
        segment.facts.depth = segment.facts.depth.wrapping_sub(cut);
        self.size -= u64::from(cut);
        self.stacks[run as usize].resident -= cut;
        if let Some(ages) = &mut self.ages {
            ages.evicted(run_key(run, self.stacks[run as usize].resident), cut);
        }
        if segment.len == 0 {
            self.stacks[run as usize].top = segment.below;
            self.free.push(top);
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
    fn evict(&mut self, shortfall: u64) -> u64 {
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
    fn lapse(&mut self, now_ns: i64) -> u64 {
        let mut removed = 0;
        let mut waiting = Vec::new();
        while let Some(&Reverse((at, depth, index))) = self.lapses.peek() {
            if at > now_ns {
                break;
            }
            self.lapses.pop();
            let segment = self.segments[index as usize];
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
                    self.segments[index as usize].key = key;
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
    fn insert(&mut self, run: u32, blocks: u32, facts: Facts) {
        let base = self.runs.depth[run as usize];
        let mut from = base + self.stacks[run as usize].resident;
        let to = from + blocks;
        if self.stacks[run as usize].resident == 0 && self.runs.parent[run as usize] != NONE {
            self.stacks[self.runs.parent[run as usize] as usize].live_children += 1;
        }
        self.stacks[run as usize].resident += blocks;
        self.size += u64::from(blocks);
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
                key: (0, 0),
                below,
            };
            let index = match self.free.pop() {
                Some(index) => {
                    self.segments[index as usize] = segment;
                    index
                }
                None => {
                    self.segments.push(segment);
                    (self.segments.len() - 1) as u32
                }
            };
            self.stacks[run as usize].top = index;
            self.rank(index);
            from = end;
        }
    }

    /// Release the blocks that a request held.
    fn release(&mut self, request: u32) {
        let runs = self.runs;
        for &run in runs.path(request as usize) {
            if self.holds.release(run, self.stacks[run as usize].resident) {
                self.offer(run);
            }
        }
    }

    fn hit(&mut self, run: u32, access: u64, now_ns: i64) {
        let mut index = self.stacks[run as usize].top;
        while index != NONE {
            let facts = &mut self.segments[index as usize].facts;
            facts.hits += 1;
            facts.last_access = access;
            facts.last_access_ns = now_ns;
            self.rank(index);
            index = self.segments[index as usize].below;
        }
    }
}

/// Replay a trace against a leaf policy with a capacity of `capacity` blocks.
///
/// For each request: with `window` running, the oldest ends; lapsed blocks leave; look up; hold the path;
/// evict the shortfall, candidates by (key, deepest first); insert the missing blocks; count a use of the
/// found blocks. If all resident blocks are held, the head of the missing blocks is kept and the rest not
/// admitted. `known` are leading blocks of each request, for which the demand that evicted each missed block
/// is reported. Cost: O(log candidates) per segment touched.
pub fn replay(
    runs: &Runs,
    capacity: u64,
    policy: &mut dyn LeafPolicy,
    arrival_ns: &[i64],
    window: u32,
    known: Option<&[u32]>,
) -> Decisions {
    let mut tier = Tier::new(runs, policy, window, known);
    let mut out = Decisions {
        hits: Vec::with_capacity(runs.requests()),
        ..Decisions::default()
    };
    let mut wanted: Vec<u32> = Vec::new();
    let mut now_ns = i64::MIN;
    for (i, &arrival) in arrival_ns.iter().enumerate() {
        let path = runs.path(i);
        now_ns = now_ns.max(arrival);
        if let Some(oldest) = tier.holds.before_start() {
            tier.release(oldest);
        }
        if let Some(ages) = &mut tier.ages {
            ages.start(i);
        }
        let lapsed = tier.lapse(now_ns);
        out.expired += lapsed;
        let (mut found, mut unbroken, mut have_all, mut total) = (0, true, 0u64, 0u64);
        for &run in path {
            tier.withdraw(run);
            let (have, len) = (tier.stacks[run as usize].resident, runs.len[run as usize]);
            tier.holds.hold(run, have);
            if let Some(ages) = &mut tier.ages {
                let depth = runs.depth[run as usize] + have;
                ages.missed(run_key(run, have), depth, len - have);
            }
            found += if unbroken { have } else { 0 };
            unbroken &= have == len;
            have_all += u64::from(have);
            total += u64::from(len);
        }
        out.hits.push(found);
        let new = (total - have_all).min(capacity - tier.holds.resident());
        out.evictions += lapsed + tier.evict((tier.size + new).saturating_sub(capacity));
        tier.share(path, new.min(capacity - tier.size), &mut wanted);
        let access = i as u64 + 1;
        let facts = Facts {
            depth: 0,
            hits: 1,
            last_access: access,
            created: access,
            last_access_ns: now_ns,
            found_blocks: found,
            computed_blocks: (total - u64::from(found)) as u32,
        };
        for (&run, &want) in path.iter().zip(&wanted).rev() {
            tier.hit(run, access, now_ns);
            if want > 0 {
                tier.insert(run, want, facts);
            }
        }
        if let Some(ended) = tier.holds.start(i as u32) {
            tier.release(ended);
        }
    }
    out.missed = tier.ages.map_or(Vec::new(), EvictedMisses::into_misses);
    out.resident = tier.size;
    out
}

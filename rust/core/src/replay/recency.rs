//! Least recently used on runs: one list of runs in recency order, trimmed from its old end.

use super::runs::Runs;
use super::{Decisions, TouchFrom};
use crate::causes::known_misses::{run_key, EvictedMisses, RUN_LENGTH};
use crate::ids::NONE;

/// A run's links in the recency list, and its number of resident blocks.
#[derive(Clone, Copy)]
struct RunLinks {
    newer: u32,
    older: u32,
    resident: u32,
}

struct Recency<'a> {
    runs: &'a Runs,
    touch_from: TouchFrom,
    ages: Option<EvictedMisses<'a>>,
    slots: Vec<RunLinks>,
    newest: u32,
    oldest: u32,
    size: u64,
}

impl Recency<'_> {
    fn unlink(&mut self, run: u32) {
        let RunLinks { newer, older, .. } = self.slots[run as usize];
        match newer {
            NONE => self.newest = older,
            n => self.slots[n as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            o => self.slots[o as usize].newer = newer,
        }
    }

    /// Make a run the newest, with `resident` of its blocks.
    fn touch(&mut self, run: u32, resident: u32) {
        if self.slots[run as usize].resident > 0 {
            self.unlink(run);
        }
        let slot = &mut self.slots[run as usize];
        self.size = self.size + u64::from(resident) - u64::from(slot.resident);
        *slot = RunLinks {
            newer: NONE,
            older: self.newest,
            resident,
        };
        match self.newest {
            NONE => self.oldest = run,
            n => self.slots[n as usize].newer = run,
        }
        self.newest = run;
    }

    fn note_evicted(&mut self, run: u32, resident: u32, cut: u32) {
        if let Some(ages) = &mut self.ages {
            let from = match self.touch_from {
                TouchFrom::Tail => resident - cut,
                TouchFrom::Root => self.runs.len[run as usize] - resident,
            };
            ages.evicted(run_key(run, from), cut);
        }
    }

    /// Record the blocks that a request misses of its path.
    fn note_missed(&mut self, request: usize) {
        let Some(ages) = &mut self.ages else { return };
        ages.start(request);
        for &run in self.runs.path(request) {
            let r = run as usize;
            let (have, len) = (self.slots[r].resident, self.runs.len[r]);
            let from = match self.touch_from {
                TouchFrom::Tail => have,
                TouchFrom::Root => 0,
            };
            ages.missed(run_key(run, from), self.runs.depth[r] + from, len - have);
        }
    }

    /// Remove the oldest blocks until `capacity` holds; return the number removed. The last `never` of them
    /// were never admitted.
    fn trim(&mut self, capacity: u64, never: u64) -> u64 {
        let mut removed = 0;
        while self.size > capacity {
            let run = self.oldest;
            let resident = self.slots[run as usize].resident;
            let cut = (self.size - capacity).min(u64::from(resident)) as u32;
            if cut == resident {
                self.unlink(run);
            }
            self.slots[run as usize].resident -= cut;
            if self.size - capacity > never {
                self.note_evicted(run, resident, cut);
            }
            self.size -= u64::from(cut);
            removed += u64::from(cut);
        }
        removed
    }
}

/// Replay a trace against least recently used with a capacity of `capacity` blocks.
///
/// Tail first, a run loses its deepest blocks first and a request longer than the tier keeps its head. Root
/// first, a run loses its first block first: its remaining blocks can no longer be found. `known` are leading
/// blocks of each request, for which the demand that evicted each missed block is reported. Cost: a few list
/// operations per run of each request; 12 bytes per run.
pub fn replay(
    runs: &Runs,
    capacity: u64,
    touch_from: TouchFrom,
    known: Option<&[u32]>,
) -> Decisions {
    let none = RunLinks {
        newer: NONE,
        older: NONE,
        resident: 0,
    };
    let mut recency = Recency {
        runs,
        touch_from,
        ages: known.map(|k| EvictedMisses::new(k, runs.len.len(), RUN_LENGTH)),
        slots: vec![none; runs.len.len()],
        newest: NONE,
        oldest: NONE,
        size: 0,
    };
    let mut out = Decisions {
        hits: Vec::with_capacity(runs.requests()),
        ..Decisions::default()
    };
    for i in 0..runs.requests() {
        let path = runs.path(i);
        let mut hits = 0;
        for &run in path {
            let (have, len) = (recency.slots[run as usize].resident, runs.len[run as usize]);
            match touch_from {
                TouchFrom::Tail => hits += have,
                TouchFrom::Root if have == len => hits += have,
                TouchFrom::Root => {}
            }
            if have < len {
                break;
            }
        }
        out.hits.push(hits);
        recency.note_missed(i);
        let mut touch = |&run: &u32| recency.touch(run, runs.len[run as usize]);
        match touch_from {
            TouchFrom::Tail => path.iter().rev().for_each(&mut touch),
            TouchFrom::Root => path.iter().for_each(&mut touch),
        }
        let prompt = path.iter().map(|&run| u64::from(runs.len[run as usize]));
        let prompt: u64 = prompt.sum();
        // the part of a prompt beyond the tier's capacity was never admitted
        let over = prompt.saturating_sub(capacity);
        let never = match touch_from {
            TouchFrom::Tail => over,
            // touched root first, the prompt enters and pushes its own head out
            TouchFrom::Root => 0,
        };
        out.evictions += recency.trim(capacity, never) - over;
    }
    out.missed = recency.ages.map_or(Vec::new(), EvictedMisses::into_misses);
    out.resident = recency.size;
    out
}

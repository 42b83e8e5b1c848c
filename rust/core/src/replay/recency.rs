//! Least recently used on runs: one list of runs in recency order, trimmed from its old end.

use super::growing::{RunTier, TierRuns};
use super::objects::Discipline;
use super::runs::Runs;
use super::{Decisions, Totals, TouchFrom};
use crate::causes::known_misses::{run_key, EvictedMisses, RUN_LENGTH};
use crate::ids::NONE;

/// A run's links in the recency list, and its number of resident blocks.
#[derive(Clone, Copy)]
struct RunLinks {
    newer: u32,
    older: u32,
    resident: u32,
}

const ABSENT: RunLinks = RunLinks {
    newer: NONE,
    older: NONE,
    resident: 0,
};

/// The tier: runs in recency order, with the number of resident blocks of each.
///
/// Tail first, a run loses its deepest blocks first and a request longer than the tier keeps its head. Root first, a
/// run loses its first block first: its remaining blocks can no longer be found.
pub struct Recency<'a> {
    runs: TierRuns<'a>,
    touch_from: TouchFrom,
    discipline: Discipline,
    capacity: u64,
    ages: Option<EvictedMisses<'a>>,
    slots: Vec<RunLinks>,
    newest: u32,
    oldest: u32,
    size: u64,
    evictions: u64,
}

impl<'a> Recency<'a> {
    /// An empty tier of `capacity` blocks.
    pub fn new(runs: TierRuns<'a>, capacity: u64, touch_from: TouchFrom) -> Self {
        let slots = vec![ABSENT; runs.len.len()];
        Self {
            runs,
            touch_from,
            discipline: Discipline::LeafFirst,
            capacity,
            ages: None,
            slots,
            newest: NONE,
            oldest: NONE,
            size: 0,
            evictions: 0,
        }
    }

    /// The same as a plain cache of blocks, or as a queue behind a prefix look-up.
    pub fn plain(runs: TierRuns<'a>, capacity: u64, discipline: Discipline) -> Self {
        let touch_from = match discipline {
            Discipline::Objects(end) => end,
            _ => TouchFrom::Root,
        };
        Self {
            discipline,
            ..Self::new(runs, capacity, touch_from)
        }
    }

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

    /// Link a run with resident blocks in front of an older one, or of none.
    fn link(&mut self, run: u32, older: u32) {
        let newer = match older {
            NONE => std::mem::replace(&mut self.oldest, run),
            o => std::mem::replace(&mut self.slots[o as usize].newer, run),
        };
        match newer {
            NONE => self.newest = run,
            n => self.slots[n as usize].older = run,
        }
        let slot = &mut self.slots[run as usize];
        (slot.newer, slot.older) = (newer, older);
    }

    /// Make a run the newest, with `resident` of its blocks.
    fn touch(&mut self, run: u32, resident: u32) {
        if self.slots[run as usize].resident > 0 {
            self.unlink(run);
        }
        let slot = &mut self.slots[run as usize];
        self.size = self.size + u64::from(resident) - u64::from(slot.resident);
        slot.resident = resident;
        self.link(run, self.newest);
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
    fn note_missed(&mut self, path: &[u32]) {
        let Some(ages) = &mut self.ages else { return };
        for &run in path {
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
    fn trim(&mut self, never: u64) -> u64 {
        let mut removed = 0;
        while self.size > self.capacity {
            let run = self.oldest;
            let over = self.size - self.capacity;
            let resident = self.slots[run as usize].resident;
            let cut = over.min(u64::from(resident)) as u32;
            if cut == resident {
                self.unlink(run);
            }
            self.slots[run as usize].resident -= cut;
            if over > never {
                self.note_evicted(run, resident, cut);
            }
            self.size -= u64::from(cut);
            removed += u64::from(cut);
        }
        removed
    }

    /// Access the blocks of a run one by one in a plain cache; return those found.
    ///
    /// They were touched together: what is left of a run in part is the oldest, and leaves before it is reached.
    fn access(&mut self, run: u32) -> u32 {
        let (have, len) = (
            self.slots[run as usize].resident,
            self.runs.len[run as usize],
        );
        let found = if have == len { len } else { 0 };
        self.touch(run, len);
        self.evictions += u64::from(have - found) + self.trim(0);
        found
    }

    /// Capacity that the resident blocks of a path leave, all others evicted.
    fn free(&self, path: &[u32]) -> u64 {
        let resident = path.iter().map(|&run| self.slots[run as usize].resident);
        self.capacity - resident.map(u64::from).sum::<u64>()
    }

    /// Missing blocks of a run, which are its first ones.
    fn missing(&self, run: u32) -> u64 {
        u64::from(self.runs.len[run as usize] - self.slots[run as usize].resident)
    }

    /// Put a path into a queue: its missing blocks, the first ones if not all fit, for which others leave.
    fn queue(&mut self, path: &[u32]) {
        let mut free = self.free(path);
        for &run in path {
            let admitted = Some(self.missing(run)).filter(|&m| m <= free).unwrap_or(0);
            free -= admitted;
            let resident = self.slots[run as usize].resident + admitted as u32;
            if resident > 0 {
                self.touch(run, resident);
            }
        }
        self.evictions += self.trim(0);
    }
}

impl RunTier for Recency<'_> {
    fn runs(&mut self) -> &mut Runs {
        self.runs.to_mut()
    }

    fn added(&mut self) {
        self.slots.push(ABSENT);
    }

    fn split(&mut self, run: u32, upper: u32) {
        let resident = self.slots[run as usize].resident;
        let (len, lower_len) = (self.runs.len[upper as usize], self.runs.len[run as usize]);
        let (kept, older) = match self.touch_from {
            TouchFrom::Tail => (resident.saturating_sub(len), run),
            TouchFrom::Root => (resident.min(lower_len), self.slots[run as usize].older),
        };
        self.slots[run as usize].resident = kept;
        self.slots[upper as usize].resident = resident - kept;
        if resident > kept {
            self.link(upper, older);
        }
        if resident > 0 && kept == 0 {
            self.unlink(run);
        }
    }

    fn cut(&self, path: &[u32]) -> Option<(usize, u32)> {
        if self.discipline != Discipline::Queue {
            return None;
        }
        let mut free = self.free(path);
        for (at, &run) in path.iter().enumerate() {
            let missing = self.missing(run);
            if missing > free {
                return (free > 0).then_some((at, free as u32));
            }
            free -= missing;
        }
        None
    }

    fn request(&mut self, path: &[u32], _arrival_ns: i64) -> u32 {
        match self.discipline {
            Discipline::Objects(TouchFrom::Tail) => {
                return path.iter().rev().map(|&run| self.access(run)).sum()
            }
            Discipline::Objects(TouchFrom::Root) => {
                return path.iter().map(|&run| self.access(run)).sum()
            }
            _ => {}
        }
        let mut hits = 0;
        for &run in path {
            let (have, len) = (
                self.slots[run as usize].resident,
                self.runs.len[run as usize],
            );
            match self.touch_from {
                TouchFrom::Tail => hits += have,
                TouchFrom::Root if have == len => hits += have,
                TouchFrom::Root => {}
            }
            if have < len {
                break;
            }
        }
        if self.discipline == Discipline::Queue {
            self.queue(path);
            return hits;
        }
        self.note_missed(path);
        let (mut prompt, touch_from, capacity) = (0, self.touch_from, self.capacity);
        let mut touch = |&run: &u32| {
            let len = self.runs.len[run as usize];
            prompt += u64::from(len);
            self.touch(run, len);
        };
        match touch_from {
            TouchFrom::Tail => path.iter().rev().for_each(&mut touch),
            TouchFrom::Root => path.iter().for_each(&mut touch),
        }
        // the part of a prompt beyond the tier's capacity was never admitted
        let over = prompt.saturating_sub(capacity);
        let never = match touch_from {
            TouchFrom::Tail => over,
            // touched root first, the prompt enters and pushes its own head out
            TouchFrom::Root => 0,
        };
        self.evictions += self.trim(never) - over;
        hits
    }

    fn totals(&self) -> Totals {
        Totals {
            evictions: self.evictions,
            expired: 0,
            resident: self.size,
        }
    }
}

/// Replay a trace against least recently used with a capacity of `capacity` blocks.
///
/// `known` are leading blocks of each request, for which the demand that evicted each missed block is reported. Cost:
/// a few list operations per run of each request; 12 bytes per run.
pub fn replay(
    runs: &Runs,
    capacity: u64,
    touch_from: TouchFrom,
    known: Option<&[u32]>,
) -> Decisions {
    let mut tier = Recency::new(TierRuns::Borrowed(runs), capacity, touch_from);
    tier.ages = known.map(|k| EvictedMisses::new(k, runs.len.len(), RUN_LENGTH));
    let request = |i| {
        tier.ages.iter_mut().for_each(|ages| ages.start(i));
        tier.request(runs.path(i), 0)
    };
    let hits = (0..runs.requests()).map(request).collect();
    let totals = tier.totals();
    let missed = tier.ages.map_or(Vec::new(), EvictedMisses::into_misses);
    Decisions::of(hits, totals, missed)
}

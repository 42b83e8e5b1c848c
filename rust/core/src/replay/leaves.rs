//! Prefix-aware replay of a leaf policy: segments of runs, leaf first; requests in flight hold their
//! segments.

use super::growing::RunTier;
use super::leaf_tier::{Leaves, Stack, IDLE};
use super::runs::Runs;
use super::{Decisions, Totals};
use crate::causes::known_misses::{run_key, EvictedMisses, RUN_LENGTH};
use crate::ids::NONE;
use crate::policies::leaf::Facts;

impl RunTier for Leaves<'_> {
    fn runs(&mut self) -> &mut Runs {
        self.runs.to_mut()
    }

    fn added(&mut self) {
        self.stacks.push(IDLE);
    }

    fn split(&mut self, run: u32, upper: u32) {
        self.withdraw(run);
        let base = self.runs.depth[run as usize];
        let resident = self.stacks[run as usize].resident;
        let kept = resident.saturating_sub(self.runs.len[upper as usize]);
        // the segments of the lower part stay, the first of them up to the border
        let (mut index, mut last, mut left) = (self.stacks[run as usize].top, NONE, kept);
        while index != NONE && left >= self.segments.all[index as usize].len {
            left -= self.segments.all[index as usize].len;
            (last, index) = (index, self.segments.all[index as usize].below);
        }
        if index != NONE && left > 0 {
            let mut above = self.segments.all[index as usize];
            above.len -= left;
            above.facts.depth = base - 1;
            let border = self.segments.add(above);
            (self.segments.all[index as usize].len, last) = (left, index);
            if self.policy.by_depth() {
                self.rank(border);
            } else {
                self.watch(border);
            }
            index = border;
        }
        match last {
            NONE => self.stacks[run as usize].top = NONE,
            last => self.segments.all[last as usize].below = NONE,
        }
        self.stacks[run as usize].resident = kept;
        self.stacks[upper as usize] = Stack {
            top: index,
            resident: resident - kept,
            live_children: u32::from(kept > 0),
            candidate: false,
        };
        while index != NONE {
            self.segments.all[index as usize].run = upper;
            index = self.segments.all[index as usize].below;
        }
        self.holds.split(run, upper);
        for path in &mut self.in_flight {
            if let Some(at) = path.iter().position(|&r| r == run) {
                path.insert(at, upper);
            }
        }
        self.offer(run);
        self.offer(upper);
    }

    fn request(&mut self, path: &[u32], arrival_ns: i64) -> u32 {
        self.now.last_access_ns = self.now.last_access_ns.max(arrival_ns);
        self.now.last_access += 1;
        if self.holds.before_start().is_some() {
            let oldest = self.in_flight.pop_front().unwrap_or_default();
            self.release(&oldest);
        }
        let lapsed = self.lapse(self.now.last_access_ns);
        self.totals.expired += lapsed;
        let (mut found, mut unbroken, mut have_all, mut total) = (0, true, 0u64, 0u64);
        for &run in path {
            self.withdraw(run);
            let (have, len) = (
                self.stacks[run as usize].resident,
                self.runs.len[run as usize],
            );
            self.holds.hold(run, have);
            if let Some(ages) = &mut self.ages {
                let depth = self.runs.depth[run as usize] + have;
                ages.missed(run_key(run, have), depth, len - have);
            }
            found += if unbroken { have } else { 0 };
            unbroken &= have == len;
            have_all += u64::from(have);
            total += u64::from(len);
        }
        let new = (total - have_all).min(self.capacity - self.holds.resident());
        let over = (self.totals.resident + new).saturating_sub(self.capacity);
        self.totals.evictions += lapsed + self.evict(over);
        let wanted = self.share(path, new.min(self.capacity - self.totals.resident));
        let facts = Facts {
            hits: 1,
            created: self.now.last_access,
            found_blocks: found,
            computed_blocks: (total - u64::from(found)) as u32,
            ..self.now
        };
        for (&run, &want) in path.iter().zip(&wanted).rev() {
            self.hit(run);
            if want > 0 {
                self.insert(run, want, facts);
            }
        }
        if self.holds.start(self.now.last_access as u32).is_some() {
            self.release(path);
        } else {
            self.in_flight.push_back(path.to_vec());
        }
        found
    }

    fn totals(&self) -> Totals {
        self.totals
    }
}

/// Replay a trace against a tier with a leaf policy.
///
/// `known` are leading blocks of each request, for which the demand that evicted each missed block is reported. Cost:
/// O(log candidates) per segment touched.
pub fn replay<'a>(
    runs: &'a Runs,
    mut tier: Leaves<'a>,
    arrival_ns: &[i64],
    known: Option<&'a [u32]>,
) -> Decisions {
    tier.ages = known.map(|k| EvictedMisses::new(k, runs.len.len(), RUN_LENGTH));
    let request = |(i, &arrival)| {
        tier.ages.iter_mut().for_each(|ages| ages.start(i));
        tier.request(runs.path(i), arrival)
    };
    let hits = arrival_ns.iter().enumerate().map(request).collect();
    let totals = tier.totals();
    let missed = tier.ages.map_or(Vec::new(), EvictedMisses::into_misses);
    Decisions::of(hits, totals, missed)
}

//! Ready times of copies, whole and by their first layer, and the times of their last access.
//!
//! A copy that a move writes has the times of its transmission ([`Store::set_times`]); they are in its move
//! until that finishes. A computed block has the times of its step. Consecutive blocks share a run whenever
//! they were computed or written. Each copy of the run keeps one [`TimeSpan`] for each time, so that every
//! block's own times are known without a split.

use super::node::{Run, State};
use super::ready::{TimeSpan, Times};
use super::{Answer, Store, StoreError, GPU};
use crate::convert::fit;
use crate::ids::{BlockRange, LeaseId, MoveId, NodeId, NO_MOVE};

/// Number of accesses whose times are kept even if no run or lease refers to them.
pub(super) const MANY_ACCESSES: usize = 1 << 14;
/// A copy of a block on a tier, as look-ups report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residency {
    /// The tier, 0 is the GPU.
    pub tier: usize,
    /// The move that writes it, or [`NO_MOVE`] if it is ready.
    pub by: MoveId,
    /// Ready times, future or past.
    pub times: Times,
    /// Time of the last access.
    pub last_access_ns: u64,
}

/// Returns the time span of a block, unless it is the copy's last one.
fn after(time_spans: &[TimeSpan], block: u32) -> Option<&TimeSpan> {
    time_spans.get(time_spans.partition_point(|s| s.end <= block))
}

impl Store {
    /// Sets the times at which a move's copies will be ready: the first layer and all layers.
    pub fn set_times(&mut self, id: MoveId, times: Times) -> Answer<()> {
        self.in_flight(id)?;
        if times.first_layer_ns > times.ready_ns {
            return Err(StoreError::LastLayerFirst);
        }
        self.moves[id].times = times;
        Ok(())
    }

    /// Returns every copy of the found leading blocks of a request with its times, in runs: (past the last
    /// block, copies from fast to slow). Changes nothing. Cost: linear in the runs.
    pub fn residency(&self, request: u32, limit: u32) -> Vec<(u32, Vec<Residency>)> {
        let mut runs: Vec<(u32, Vec<Residency>)> = Vec::new();
        self.walk(request, limit, |run, start, end| {
            let mut first = start;
            while first < end {
                let next = run.time_spans.iter().filter_map(|own| after(own, first));
                let past = next.map(|s| s.end).fold(end, u32::min);
                let copies = self.residencies(run, first);
                match runs.last_mut() {
                    Some(last) if last.1 == copies => last.0 = past,
                    _ => runs.push((past, copies)),
                }
                first = past;
            }
        });
        runs
    }

    fn residencies(&self, run: Run<'_>, block: u32) -> Vec<Residency> {
        let mut found = Vec::new();
        for (tier, copy) in run.copies.iter().enumerate() {
            let (by, times) = match (copy.state, after(&run.time_spans[tier], block)) {
                (State::Absent, _) => continue,
                (State::InFlight | State::Waiting, _) => (copy.by, self.moves[copy.by].times),
                (State::Ready, time_span) => (NO_MOVE, time_span.map_or(copy.times, |s| s.times)),
            };
            found.push(Residency {
                tier,
                by,
                times,
                last_access_ns: self.clock.accessed_ns
                    [fit::<usize>(copy.access - self.clock.accessed_from)],
            });
        }
        found
    }

    /// Returns the latest time that a caller passed.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns
    }

    /// Counts an access that makes blocks recent, at the latest time passed.
    pub(super) fn next_access(&mut self) -> u64 {
        if self.clock.accessed_ns.len() >= self.clock.accessed_limit {
            self.forget_accesses();
            // the walk over all runs is amortized over as many accesses
            self.clock.accessed_limit =
                MANY_ACCESSES.max(self.trie.nodes.len()) + self.clock.accessed_ns.len();
        }
        self.clock.access += 1;
        self.clock.accessed_ns.push(self.clock.now_ns);
        self.clock.access
    }

    /// Drops the times of accesses that no run or lease refers to. Cost: a walk over all runs.
    pub(super) fn forget_accesses(&mut self) {
        let live = self.live_nodes();
        let copies = live.iter().flat_map(|&id| self.copies_of(id));
        let resident = copies.filter(|copy| copy.state != State::Absent);
        let accesses = resident.map(|copy| copy.access);
        let leases = self.leases.iter().map(|(_, lease)| lease.access);
        let oldest = accesses.chain(leases).min().unwrap_or(self.clock.access);
        let forgotten = oldest.saturating_sub(self.clock.accessed_from);
        self.clock.accessed_ns.drain(..fit::<usize>(forgotten));
        self.clock.accessed_from += forgotten;
    }

    /// Records the time of an admission: that of its reservation.
    pub(super) fn admitted_at(&mut self, lease: LeaseId, now_ns: u64) {
        let lease = &self.leases[lease];
        if !lease.admitted {
            self.clock.accessed_ns[fit::<usize>(lease.access - self.clock.accessed_from)] = now_ns;
        }
    }

    /// Advances the store's time to the caller's: the store never reads a clock.
    pub(super) fn notify_time(&mut self, now_ns: u64) {
        self.clock.now_ns = self.clock.now_ns.max(now_ns);
        self.notify_orders(now_ns);
    }

    /// Makes the copy of a run on a tier ready at the given times.
    pub(super) fn ready_at(&mut self, run: NodeId, tier: usize, times: Times) {
        self.copy_mut(run, tier).times = times;
        self.set_state(run, tier, State::Ready, NO_MOVE);
    }

    /// Extends a run to `end` by blocks computed at the given times.
    pub(super) fn grow(&mut self, run: NodeId, end: u32, times: Times) {
        let before = std::mem::replace(&mut self.copy_mut(run, GPU).times, times);
        let node = &self.trie.nodes[run as usize];
        if before != times {
            let time_span = TimeSpan {
                end: node.end,
                times: before,
            };
            self.time_spans_mut(run, GPU).push(time_span);
        }
        let node = &mut self.trie.nodes[run as usize];
        let from = std::mem::replace(&mut node.end, end);
        let blocks = BlockRange::new(from, end);
        self.log_change(run, GPU, true, blocks);
        self.notify(run, blocks, true);
    }

    /// Cuts the time spans of a copy before block `at` and keeps those before it. Returns the spans after it,
    /// and the times of the block before `at`. Cost: linear in the spans after `at`.
    pub(super) fn cut_time_spans(
        &mut self,
        run: NodeId,
        tier: usize,
        at: u32,
    ) -> (Vec<TimeSpan>, Times) {
        let last = self.copy(run, tier).times;
        let time_spans = self.time_spans_mut(run, tier);
        let upper = time_spans.partition_point(|s| s.end < at);
        let Some(&TimeSpan { end, times }) = time_spans.get(upper) else {
            return (Vec::new(), last);
        };
        let after = time_spans.split_off(upper + usize::from(end == at));
        time_spans.truncate(upper);
        (after, times)
    }
}

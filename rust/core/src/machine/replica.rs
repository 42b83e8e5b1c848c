//! A replica: arrivals, and what happens at a step boundary.

use super::handover::HandOver;
use super::loading::Loads;
use super::next_step::ComposedStep;
use super::plugins::{Occasion, Plugins};
use super::prefetch::PrefetchPolicy;
use super::prefill_load::PrefillLoad;
use super::queue::{ArrivalQueue, Queue};
use super::reports::Reports;
use super::rows::Rows;
use super::running_set::RunningSet;
use super::{Arrival, Now, ReplicaConfig, Request, Slot};
use crate::batch::Batch;
use crate::slab::Slab;
use crate::store::Answer;
use crate::transfers::Mover;
use crate::views::Views;

/// What comes first at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// What has arrived is there before anyone looks for it.
    Transfer,
    /// The scheduler composes its next step.
    Boundary,
}

/// One engine instance: serves requests from one machine's cache.
///
/// Whoever drives it keeps the clock: after each call it asks [`Replica::next`] when to call [`Replica::run`].
#[derive(Debug, Default)]
pub struct Replica {
    pub(super) config: ReplicaConfig,
    /// The running batch.
    pub batch: Batch,
    pub(super) arrivals: ArrivalQueue,
    /// The requests of the machine while they are served.
    pub(super) requests: Slab<Request>,
    pub(super) running: RunningSet,
    /// Moves copies between the tiers; where there is one it has nothing to do.
    pub mover: Mover,
    /// Admitted requests that wait for room or KV.
    pub(super) loads: Loads,
    /// What the composed step waits for.
    pub(super) composed: ComposedStep,
    /// What it knows of sessions, and which prefixes may be shared.
    pub(super) views: Views,
    /// What it reports and has not been taken yet.
    pub reports: Reports,
    /// What routers compare.
    pub prefill_load: PrefillLoad,
    /// Requests of other machines, and messages to these.
    pub(super) handover: HandOver,
    /// Decisions that plug-ins take; that of the queue is the queue's.
    pub(super) plugins: Plugins,
}

impl Replica {
    /// A replica with nothing to do.
    pub fn new(config: ReplicaConfig, batch: Batch, rows: Rows) -> Self {
        Self {
            arrivals: ArrivalQueue {
                queue: Queue::new(config.queue_order),
                ..ArrivalQueue::default()
            },
            views: config.views(),
            config,
            batch,
            reports: Reports {
                rows,
                ..Reports::default()
            },
            ..Self::default()
        }
    }

    /// Calls these plug-ins where they decide.
    pub fn with_plugins(mut self, mut plugins: Plugins) -> Self {
        self.arrivals.queue.plugin = plugins.queue.take();
        self.plugins = plugins;
        self
    }

    /// Lets it serve from lower tiers too.
    pub fn with_mover(mut self, mut mover: Mover) -> Self {
        mover.log = self.config.record_window_ns.map(|_| Vec::new());
        self.mover = mover;
        self
    }

    /// Its machine's number.
    pub fn machine(&self) -> u32 {
        self.config.machine as u32
    }

    /// Leading blocks of a prompt of so many tokens that may be found.
    pub fn matchable_blocks(&self, prompt_tokens: u64) -> u32 {
        self.config.matchable_blocks(prompt_tokens)
    }

    /// Takes a request over; it is not in the queue yet.
    pub fn arrive(&mut self, arrival: Arrival, now_ns: u64) -> Slot {
        self.arrived(Request::new(arrival, now_ns))
    }

    /// Ends a request's way from the client to the scheduler.
    pub fn received(&mut self, slot: Slot, now_ns: u64) {
        let s = &mut self.requests[slot];
        s.client_ns += now_ns - s.since_ns;
        s.since_ns = now_ns;
    }

    /// Queues a request that has been looked up.
    pub fn enqueue(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        let s = &mut self.requests[slot];
        s.lookup_ns += now.ns - s.since_ns;
        s.since_ns = now.ns;
        let wanted = (s.arrival.request, s.arrival.prompt_tokens);
        if self.config.prefetch.is_some_and(PrefetchPolicy::is_queued) {
            self.prefetch(now, wanted, Occasion::Queued)?;
        }
        self.arrivals.queue.push_back(slot);
        if self.config.lookahead > 0 {
            self.catch_up(now, now.ns)?;
            self.protect_waiting(now, None)?;
        }
        if !self.arrivals.refused {
            self.wake(now, now.ns)?;
        }
        Ok(())
    }

    /// When the next boundary is due; `None` while there is nothing to do.
    pub fn boundary_ns(&self) -> Option<u64> {
        self.running.boundary_ns
    }

    /// Runs the iterations that began before a time, so that the store is as it is then.
    pub fn catch_up(&mut self, now: &mut Now<'_>, now_ns: u64) -> Answer<()> {
        if self.running.stepping {
            self.batch.advance(now.store, now_ns)?;
        }
        Ok(())
    }

    /// Makes sure that a boundary comes as soon as the scheduler could do something new.
    ///
    /// `seen_ns`: iterations that begin before it are past: now, or a nanosecond later for what is heard after the
    /// boundaries of this instant.
    pub(super) fn wake(&mut self, now: &mut Now<'_>, seen_ns: u64) -> Answer<()> {
        if !self.running.stepping {
            if self.composed.is_ready() {
                self.running.boundary_ns.get_or_insert(now.ns);
            }
        } else if self.could_admit() {
            let end_ns = self.batch.interrupt(now.store, seen_ns)?;
            self.running.boundary_ns = Some(end_ns);
        }
        Ok(())
    }

    /// What is next, and when; `None` while there is nothing to do.
    pub fn next(&self) -> Option<(u64, Phase)> {
        let arrival = self.next_arrival().map(|(ns, _)| (ns, Phase::Transfer));
        let boundary = self.running.boundary_ns.map(|ns| (ns, Phase::Boundary));
        arrival.into_iter().chain(boundary).min()
    }

    /// Does all that is next at one moment and in one phase, and then what comes before `until_ns`.
    pub fn run(&mut self, now: &mut Now<'_>, until_ns: u64) -> Answer<()> {
        let first = self.next();
        while let Some(next) = self.next() {
            if Some(next) != first && next.0 >= until_ns {
                break;
            }
            self.happen(now)?;
            self.plugins.event_passed()?;
        }
        Ok(())
    }

    /// Does what is next, at its time.
    pub(super) fn happen(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let Some((next_ns, phase)) = self.next() else {
            return Ok(());
        };
        now.ns = next_ns;
        match phase {
            Phase::Transfer => self.at_arrival(now),
            Phase::Boundary => self.at_boundary(now),
        }
    }

    /// Ends the step, composes the next one and starts it, or lets it wait for its room.
    pub fn at_boundary(&mut self, now: &mut Now<'_>) -> Answer<()> {
        self.end_running_step(now)?;
        let reservation = self.compose(now)?;
        if !self.batch.is_empty() {
            self.prepare_step(now, reservation)?;
        }
        Ok(())
    }

    /// Ends the step that runs, if one does; who was given up meanwhile leaves.
    pub(super) fn end_running_step(&mut self, now: &mut Now<'_>) -> Answer<()> {
        self.running.boundary_ns = None;
        if std::mem::take(&mut self.running.stepping) {
            self.end_step(now)?;
        }
        self.release_aborted(now)
    }

    fn end_step(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let offers = now.store.offers().is_some();
        let mut compute_ns = 0;
        if offers || self.writes_at_commit() {
            self.batch.advance(now.store, now.ns)?;
            compute_ns = self.batch.step_ns();
        }
        let ended = self.batch.end(now.store)?;
        self.log_later_tokens(now.ns);
        self.offer_computed(now)?;
        if offers || !ended.committed.is_empty() {
            for &(slot, start, end) in &ended.committed {
                self.write_committed(now, slot, (start, end))?;
            }
            let started_ns = now.ns - compute_ns;
            let first_ns = started_ns + compute_ns / self.batch.num_layers().max(1);
            self.issue(now, Some((first_ns, now.ns)))?;
        }
        for slot in ended.first_token {
            if self.hands_over(slot) {
                self.prompt_computed(now, slot);
            } else {
                self.first_token(now, slot);
            }
        }
        self.step_ended(now, &ended.finished)
    }

    /// Starts keeping whose prompt has been computed, for [`Replica::take_prefilled`].
    pub fn notify_prefilled(&mut self) {
        self.reports.prefilled.get_or_insert_with(Vec::new);
    }

    /// Requests whose prompt has been computed since the last call, and its tokens, where that is kept.
    pub fn take_prefilled(&mut self) -> Vec<(u32, u64)> {
        self.reports
            .prefilled
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Requests that have finished since the last call.
    pub fn take_closed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.reports.closed)
    }

    /// Requests that wait for room.
    pub fn queued(&self) -> usize {
        self.arrivals.queue.len() + self.handover.target.asking.len()
    }

    /// Requests that have room and wait for KV or for the next step.
    pub fn loading(&self) -> usize {
        let coming = self.handover.target.arriving + self.handover.target.arrived.len();
        self.loads.waiting + self.loads.loaded.len() + coming
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.slots.len()
    }
}

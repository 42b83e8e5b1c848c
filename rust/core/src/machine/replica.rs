//! A replica: arrivals, and the work at a step boundary.

use super::admitted::Loads;
use super::composed_step::ComposedStep;
use super::handover::HandOver;
use super::plugins::{Occasion, Plugins};
use super::prefetch_policy::PrefetchPolicy;
use super::prefill_load::PrefillLoad;
use super::queue::{ArrivalQueue, Queue};
use super::reports::Reports;
use super::rows::Rows;
use super::running_set::RunningSet;
use super::{Arrival, Now, ReplicaConfig, Request, Slot};
use crate::batch::{Batch, Committed};
use crate::convert::fit;
use crate::slab::Slab;
use crate::store::contract::{BlockStore, TierOccupancy};
use crate::store::{Answer, Times, Violation, GPU};
use crate::transfers::Mover;
use crate::views::Sessions;

/// Order of events at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Arrivals of transfers, before any look-up.
    Transfer,
    /// The scheduler composes its next step.
    Boundary,
}

/// One engine instance: serves requests from one machine's cache.
///
/// The driver keeps the clock: after each call it uses [`Replica::next`] to schedule the next [`Replica::run`].
#[derive(Debug, Default)]
pub struct Replica {
    pub(super) config: ReplicaConfig,
    /// The running batch.
    pub batch: Batch,
    pub(super) arrivals: ArrivalQueue,
    /// The requests of the machine while they are served.
    pub(super) requests: Slab<Request>,
    pub(super) running: RunningSet,
    /// Moves copies between the tiers; idle if there is only one tier.
    pub mover: Mover,
    /// Admitted requests that wait for free blocks or KV.
    pub(super) loads: Loads,
    /// Moves and transfers that the composed step waits for.
    pub(super) composed: ComposedStep,
    /// Known sessions.
    pub(super) sessions: Sessions,
    /// Reports that have not been taken yet.
    pub reports: Reports,
    /// Load that routers compare.
    pub prefill_load: PrefillLoad,
    /// Requests from other machines, and messages to other machines.
    pub(super) handover: HandOver,
    /// Plug-ins that decide; the plug-in of the queue is stored in the queue.
    pub(super) plugins: Plugins,
}

impl Replica {
    /// A replica with no requests.
    pub fn new(config: ReplicaConfig, batch: Batch, rows: Rows) -> Self {
        Self {
            arrivals: ArrivalQueue {
                queue: Queue::new(config.scheduling.queue_order),
                ..ArrivalQueue::default()
            },
            sessions: Sessions::new(config.sessions.max_sessions, config.sessions.session_ttl_ns),
            config,
            batch,
            reports: Reports {
                rows,
                ..Reports::default()
            },
            ..Self::default()
        }
    }

    /// Adds plug-ins.
    pub fn with_plugins(mut self, mut plugins: Plugins) -> Self {
        self.arrivals.queue.plugin = plugins.queue.take();
        self.plugins = plugins;
        self
    }

    /// Adds lower tiers.
    pub fn with_mover(mut self, mut mover: Mover) -> Self {
        mover.traffic.log = self.config.record_window_ns.map(|_| Vec::new());
        self.mover = mover;
        self
    }

    /// Its machine's number.
    pub fn machine(&self) -> u32 {
        fit::<u32>(self.config.machine)
    }

    /// Number of leading blocks that may be found for a prompt of `prompt_tokens` tokens.
    pub fn matchable_blocks(&self, prompt_tokens: u64) -> u32 {
        self.config.matchable_blocks(prompt_tokens)
    }

    /// Accepts a request; it is not in the queue yet.
    pub fn arrive(&mut self, arrival: Arrival, now_ns: u64) -> Slot {
        self.arrived(Request::new(arrival, now_ns))
    }

    /// Time at which a request that has just arrived reaches the scheduler; requests keep their order in transit.
    pub fn reaches_ns(&mut self, slot: Slot) -> u64 {
        let (s, client) = (&self.requests[slot], self.config.client);
        let tokens_ns = client.token_ns.saturating_mul(s.arrival.prompt_tokens);
        let at_ns = s.since_ns.saturating_add(client.offset_ns);
        let known = &mut self.arrivals.reached_ns;
        *known = at_ns.saturating_add(tokens_ns).max(*known);
        *known
    }

    /// Ends a request's transit from the client to the scheduler.
    pub fn received(&mut self, slot: Slot, now_ns: u64) {
        let s = &mut self.requests[slot];
        s.ttft.client_ns += now_ns - s.since_ns;
        s.since_ns = now_ns;
    }

    /// Queues a request that has been looked up.
    pub fn enqueue(&mut self, now: &mut Now<'_>, slot: Slot) -> Answer<()> {
        let s = &mut self.requests[slot];
        s.ttft.lookup_ns += now.ns - s.since_ns;
        s.since_ns = now.ns;
        let (request, tokens) = (s.arrival.request, s.arrival.prompt_tokens);
        if self
            .config
            .movement
            .prefetch
            .is_some_and(PrefetchPolicy::is_queued)
        {
            self.prefetch(now, request, tokens, Occasion::Queued)?;
        }
        self.arrivals.queue.push_back(slot);
        if self.config.scheduling.lookahead > 0 {
            self.catch_up(now, now.ns)?;
            self.protect_waiting(now, None)?;
        }
        if !self.arrivals.refused {
            self.wake(now, now.ns)?;
        }
        Ok(())
    }

    /// Time of the next boundary; `None` if there is no work.
    pub fn boundary_ns(&self) -> Option<u64> {
        self.running.boundary_ns
    }

    /// Runs the iterations that began before a time, so that the store has its state at that time.
    pub fn catch_up(&mut self, now: &mut Now<'_>, now_ns: u64) -> Answer<()> {
        if self.running.stepping {
            self.batch.advance(now.store, now_ns)?;
        }
        Ok(())
    }

    /// Schedules a boundary at the first time at which the scheduler could make a new decision.
    ///
    /// `seen_ns`: iterations that begin before it are past. It is the current time, or a nanosecond later for
    /// messages that are delivered after the boundaries of this instant.
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

    /// The next event and its time; `None` if there is no work.
    pub fn next(&self) -> Option<(u64, Phase)> {
        let arrival = self.next_arrival().map(|(ns, _)| (ns, Phase::Transfer));
        let boundary = self.running.boundary_ns.map(|ns| (ns, Phase::Boundary));
        arrival.into_iter().chain(boundary).min()
    }

    /// Runs the events of one instant and phase, and then the events before `until_ns`.
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

    /// Runs the next event, at its time.
    pub(super) fn happen(&mut self, now: &mut Now<'_>) -> Answer<()> {
        let Some((next_ns, phase)) = self.next() else {
            return Ok(());
        };
        debug_assert!(next_ns >= now.ns, "I5: no event lies before now");
        now.ns = next_ns;
        now.store.run_loops(next_ns);
        match phase {
            Phase::Transfer => self.at_arrival(now),
            Phase::Boundary => self.at_boundary(now),
        }
    }

    /// Ends the step, composes the next step and starts it, or lets it wait for its blocks.
    pub fn at_boundary(&mut self, now: &mut Now<'_>) -> Answer<()> {
        self.end_running_step(now)?;
        let reservation = self.compose(now)?;
        if !self.batch.is_empty() {
            self.prepare_step(now, reservation)?;
        }
        debug_assert_eq!(self.check_store(now.store), Ok(()), "I2, I3, I4 or I7");
        debug_assert!(self.could_not_run(now.store), "I12: an idle engine refuses");
        Ok(())
    }

    /// Checks the whole store: at each boundary while its GPU has few blocks, of many after one request in so many
    /// thousands of them, so that checks take no more than steps.
    fn check_store(&self, store: &dyn BlockStore) -> Result<(), Violation> {
        let taken = store
            .occupancy(GPU)
            .map_or(0, |there| there.held + there.cached + there.in_flight);
        let is_due = self.running.joined % (1 + taken / 4096) == 0;
        if is_due {
            store.check()
        } else {
            Ok(())
        }
    }

    /// I12: the head of the queue is refused only while blocks are held or in flight. Where sessions own tokens, a
    /// turn behind a later one of its session may wait for ever; I1 names it at the end.
    fn could_not_run(&self, store: &mut dyn BlockStore) -> bool {
        let is_taken = |there: TierOccupancy| there.held + there.in_flight > 0;
        let is_idle = !store.occupancy(GPU).is_ok_and(is_taken);
        !(self.arrivals.refused && is_idle && store.sessions().is_none())
    }

    /// Ends the running step, if there is one; requests aborted in between leave.
    pub(super) fn end_running_step(&mut self, now: &mut Now<'_>) -> Answer<()> {
        self.running.boundary_ns = None;
        let has_ended = std::mem::take(&mut self.running.stepping);
        if has_ended {
            self.end_step(now)?;
        }
        self.release_aborted(now)?;
        if has_ended && !self.config.scheduling.async_scheduling.has_lookahead() {
            self.publish(self.running(), now.store)?;
        }
        Ok(())
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
            for &Committed { sequence, blocks } in &ended.committed {
                self.write_committed(now, sequence, blocks)?;
            }
            let started_ns = now.ns - compute_ns;
            let first_ns = started_ns + compute_ns / self.batch.num_layers().max(1);
            let computed = Times {
                first_layer_ns: first_ns,
                ready_ns: now.ns,
            };
            self.issue(now, Some(computed))?;
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

    /// Starts recording the requests whose prompt has been computed, for [`Replica::take_prefilled`].
    pub fn notify_prefilled(&mut self) {
        self.reports.prefilled.get_or_insert_with(Vec::new);
    }

    /// Requests whose prompt has been computed since the last call, with the prompt's tokens, if these are recorded.
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

    /// Requests that wait for capacity.
    pub fn queued(&self) -> usize {
        self.arrivals.queue.len() + self.handover.target.asking.len()
    }

    /// Admitted requests that wait for KV or for the next step.
    pub fn loading(&self) -> usize {
        let coming = self.handover.target.arriving + self.handover.target.arrived.len();
        self.loads.waiting + self.loads.loaded.len() + coming
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.slots.len()
    }
}

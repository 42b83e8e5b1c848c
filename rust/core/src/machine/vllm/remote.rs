//! Requests that wait for KV from a lower tier or another machine, and the copies of steps (`WAITING_FOR_REMOTE_KVS`,
//! and the worker of `OffloadingConnector`).
//!
//! A step's stores are sent when the next step begins, its loads when it begins; copies that have ended are reported
//! at the end of a step. Blocks that steps in flight write are released at the end of these steps.

use std::collections::VecDeque;

use super::super::engine::Desk;
use super::super::messages::Reading;
use super::super::Slot;
use super::blocks::Blocks;
use super::sequence::Load;
use super::step::Step;
use super::waiting::Waiting;
use super::VllmScheduler;
use crate::store::connector::{Scheduled, StepCopies};
use crate::store::{Answer, LeaseId, MoveId, Order, STAGING};

/// Requests that hold blocks and do not run, and copies between steps.
#[derive(Debug)]
pub(super) struct Remote {
    /// Requests whose load runs or has ended, in the order in which the loads began.
    pub holding: Waiting,
    /// Stores of the last step.
    unsent: Vec<Order>,
    /// Loads of a step that has not begun, and its begin.
    late: Option<(u64, Vec<Order>)>,
    /// Aborted requests whose load runs, and their leases.
    orphans: Vec<(u32, LeaseId)>,
    /// Steps decided and ended so far.
    decided: u64,
    ended: u64,
    /// Leases to release, each with the step that must have ended.
    releases: VecDeque<(u64, LeaseId)>,
    /// Hand-overs whose read the next step begins.
    pub readings: Vec<Reading>,
    /// Requests whose prompt has been read from another machine since the last step ended.
    pub came: Vec<u32>,
    /// Computed prompts that other machines read, and their leases.
    pub unread: Vec<(Slot, LeaseId)>,
    /// Those that have been read since the last step ended.
    pub read: Vec<Slot>,
}

impl Remote {
    pub fn new(by_priority: bool) -> Self {
        Self {
            holding: Waiting::new(by_priority),
            unsent: Vec::new(),
            late: None,
            orphans: Vec::new(),
            decided: 0,
            ended: 0,
            releases: VecDeque::new(),
            readings: Vec::new(),
            came: Vec::new(),
            unread: Vec::new(),
            read: Vec::new(),
        }
    }

    /// True if no request holds blocks without running, and no copy is to be sent.
    pub fn is_quiet(&self) -> bool {
        let copies = self.unsent.is_empty() && self.orphans.is_empty();
        self.holding.is_empty() && self.releases.is_empty() && copies && self.hands_nothing_over()
    }

    /// True if there is no hand-over to begin or to end.
    pub fn hands_nothing_over(&self) -> bool {
        self.readings.is_empty() && self.unread.is_empty()
    }
}

impl<B: Blocks> VllmScheduler<B> {
    /// Number of requests that do not run.
    pub(super) fn not_running(&self) -> usize {
        self.waiting.len() + self.remote.holding.len()
    }

    /// True if a request waits that no copy holds back.
    pub(super) fn any_could_join(&self) -> bool {
        let mut queued = self.waiting.iter().chain(self.remote.holding.iter());
        queued.any(|slot| !self.sequences[slot].held.is_passed)
    }

    /// Decides the copies of a step that has been composed.
    pub(super) fn decide_copies(&mut self, desk: &mut Desk<'_, B>, step: &mut Step) -> Answer<()> {
        self.remote.decided += u64::from(!step.is_empty());
        step.readings = std::mem::take(&mut self.remote.readings);
        let Some(connector) = desk.store.connector() else {
            return Ok(());
        };
        let has_lookahead = self.config.async_scheduling.has_lookahead();
        let parts = step.scheduled.iter().map(|part| {
            let s = &self.sequences[part.slot];
            let own = u64::from(has_lookahead && part.brings_token);
            Scheduled {
                lease: s.held.lease,
                computed_tokens: s.computed,
                tokens: part.tokens,
                known_tokens: s.known,
                confirmed_tokens: s.computed - part.tokens - (s.flight.placeholders - own),
            }
        });
        step.copies = connector.step_decided(&parts.collect::<Vec<_>>(), desk.now_ns)?;
        Ok(())
    }

    /// Lets a step begin: sends what is to be sent, and delays it until the copies that it waits for have ended.
    pub(super) fn begin_copies(&mut self, desk: &mut Desk<'_, B>, step: &mut Step) -> Answer<()> {
        for reading in std::mem::take(&mut step.readings) {
            desk.read(reading)?;
        }
        let mut is_charged = !step.is_empty();
        if let Some(connector) = desk.store.connector() {
            is_charged &= !connector.waits_for_copies();
            self.begin_tiers(desk, step)?;
        }
        if let Some(copies) = desk.replica.mover.copies.as_mut().filter(|_| is_charged) {
            let paid_ns = copies.take(step.begin_ns);
            step.end_ns += paid_ns;
            step.computed_ns += paid_ns;
            copies.step_started(step.end_ns);
        }
        Ok(())
    }

    /// The same of the copies from and to tiers.
    fn begin_tiers(&mut self, desk: &mut Desk<'_, B>, step: &mut Step) -> Answer<()> {
        let StepCopies {
            stores,
            loads,
            flushed,
            first,
        } = std::mem::take(&mut step.copies);
        let (now, later): (Vec<Order>, _) = stores
            .into_iter()
            .partition(|order| flushed.contains(&order.id));
        step.copies.stores = later;
        self.remote.unsent.extend(now);
        self.send_stores(desk)?;
        let waits_ns = desk.replica.sent_until(&flushed).max(desk.now_ns);
        if waits_ns > desk.now_ns {
            self.delay(desk, step, waits_ns);
        }
        if waits_ns == desk.now_ns || loads.is_empty() {
            desk.send(&loads)?;
        } else {
            desk.replica.mover.arrivals.set_alarm(waits_ns);
            self.remote.late = Some((waits_ns, loads));
        }
        self.load_first(desk, step, &first)?;
        Ok(())
    }

    /// Lets a step load what it computes with: its requests that have none of it wait along.
    fn load_first(
        &mut self,
        desk: &mut Desk<'_, B>,
        step: &mut Step,
        loads: &[Order],
    ) -> Answer<()> {
        let takes_ns = send_all(desk, loads)?;
        step.end_ns += takes_ns;
        step.computed_ns += takes_ns;
        for part in step.scheduled.iter().filter(|_| !loads.is_empty()) {
            let brings = std::mem::take(&mut self.sequences[part.slot].held.brings);
            desk.replica.stalled(part.slot, STAGING, takes_ns, brings);
        }
        Ok(())
    }

    /// Sends the copies that the computed step ends with. Returns true if it ends later for them.
    pub(super) fn saves(&mut self, desk: &mut Desk<'_, B>) -> Answer<bool> {
        let flight = self.steps.flight.as_mut();
        let flight = flight.filter(|step| !step.is_empty() && !step.is_saved);
        let (Some(step), Some(connector)) = (flight, desk.store.connector()) else {
            return Ok(false);
        };
        step.is_saved = true;
        let orders = connector.step_computed(desk.now_ns)?;
        let takes_ns = send_all(desk, &orders)?;
        step.end_ns += takes_ns;
        step.computed_ns += takes_ns;
        self.boundary_ns = Some(step.end_ns);
        if let Some(next) = &mut self.steps.lookahead {
            next.begin_ns += takes_ns;
            next.end_ns += takes_ns;
            next.computed_ns += takes_ns;
            if let Some(log) = self.log.as_mut().filter(|_| !next.is_empty()) {
                log.begins(next.begin_ns);
            }
        }
        Ok(takes_ns > 0)
    }

    /// Delays a step; requests without a first token have waited for free blocks.
    fn delay(&mut self, desk: &mut Desk<'_, B>, step: &mut Step, until_ns: u64) {
        let waited_ns = until_ns.saturating_sub(step.begin_ns);
        step.begin_ns += waited_ns;
        step.end_ns += waited_ns;
        step.computed_ns += waited_ns;
        for part in &step.scheduled {
            desk.waited_for_blocks(part.slot, waited_ns);
        }
        if let Some(log) = self.log.as_mut().filter(|_| !step.is_empty()) {
            log.begins(step.begin_ns);
        }
    }

    /// Sends the stores of the last step.
    pub(super) fn send_stores(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        if self.remote.unsent.is_empty() {
            return Ok(());
        }
        desk.send(&std::mem::take(&mut self.remote.unsent))
    }

    /// Keeps the stores of a step that has ended.
    pub(super) fn keep_stores(&mut self, step: &mut Step) {
        self.remote.unsent.append(&mut step.copies.stores);
    }

    /// Sends loads whose step begins now.
    pub(super) fn send_late_loads(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        match self.remote.late.take_if(|(at, _)| *at <= desk.now_ns) {
            Some((_, loads)) => desk.send(&loads),
            None => Ok(()),
        }
    }

    /// Releases blocks that the ended step was the last to write; before its tokens are handed over.
    pub(super) fn release_written(
        &mut self,
        store: &mut B,
        step: &Step,
        now_ns: u64,
    ) -> Answer<()> {
        self.remote.ended += u64::from(!step.is_empty());
        let ended = self.remote.ended;
        while let Some(&(until, lease)) = self.remote.releases.front() {
            if until > ended {
                break;
            }
            self.remote.releases.pop_front();
            match store.connector() {
                Some(connector) => connector.release_late(lease)?,
                None => store.release(lease, now_ns)?,
            }
        }
        Ok(())
    }

    /// Applies the copies that have ended.
    pub(super) fn report_copies(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        let ended = match desk.store.connector() {
            Some(connector) => connector.copies_ended()?,
            None => std::mem::take(&mut self.remote.came),
        };
        let mut loaded = Vec::new();
        for request in ended {
            if let Some(at) = self
                .remote
                .orphans
                .iter()
                .position(|orphan| orphan.0 == request)
            {
                let (_, lease) = self.remote.orphans.swap_remove(at);
                release(desk.store, lease, desk.now_ns)?;
                continue;
            }
            let mut holding = self.remote.holding.iter();
            loaded.extend(holding.find(|&slot| self.sequences[slot].request == request));
        }
        for slot in loaded {
            let held = &mut self.sequences[slot].held;
            held.load = Load::Ended;
            match held.incoming.take() {
                Some(_) => desk.prompt_is_here(slot),
                None => desk.loaded(slot),
            }
        }
        self.release_read(desk)
    }

    /// Lets a waiting request hold its blocks until its load has ended.
    pub(super) fn waits_for_load(&mut self, slot: Slot) {
        let s = &mut self.sequences[slot];
        self.waiting.remove(slot, s);
        self.remote.holding.push(slot, s);
    }

    /// True if steps in flight write no block of a request: it may be preempted, and its blocks released.
    pub(super) fn is_written(&self, store: &mut B, slot: Slot) -> bool {
        let loads = store.connector().is_some() || self.config.is_consumer;
        let overlaps = self.config.steps_in_flight() > 1 && loads;
        !(overlaps && self.sequences[slot].flight.tokens > 0)
    }

    /// Releases the blocks of a running request that leaves, now or when the steps in flight have ended.
    pub(super) fn release_ended(&mut self, store: &mut B, slot: Slot, now_ns: u64) -> Answer<()> {
        let is_written = self.is_written(store, slot);
        let s = &self.sequences[slot];
        if let Some(connector) = store.connector() {
            connector.ended(s.ending(true));
        }
        if is_written {
            return release(store, s.held.lease, now_ns);
        }
        let until = self.remote.decided;
        self.remote.releases.push_back((until, s.held.lease));
        Ok(())
    }

    /// Ends a request that does not run; blocks that a load writes are released when that has ended.
    pub(super) fn end_waiting(&mut self, store: &mut B, slot: Slot, now_ns: u64) -> Answer<()> {
        let s = &mut self.sequences[slot];
        self.waiting.remove(slot, s);
        if let Some(connector) = store.connector() {
            connector.ended(s.ending(false));
        }
        if s.held.load == Load::None {
            let unread = s.held.incoming.take();
            self.remote.readings.extend(unread.map(|incoming| Reading {
                incoming,
                blocks: 0,
            }));
            return Ok(());
        }
        self.remote.holding.remove(slot, s);
        if s.held.load == Load::Runs {
            self.remote.orphans.push((s.request, s.held.lease));
            return Ok(());
        }
        release(store, s.held.lease, now_ns)
    }

    /// Blocks that prompts at work, and those whose load runs, still need.
    pub(super) fn claimed_blocks(&self, store: &B) -> u64 {
        let at_work = self
            .running
            .iter()
            .copied()
            .chain(self.remote.holding.iter());
        let claimed = at_work.map(|slot| {
            let s = &self.sequences[slot];
            if s.held.claims {
                store.claim(s, &self.config)
            } else {
                0
            }
        });
        claimed.sum()
    }
}

/// Sends copies of a step, and returns the time until the last of them has arrived.
fn send_all<B: Blocks>(desk: &mut Desk<'_, B>, orders: &[Order]) -> Answer<u64> {
    if orders.is_empty() {
        return Ok(0);
    }
    desk.send(orders)?;
    let moves: Vec<MoveId> = orders.iter().map(|order| order.id).collect();
    Ok(desk.replica.sent_until(&moves).saturating_sub(desk.now_ns))
}

/// Releases the blocks of a lease, and nothing else.
pub(super) fn release<B: Blocks>(store: &mut B, lease: LeaseId, now_ns: u64) -> Answer<()> {
    match store.connector() {
        Some(connector) => connector.release_blocks(lease),
        None => store.release(lease, now_ns),
    }
}

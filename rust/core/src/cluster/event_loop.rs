//! All machines' events in one order, and the messages between the machines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::messages::{Event, IncomingOn};
use super::rank_groups::Ranks;
use super::Question;
use crate::machine::messages::{Done, EventKey, IncomingId, RequestOn, SlotOn, Task};
use crate::machine::{Replica, Request};
use crate::transfers::{LayersCame, SharedTimeline, Timeline};

/// Arrivals come first at an instant; messages that machines send at their boundaries come after boundaries.
pub(super) const TRANSFER: u8 = 0;
pub(super) const HANDOVER: u8 = 3;

/// The replicas of a cluster, each on its own store.
pub trait Machines {
    /// Error of a replica or its store.
    type Error;

    /// Runs a task on the replica of a machine at a time.
    fn perform(&mut self, machine: u32, task: Task, now_ns: u64) -> Result<Done, Self::Error>;

    /// Machines that another machine's task has changed, with their next events, since the last call.
    fn take_visited(&mut self) -> Vec<(u32, Option<EventKey>)>;

    /// Calls a function with the replica of a machine.
    fn with_replica(
        &mut self,
        machine: u32,
        with: &mut dyn FnMut(&mut Replica),
    ) -> Result<(), Self::Error>;
}

/// All machines of a cluster that hand requests over to each other, or read each other's lower tiers.
///
/// Events are ordered as those of `engine.py`: by time, priority, machine, and the machine's own number. The driver
/// calls [`Cluster::next`] to learn the time of the next [`Cluster::run`].
#[derive(Debug, Default)]
pub struct Cluster {
    /// The next event of each machine itself.
    pub(super) keys: Vec<Option<EventKey>>,
    pub(super) due: BTreeSet<EventKey>,
    pub(super) events: BTreeMap<EventKey, Event>,
    pub(super) delivered: u64,
    /// Targets of the announced hand-overs, until their prompt is computed.
    pub(super) going: HashMap<SlotOn, IncomingOn>,
    /// Requests with a computed prompt whose decode machine is not chosen yet.
    pub(super) computed: HashMap<SlotOn, Box<Request>>,
    /// Finished requests since the last [`Cluster::take_closed`].
    closed: Vec<RequestOn>,
    /// Events of channels served layer by layer, if there are any.
    timeline: Option<SharedTimeline>,
    /// Machines that step together as data-parallel groups, if there are any.
    pub(super) ranks: Option<Ranks>,
    pub(super) now_ns: u64,
    /// Machines do not interact: each may run past the others.
    pub(super) apart: bool,
}

impl Cluster {
    /// A cluster of `machines` machines with no events.
    pub fn new(machines: usize) -> Self {
        Self {
            keys: vec![None; machines],
            ..Self::default()
        }
    }

    /// A cluster of machines that do not interact.
    pub fn apart(machines: usize) -> Self {
        Self {
            apart: true,
            ..Self::new(machines)
        }
    }

    /// Adds the events of channels served layer by layer to the order of events.
    pub fn with_timeline(self, timeline: SharedTimeline) -> Self {
        Self {
            timeline: Some(timeline),
            ..self
        }
    }

    /// Time of the next event on a channel served layer by layer, if it is the first of all events.
    pub fn channel_next_ns(&self) -> Option<u64> {
        let next_ns = Timeline::next_of(self.timeline.as_ref()?)?;
        // At an instant, channel events come before events on machines.
        self.next()
            .is_none_or(|key| next_ns <= key.time_ns)
            .then_some(next_ns)
    }

    /// The next event on machines: its time, priority and machine.
    pub fn next(&self) -> Option<EventKey> {
        let event = self.events.first_key_value().map(|(&key, _)| key);
        let due = self.due.first().copied();
        event.into_iter().chain(due).min()
    }

    /// Time of the last event.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Requests that have finished since the last call.
    pub fn take_closed(&mut self) -> Vec<RequestOn> {
        std::mem::take(&mut self.closed)
    }

    /// Records a change of a machine's next event.
    pub fn changed(&mut self, machine: u32, next: Option<EventKey>) {
        if self.ranks.is_some() {
            return self.rank_changed(machine, next);
        }
        let known = &mut self.keys[machine as usize];
        if *known != next {
            if let Some(key) = known.take() {
                self.due.remove(&key);
            }
            self.due.extend(next);
            *known = next;
        }
    }

    /// Runs the next event, and then the events before `until_ns`. Stops where a machine must be chosen to decode a
    /// request: the caller responds with [`Cluster::assign`] at that time.
    pub fn run<M: Machines>(
        &mut self,
        machines: &mut M,
        now_ns: u64,
        until_ns: u64,
    ) -> Result<Option<Question>, M::Error> {
        let mut is_first = true;
        loop {
            let channel_ns = self.channel_next_ns();
            let key = self.next();
            let Some(next_ns) = channel_ns.or(key.map(|key| key.time_ns)) else {
                break;
            };
            if !std::mem::take(&mut is_first) && next_ns >= until_ns {
                break;
            }
            self.now_ns = next_ns;
            let Some(key) = key.filter(|_| channel_ns.is_none()) else {
                self.channel_event(machines)?;
                continue;
            };
            let Some(event) = self.events.remove(&key) else {
                self.own_event(machines, key, until_ns)?;
                continue;
            };
            if let Event::Choose(question) = event {
                if key.time_ns > now_ns {
                    // The choice needs the state at its own time.
                    self.events.insert(key, event);
                    break;
                }
                return Ok(Some(question));
            }
            self.happen(machines, key.machine, event)?;
        }
        Ok(None)
    }

    /// Takes the next transfer number of a machine.
    pub(super) fn take_number<M: Machines>(machines: &mut M, of: u32) -> Result<u64, M::Error> {
        let mut number = 0;
        machines.with_replica(of, &mut |replica| {
            number = replica.mover.arrivals.take_number()
        })?;
        Ok(number)
    }

    /// Releases a request's blocks on the machine that has them, if the next arrival completes the last read of them.
    fn source_read<M: Machines>(
        &mut self,
        machines: &mut M,
        reader: u32,
        by: impl Fn(&Replica) -> Option<SlotOn>,
    ) -> Result<(), M::Error> {
        let mut read = None;
        machines.with_replica(reader, &mut |replica| read = by(replica))?;
        if let Some(SlotOn { machine, slot }) = read {
            self.perform(machines, machine, Task::Release(slot, false))?;
        }
        Ok(())
    }

    /// Runs the next event of a channel and notifies the machine whose transfer has arrived.
    fn channel_event<M: Machines>(&mut self, machines: &mut M) -> Result<(), M::Error> {
        let delivered = self.timeline.as_ref().and_then(Timeline::happen);
        if let Some(LayersCame { of, layers }) = delivered {
            self.source_read(machines, of.machine, |to| {
                to.source_read_with(of.id, layers)
            })?;
            self.perform(machines, of.machine, Task::LayerCame(of.id, layers))?;
        }
        Ok(())
    }

    /// Runs the next event of a machine; if machines do not interact, all its events before `until_ns`.
    fn own_event<M: Machines>(
        &mut self,
        machines: &mut M,
        key: EventKey,
        until_ns: u64,
    ) -> Result<(), M::Error> {
        let EventKey {
            priority, machine, ..
        } = key;
        if self.ranks.is_some() {
            return self.step_of_ranks(machines, key);
        }
        if self.apart {
            self.perform(machines, machine, Task::RunUntil(until_ns))?;
            return Ok(());
        }
        if priority == TRANSFER {
            self.source_read(machines, machine, Replica::source_read_next)?;
        }
        self.perform(machines, machine, Task::Next)?;
        Ok(())
    }

    /// Runs a task on a machine now and delivers the resulting messages; returns the identifier of a new hand-over.
    pub(super) fn perform<M: Machines>(
        &mut self,
        machines: &mut M,
        machine: u32,
        task: Task,
    ) -> Result<IncomingId, M::Error> {
        self.ask(machines, machine, task).map(|done| done.incoming)
    }

    pub(super) fn ask<M: Machines>(
        &mut self,
        machines: &mut M,
        machine: u32,
        task: Task,
    ) -> Result<Done, M::Error> {
        let mut done = machines.perform(machine, task, self.now_ns)?;
        self.changed(machine, done.next);
        for (visited, next) in machines.take_visited() {
            self.changed(visited, next);
        }
        let closed = done
            .closed
            .drain(..)
            .map(|request| RequestOn { machine, request });
        self.closed.extend(closed);
        for message in std::mem::take(&mut done.messages) {
            self.deliver(machines, machine, message)?;
        }
        Ok(done)
    }
}

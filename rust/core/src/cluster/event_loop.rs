//! All machines' events in one order, and what crosses between the machines.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::messages::Event;
use super::ranks::Ranks;
use super::Question;
use crate::machine::messages::{Done, IncomingId, Key, Task};
use crate::machine::{Replica, Request, Slot};
use crate::transfers::{SharedTimeline, Timeline};

/// What has arrived comes first at an instant; what machines tell each other at their boundaries comes after these.
pub(super) const TRANSFER: u8 = 0;
pub(super) const HANDOVER: u8 = 3;

/// The replicas of a cluster, each on its own store.
pub trait Machines {
    /// What a replica or its store refuses.
    type Error;

    /// Lets the replica of a machine do something at a time.
    fn perform(&mut self, machine: u32, task: Task, now_ns: u64) -> Result<Done, Self::Error>;

    /// Machines that were visited while another one was at work, and what is next there, since the last call.
    fn take_visited(&mut self) -> Vec<(u32, Option<Key>)>;

    /// Shows the replica of a machine.
    fn with_replica(
        &mut self,
        machine: u32,
        with: &mut dyn FnMut(&mut Replica),
    ) -> Result<(), Self::Error>;
}

/// All machines of a cluster that hand requests over to each other, or read each other's lower tiers.
///
/// Events are ordered as those of `engine.py`: by time, priority, machine, and the machine's own number. Whoever
/// drives it asks [`Cluster::next`] when to call [`Cluster::run`].
#[derive(Debug, Default)]
pub struct Cluster {
    /// When something is next at each machine by itself.
    pub(super) keys: Vec<Option<Key>>,
    pub(super) due: BTreeSet<Key>,
    pub(super) events: BTreeMap<Key, Event>,
    pub(super) delivered: u64,
    /// Where hand-overs that were announced go to, until their prompt is computed.
    pub(super) going: HashMap<(u32, Slot), (u32, IncomingId)>,
    /// Requests whose prompt is computed and that nobody was chosen for yet.
    pub(super) computed: HashMap<(u32, Slot), Box<Request>>,
    /// By machine, requests that have finished since the last [`Cluster::take_closed`].
    closed: Vec<(u32, u32)>,
    /// What happens on channels served layer by layer, where there are such.
    timeline: Option<SharedTimeline>,
    /// Machines that step together, where some do.
    pub(super) ranks: Option<Ranks>,
    pub(super) now_ns: u64,
    /// No machine takes note of another: each may run ahead of the others.
    pub(super) apart: bool,
}

impl Cluster {
    /// So many machines, with nothing to do.
    pub fn new(machines: usize) -> Self {
        Self {
            keys: vec![None; machines],
            ..Self::default()
        }
    }

    /// Machines of which none takes note of another.
    pub fn apart(machines: usize) -> Self {
        Self {
            apart: true,
            ..Self::new(machines)
        }
    }

    /// Lets what happens on channels served layer by layer come in the same order.
    pub fn with_timeline(self, timeline: SharedTimeline) -> Self {
        Self {
            timeline: Some(timeline),
            ..self
        }
    }

    /// When something happens next on a channel served layer by layer, where that is next of all.
    pub fn channel_next_ns(&self) -> Option<u64> {
        let next_ns = Timeline::next_of(self.timeline.as_ref()?)?;
        // At an instant it comes before what happens on machines.
        self.next()
            .is_none_or(|key| next_ns <= key.0)
            .then_some(next_ns)
    }

    /// What is next of what happens on machines: its time, priority and machine.
    pub fn next(&self) -> Option<Key> {
        let event = self.events.first_key_value().map(|(&key, _)| key);
        let due = self.due.first().copied();
        event.into_iter().chain(due).min()
    }

    /// The time of what was done last.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Machines and requests that have finished there since the last call.
    pub fn take_closed(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.closed)
    }

    /// Notes that what is next at a machine has changed.
    pub fn changed(&mut self, machine: u32, next: Option<Key>) {
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

    /// Does what is next, and then what comes before `until_ns`; stops where someone is to be chosen to decode a
    /// request, which is answered with [`Cluster::assign`] at that time.
    pub fn run<M: Machines>(
        &mut self,
        machines: &mut M,
        (now_ns, until_ns): (u64, u64),
    ) -> Result<Option<Question>, M::Error> {
        let mut is_first = true;
        loop {
            let channel_ns = self.channel_next_ns();
            let key = self.next();
            let Some(next_ns) = channel_ns.or(key.map(|key| key.0)) else {
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
                if key.0 > now_ns {
                    // It is answered by what is known at its own time.
                    self.events.insert(key, event);
                    break;
                }
                return Ok(Some(question));
            }
            self.happen(machines, key.2, event)?;
        }
        Ok(None)
    }

    /// Takes the next number among a machine's transfers.
    pub(super) fn take_number<M: Machines>(machines: &mut M, of: u32) -> Result<u64, M::Error> {
        let mut number = 0;
        machines.with_replica(of, &mut |replica| number = replica.mover.take_number())?;
        Ok(number)
    }

    /// Releases a request's blocks on the machine that has them, where what arrives next was the last to read them.
    fn source_read<M: Machines>(
        &mut self,
        machines: &mut M,
        reader: u32,
        by: impl Fn(&Replica) -> Option<(u32, Slot)>,
    ) -> Result<(), M::Error> {
        let mut read = None;
        machines.with_replica(reader, &mut |replica| read = by(replica))?;
        if let Some((source, slot)) = read {
            self.perform(machines, source, Task::Release(slot, false))?;
        }
        Ok(())
    }

    /// Lets a channel do what is next of all, and the machine hear of it that sends over it.
    fn channel_event<M: Machines>(&mut self, machines: &mut M) -> Result<(), M::Error> {
        let delivered = self.timeline.as_ref().and_then(Timeline::happen);
        if let Some((of, layers)) = delivered {
            let arrived = (of.id, layers);
            self.source_read(machines, of.machine, |to| to.source_read_with(arrived))?;
            self.perform(machines, of.machine, Task::LayerCame(of.id, layers))?;
        }
        Ok(())
    }

    /// Lets a machine do what is next there; where machines are apart, all that comes before a time.
    fn own_event<M: Machines>(
        &mut self,
        machines: &mut M,
        key: Key,
        until_ns: u64,
    ) -> Result<(), M::Error> {
        let (_, priority, machine, _) = key;
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

    /// Lets a machine do something now, and takes its letters where they go; returns where a new hand-over is kept.
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
        let closed = done.closed.drain(..).map(|request| (machine, request));
        self.closed.extend(closed);
        for message in std::mem::take(&mut done.messages) {
            self.deliver(machines, machine, message)?;
        }
        Ok(done)
    }
}

//! Hand-overs between machines: the effects of their messages, and their times; the machine's own side is
//! `machine/handover/`.

use super::event_loop::{Cluster, Machines, HANDOVER, TRANSFER};
use super::messages::{Chosen, Event, IncomingOn};
use super::Question;
use crate::machine::messages::{Computing, EventKey, Incoming, Message, SlotOn, Task};
use crate::transfers::{Computed, FarTransfer};

impl Cluster {
    /// Makes the chosen machine reserve capacity for a request.
    pub fn assign<M: Machines>(
        &mut self,
        machines: &mut M,
        question: &Question,
        chosen: Chosen,
    ) -> Result<(), M::Error> {
        let Question {
            source,
            arrival,
            computed,
            ..
        } = *question;
        let mut incoming = Incoming::new(
            source,
            arrival,
            computed,
            chosen.route,
            chosen.expected_tokens,
        );
        incoming.request = self.computed.remove(&source);
        let is_computed = incoming.request.is_some();
        let id = self.perform(
            machines,
            chosen.machine,
            Task::RequestCapacity(Box::new(incoming)),
        )?;
        if !is_computed {
            let machine = chosen.machine;
            self.going.insert(source, IncomingOn { machine, id });
        }
        Ok(())
    }

    pub(super) fn happen<M: Machines>(
        &mut self,
        machines: &mut M,
        machine: u32,
        event: Event,
    ) -> Result<(), M::Error> {
        match event {
            Event::Choose(_) => {}
            Event::Send(machine, task) => {
                self.perform(machines, machine, task)?;
            }
            Event::NothingToSend { target, source } => {
                self.perform(machines, source.machine, Task::Release(source.slot, true))?;
                self.perform(machines, target.machine, Task::NothingToSend(target.id))?;
            }
            Event::Computed {
                hop,
                computing,
                computed,
            } => {
                let task = Task::Computed(hop.id, computing.step, computed);
                let waits = self.ask(machines, hop.machine, task)?.answer;
                if let Computed::Layers(_) = computed {
                    return Ok(());
                }
                self.perform(machines, machine, Task::Resume)?;
                if computed == Computed::First && waits {
                    self.resume_computing(machines, machine, hop, computing)?;
                }
            }
        }
        Ok(())
    }

    /// Schedules the events of the remaining layers of a hop, and of its end, as a machine's step computes them.
    fn resume_computing<M: Machines>(
        &mut self,
        machines: &mut M,
        machine: u32,
        hop: FarTransfer,
        computing: Computing,
    ) -> Result<(), M::Error> {
        let (step, of) = (computing.step, computing.layers);
        let between =
            (2..of).map(|layers| (step.computed_ns(layers, of), Computed::Layers(layers)));
        for (at_ns, computed) in between.chain([(step.completion_ns, Computed::All)]) {
            let number = Self::take_number(machines, machine)?;
            let event = Event::Computed {
                hop,
                computing,
                computed,
            };
            let key = EventKey {
                time_ns: at_ns.max(self.now_ns),
                priority: TRANSFER,
                machine,
                number,
            };
            self.events.insert(key, event);
        }
        Ok(())
    }

    pub(super) fn deliver<M: Machines>(
        &mut self,
        machines: &mut M,
        from: u32,
        message: Message,
    ) -> Result<(), M::Error> {
        match message {
            Message::Announced(question) => self.deliver_later(from, Event::Choose(question)),
            Message::Prefilled { slot, request } => {
                let source = SlotOn {
                    machine: from,
                    slot,
                };
                let Some(target) = self.going.remove(&source) else {
                    self.computed.insert(source, request);
                    return Ok(());
                };
                let done = self.ask(
                    machines,
                    target.machine,
                    Task::PromptCame(target.id, request),
                )?;
                if done.answer {
                    self.deliver_later(target.machine, Event::NothingToSend { target, source });
                }
            }
            Message::Awaits {
                machine,
                hop,
                computing,
            } => {
                let number = match computing.number {
                    Some(number) => number,
                    None => Self::take_number(machines, machine)?,
                };
                let event = Event::Computed {
                    hop,
                    computing,
                    computed: Computed::First,
                };
                let key = EventKey {
                    time_ns: computing.step.first_layer_ns.max(self.now_ns),
                    priority: TRANSFER,
                    machine,
                    number,
                };
                self.events.insert(key, event);
            }
            Message::Send(machine, task) => self.deliver_later(machine, Event::Send(machine, task)),
            Message::SendNow(machine, task) => {
                self.perform(machines, machine, task)?;
            }
        }
        Ok(())
    }

    /// Delivers an event to a machine after all boundaries of this instant.
    fn deliver_later(&mut self, machine: u32, event: Event) {
        self.delivered += 1;
        let key = EventKey {
            time_ns: self.now_ns,
            priority: HANDOVER,
            machine,
            number: self.delivered,
        };
        self.events.insert(key, event);
    }
}

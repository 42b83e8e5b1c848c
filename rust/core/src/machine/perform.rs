//! What a replica does on request from outside.

use super::messages::{Done, Key, Task};
use super::plugins::Occasion;
use super::{Phase, Replica, ServingStore};
use crate::store::Answer;

impl Phase {
    /// Its priority at one instant (`engine.py`).
    pub fn priority(self) -> u8 {
        match self {
            Self::Transfer => 0,
            Self::Boundary => 2,
        }
    }
}

impl Replica {
    /// Does what it is asked to at a time.
    pub fn perform<S: ServingStore>(
        &mut self,
        store: &mut S,
        task: Task,
        now_ns: u64,
    ) -> Answer<Done> {
        let mut done = Done::default();
        match task {
            Task::Next => self.run_once(store)?,
            Task::Ahead(until_ns) => self.run(store, until_ns)?,
            Task::Release(place, heard) => {
                let seen_ns = now_ns + u64::from(heard);
                self.release_sent(store, place, (now_ns, seen_ns))?;
            }
            Task::Ask(incoming) => done.incoming = self.ask_for_room(store, *incoming, now_ns)?,
            Task::PromptCame(id, request) => done.answer = self.prompt_came(id, request),
            Task::NothingToSend(id) => self.nothing_to_send(store, id, now_ns)?,
            Task::Computed(hop, step, computed) => {
                done.answer = self.step_computed(store, hop, (step, computed), now_ns)?;
            }
            Task::Depart(departure) => self.depart_down(store, &departure, now_ns)?,
            Task::LayerCame(id, layers) => self.layer_came(store, (id, layers), now_ns)?,
            Task::Enqueue(place) if self.is_given_up(place) => self.leave(store, place, now_ns),
            Task::Enqueue(place) => self.enqueue(store, place, now_ns)?,
            Task::Prefetch(request, tokens) => {
                self.prefetch(store, (request, tokens), Occasion::Session, now_ns)?;
            }
            Task::Operate(operation) => {
                done.operated = self.operate(store, &operation, now_ns)?;
            }
            Task::EndStep => self.end_running_step(store, now_ns)?,
            Task::Compose => done.step_ns = self.compose_alone(store, now_ns)?,
            Task::StartStep(together_ns) => {
                self.start_with_others(store, now_ns, together_ns)?;
            }
            Task::GiveUp(request) => {
                if let Some(place) = self.client_leaves(request) {
                    self.give_up(store, place, now_ns)?;
                    done.answer = true;
                }
            }
            Task::GiveUpHandedOver(request) => {
                done.answer = self.give_up_handed_over(store, request, now_ns)?;
            }
            Task::GoOn => {
                self.catch_up(store, now_ns)?;
                self.go_on(store, (now_ns, now_ns))?;
            }
            Task::TurnCompleted(session, tokens) => {
                self.views.sessions.complete_turn(session, tokens, now_ns);
            }
        }
        std::mem::swap(&mut done.letters, &mut self.handover.letters);
        if !self.reports.closed.is_empty() {
            done.closed = self.take_closed();
        }
        done.next = self.next_key();
        Ok(done)
    }

    /// When something is next here by itself, in the order of all machines' events.
    pub fn next_key(&self) -> Option<Key> {
        let (time_ns, phase) = self.next()?;
        let number = match phase {
            Phase::Transfer => self.next_arrival()?.1,
            Phase::Boundary => 0,
        };
        let machine = self.config.machine as u32;
        Some((time_ns, phase.priority(), machine, number))
    }

    /// Takes the next number among this machine's transfers.
    pub fn take_number(&mut self) -> u64 {
        self.mover
            .as_deref_mut()
            .map_or(0, |mover| mover.take_number())
    }

    fn run_once<S: ServingStore>(&mut self, store: &mut S) -> Answer<()> {
        match self.next() {
            Some((now_ns, Phase::Transfer)) => self.at_arrival(store, now_ns),
            Some((now_ns, Phase::Boundary)) => self.at_boundary(store, now_ns),
            None => Ok(()),
        }
    }
}

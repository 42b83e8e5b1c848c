//! What a replica is asked to do from outside, and the letters that come of it.

use super::event::Computing;
use super::handover::Departure;
use super::handover::{Incoming, IncomingId};
use crate::machine::{Arrival, Phase, Place, Replica, Request, ServingStore};
use crate::store::Answer;
use crate::transfers::{Computed, FarTransfer, TransferId, Transmission};

/// When something happens among all that does: time, priority, machine, number on that machine.
pub type Key = (u64, u8, u32, u64);

/// What a replica tells others.
#[derive(Clone, Debug)]
pub enum Letter {
    /// The prompt of a request that goes on elsewhere is computed, or will be with the step that starts now.
    Announced {
        /// Its place here.
        place: Place,
        /// As it came.
        arrival: Arrival,
        /// When it came to the cluster.
        arrival_ns: u64,
        /// When its layers are computed, where they leave one by one.
        computed: Option<Transmission>,
    },
    /// The prompt of such a request is computed.
    Prefilled {
        /// Its place here.
        place: Place,
        /// As it stands now.
        request: Box<Request>,
    },
    /// A hop waits for what a step computes.
    Awaits {
        /// The step's machine.
        machine: u32,
        /// The hop.
        hop: FarTransfer,
        /// The step.
        computing: Computing,
    },
    /// A hand-over leaves the GPU of the machine that has computed it, over its memory.
    Depart {
        /// That machine.
        machine: u32,
        /// What leaves.
        departure: Box<Departure>,
    },
    /// What another machine holds for a request is not needed any more.
    Release {
        /// That machine.
        machine: u32,
        /// The request's place there.
        place: Place,
    },
    /// A request of a session is answered whose prompt another machine computed.
    Answered {
        /// That machine.
        machine: i64,
        /// The session.
        session: i64,
        /// Tokens of the prompt.
        prompt_tokens: u64,
    },
}

/// What a replica is asked to do.
#[derive(Debug)]
pub enum Task {
    /// What is next here.
    Next,
    /// What is next here, and then all that comes before a time.
    Ahead(u64),
    /// Give up what was held for a request that was sent on; the flag: all boundaries of this instant are over.
    Release(Place, bool),
    /// Reserve room for a hand-over.
    Ask(Box<Incoming>),
    /// The prompt of a hand-over is computed; tells whether nothing of it is to be sent.
    PromptCame(IncomingId, Box<Request>),
    /// Go on with a hand-over of which nothing had to be sent.
    NothingToSend(IncomingId),
    /// Go on with a hop of which a step has computed some; tells whether it waits for more.
    Computed(TransferId, Transmission, Computed),
    /// Send a prompt down.
    Depart(Box<Departure>),
    /// A step has computed what was waited for elsewhere.
    GoOn,
    /// Enter a session's turn: its number, and its tokens.
    TurnCompleted(i64, u64),
    /// End the step that runs, if one does, as a rank of an engine.
    EndStep,
    /// Compose a rank's next step; tells what it would take alone.
    Compose,
    /// Start a rank's composed step, which takes so long.
    StartStep(u64),
    /// Hear of so many layers of a transfer that have arrived.
    LayerCame(TransferId, u64),
    /// Queue a request that has come.
    Enqueue(Place),
    /// Bring up what a request's prompt of so many tokens would read from further down.
    Prefetch(u32, u64),
    /// Let a request go that was sent here, if it is; tells whether it was here.
    GiveUp(u32),
    /// The same of a request whose prompt another machine computed.
    GiveUpHandedOver(u32),
}

/// What came of a task.
#[derive(Debug, Default)]
pub struct Done {
    /// What it tells others.
    pub letters: Vec<Letter>,
    /// Who has finished here.
    pub closed: Vec<u32>,
    /// When something is next here by itself.
    pub next: Option<Key>,
    /// The answer, of tasks that have one.
    pub answer: bool,
    /// Where a new hand-over is kept.
    pub incoming: IncomingId,
    /// What a composed step would take alone, where anything runs.
    pub step_ns: Option<u64>,
}

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
                self.prefetch(store, (request, tokens), now_ns)?;
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
                self.sessions.complete_turn(session, tokens, now_ns);
            }
        }
        std::mem::swap(&mut done.letters, &mut self.letters);
        if !self.closed.is_empty() {
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

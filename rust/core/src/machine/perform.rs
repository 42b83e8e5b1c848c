//! Execution of a replica's tasks.

use super::messages::{Done, EventKey, Task};
use super::plugins::Occasion;
use super::{Now, Phase, Replica};
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
    /// Runs a task at a time.
    pub fn perform(&mut self, now: &mut Now<'_>, task: Task) -> Answer<Done> {
        let mut done = Done::default();
        match task {
            Task::Next => self.happen(now)?,
            Task::RunUntil(until_ns) => self.run(now, until_ns)?,
            Task::Release(slot, delivered) => {
                let seen_ns = now.ns + u64::from(delivered);
                self.release_sent(now, slot, seen_ns)?;
            }
            Task::RequestCapacity(incoming) => {
                done.incoming = self.request_capacity(now, *incoming)?
            }
            Task::PromptCame(id, request) => done.answer = self.prompt_came(id, request),
            Task::NothingToSend(id) => self.nothing_to_send(now, id)?,
            Task::Computed(hop, step, computed) => {
                done.answer = self.step_computed(now, hop, step, computed)?;
            }
            Task::Depart(source_side) => self.depart_down(now, &source_side)?,
            Task::LayerCame(id, layers) => self.layer_came(now, id, layers)?,
            Task::Enqueue(slot) if self.is_aborted(slot) => self.leave(now, slot),
            Task::Enqueue(slot) => self.enqueue(now, slot)?,
            Task::Prefetch(request, tokens) => {
                self.prefetch(now, request, tokens, Occasion::Session)?;
            }
            Task::Operate(operation) => {
                done.operated = self.operate(now, &operation)?;
            }
            Task::EndStep => self.end_running_step(now)?,
            Task::Compose => done.step = self.compose_alone(now)?,
            Task::StartStep(together_ns) => {
                self.start_with_others(now, together_ns)?;
            }
            Task::Abort(request) => {
                if let Some(slot) = self.client_leaves(request) {
                    self.abort(now, slot)?;
                    done.answer = true;
                }
            }
            Task::AbortHandedOver(request) => {
                done.answer = self.abort_handed_over(now, request)?;
            }
            Task::Resume => {
                self.catch_up(now, now.ns)?;
                self.resume(now, now.ns)?;
            }
            Task::TurnCompleted(session, tokens) => {
                self.sessions.complete_turn(session, tokens, now.ns);
            }
        }
        std::mem::swap(&mut done.messages, &mut self.handover.messages);
        if !self.reports.closed.is_empty() {
            done.closed = self.take_closed();
        }
        done.next = self.next_key();
        Ok(done)
    }

    /// The next event of the machine itself, in the order of all machines' events.
    pub fn next_key(&self) -> Option<EventKey> {
        let (time_ns, phase) = self.next()?;
        let number = match phase {
            Phase::Transfer => self.next_arrival()?.1,
            Phase::Boundary => 0,
        };
        Some(EventKey {
            time_ns,
            priority: phase.priority(),
            machine: self.machine(),
            number,
        })
    }
}

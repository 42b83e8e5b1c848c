//! What happens between machines, the question who decodes a request, and its answer.

use super::cluster::{Cluster, Machines};
use super::over_memory::{Departure, Way};
use super::reception::{Incoming, IncomingId};
use super::task::Task;
use crate::serving::{Arrival, Place};
use crate::transfers::Transmission;

/// Who is to decode a request?
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The machine that computes its prompt, and its place there.
    pub source: (u32, Place),
    /// As it came.
    pub arrival: Arrival,
    /// When it came to the cluster.
    pub arrival_ns: u64,
    /// When its layers are computed, where they leave one by one.
    pub computed: Option<Transmission>,
}

/// Who decodes a request.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The machine.
    pub machine: u32,
    /// What its KV crosses.
    pub way: Way,
    /// Tokens that are expected to cross.
    pub expected_tokens: u64,
}

/// What happens between machines at a time of its own.
#[derive(Debug)]
pub(super) enum Event {
    /// Someone is to be chosen.
    Choose(Question),
    /// What a machine holds for a request is not needed any more.
    Release(u32, Place),
    /// A hand-over leaves the machine that has computed it, over its memory.
    Depart(u32, Box<Departure>),
    /// A machine hears that nothing is to be sent to it.
    NothingToSend {
        target: (u32, IncomingId),
        source: (u32, Place),
    },
    /// A step of the machine has computed the first layer of what a hop waits for, or (the flag) all.
    Computed {
        target: Fed,
        step: Transmission,
        complete: bool,
    },
}

/// Who sends what a step computes: the machine that receives it, or that on which it goes down first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fed {
    Incoming(u32, IncomingId),
    Leaving(u32, Place),
}

impl Cluster {
    /// Lets the chosen machine reserve room for a request.
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
        let crossing = (chosen.way, chosen.expected_tokens);
        let mut incoming = Incoming::new(source, arrival, computed, crossing);
        incoming.request = self.computed.remove(&source);
        let is_computed = incoming.request.is_some();
        let done = self.perform(machines, chosen.machine, Task::Ask(Box::new(incoming)))?;
        if !is_computed {
            self.going.insert(source, (chosen.machine, done));
        }
        Ok(())
    }
}

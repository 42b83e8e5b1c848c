//! What happens between machines, the question who decodes a request, and its answer.

use super::event_loop::{Cluster, Machines};
use super::handover::{Departure, Way};
use super::handover::{Incoming, IncomingId};
use super::task::Task;
use crate::machine::{Arrival, Place};
use crate::transfers::{Computed, FarTransfer, Transmission};

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
    /// A step of the machine has computed some of what a hop sends.
    Computed {
        hop: FarTransfer,
        computing: Computing,
        computed: Computed,
    },
}

/// A step that computes what a hop sends.
#[derive(Clone, Copy, Debug)]
pub struct Computing {
    /// When it computes its layers.
    pub(super) step: Transmission,
    /// Its number among what is sent on its machine, where that is taken already.
    pub(super) number: Option<u64>,
    /// Of how many layers the hop hears one by one.
    pub(super) layers: u64,
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

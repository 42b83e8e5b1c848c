//! Events between machines, and the choice of the machine that decodes a request: plain data.

use crate::machine::messages::{Computing, Departure, IncomingId, Way};
use crate::machine::{Arrival, Place};
use crate::transfers::{Computed, FarTransfer, Transmission};

/// The question which machine decodes a request.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The machine that computes its prompt, and its place there.
    pub source: (u32, Place),
    /// As it came.
    pub arrival: Arrival,
    /// Its arrival at the cluster.
    pub arrival_ns: u64,
    /// Times at which its layers are computed, where they leave one by one.
    pub computed: Option<Transmission>,
}

/// The machine chosen to decode a request.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The machine.
    pub machine: u32,
    /// The path that its KV crosses.
    pub way: Way,
    /// Tokens that are expected to cross.
    pub expected_tokens: u64,
}

/// An event between machines, at a time of its own.
#[derive(Debug)]
pub(super) enum Event {
    /// A decode machine is to be chosen.
    Choose(Question),
    /// The blocks that a machine holds for a request are not needed any more.
    Release(u32, Place),
    /// A hand-over leaves the machine that has computed it, over its memory.
    Depart(u32, Box<Departure>),
    /// A machine is notified that nothing is to be sent to it.
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

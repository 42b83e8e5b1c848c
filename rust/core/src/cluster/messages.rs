//! Events between machines, and the choice of the machine that decodes a request: plain data.

use crate::machine::messages::{Computing, IncomingId, Question, Route, SlotOn, Task};
use crate::transfers::{Computed, FarTransfer};

/// The machine chosen to decode a request.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The machine.
    pub machine: u32,
    /// The path of its KV.
    pub route: Route,
    /// Expected number of tokens to transfer.
    pub expected_tokens: u64,
}

/// A hand-over on its target machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct IncomingOn {
    pub machine: u32,
    pub id: IncomingId,
}

/// An event between machines, at a time of its own.
#[derive(Debug)]
pub(super) enum Event {
    /// A decode machine must be chosen.
    Choose(Question),
    /// A task is sent to a machine.
    Send(u32, Task),
    /// A machine is notified that nothing is to be sent to it.
    NothingToSend { target: IncomingOn, source: SlotOn },
    /// A step of the machine has computed some of the layers that a hop sends.
    Computed {
        hop: FarTransfer,
        computing: Computing,
        computed: Computed,
    },
}

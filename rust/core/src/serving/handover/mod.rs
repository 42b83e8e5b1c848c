//! Hand-overs: a prompt is computed on one machine, its answer on another (the rules of `serving/handover/`).
//!
//! A replica tells others by letters; [`Cluster`] takes them there in the order of their time. What comes down to a
//! machine's memory goes on from the other one at once ([`crate::serving::neighbours`]), since both may share a channel.
//!
//! | file | what lives there |
//! |---|---|
//! | `sender` | what a prefill machine has computed, and when each layer of it is there |
//! | `reception` | a decode machine reserves room, first come, first served, and takes into its batch |
//! | `over_memory` | what goes down, over the wire and up, where the memory of both machines is crossed |
//! | `task` | what a replica is asked to do from outside, and the letters that come of it |
//! | `event` | what happens between machines at a time of its own; who decodes what |
//! | `from_outside` | what machines are told from outside, given-up requests among it |
//! | `ranks` | machines that step together |
//! | `cluster` | all machines' events in one order |

mod cluster;
mod event;
mod from_outside;
mod over_memory;
mod ranks;
mod reception;
mod sender;
mod task;

pub use cluster::{Cluster, Machines};
pub use event::{Chosen, Computing, Question};
pub use over_memory::{Departure, Way};
pub use reception::{Incoming, IncomingId, Reception};
pub use task::{Done, Key, Letter, Task};

/// How the KV of prompts goes from the machine that computed it to the one that decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandoverConfig {
    /// Whether a layer leaves when the last chunk's step has computed it.
    pub layer_by_layer: bool,
    /// Whether the first token is out when the prompt is computed, before its KV has crossed.
    pub first_token_at_prefill: bool,
    /// The tier's number that stands for another machine.
    pub remote: usize,
}

/// What a replica does for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Nothing.
    #[default]
    Both,
    /// Its requests go on elsewhere after their prompt.
    Prefills(HandoverConfig),
    /// Requests come to it after their prompt.
    Decodes(HandoverConfig),
}

impl Role {
    /// How requests go on elsewhere, where they do.
    pub fn sends(&self) -> Option<HandoverConfig> {
        match self {
            Self::Prefills(how) => Some(*how),
            _ => None,
        }
    }

    /// How requests come from elsewhere, where they do.
    pub fn receives(&self) -> Option<HandoverConfig> {
        match self {
            Self::Decodes(how) => Some(*how),
            _ => None,
        }
    }
}

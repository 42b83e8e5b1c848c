//! Hand-overs: a prompt is computed on one machine, its answer on another (the rules of `spec/handover.py`).
//!
//! | file | contents |
//! |---|---|
//! | `sender` | computed prompts of a prefill machine, and the times of their layers |
//! | `target` | a decode machine reserves blocks, first come, first served, and adds requests to its batch |
//! | `engines` | the sides of engines' own schedulers |
//! | `over_memory` | transfers down, over the wire and up, through the memory of both machines |

mod engines;
mod over_memory;
mod sender;
mod target;

pub use target::HandOverTarget;

use super::messages::Message;

/// Hand-overs to this machine, and its messages to other machines.
#[derive(Debug, Default)]
pub struct HandOver {
    /// Handed-over requests: waiting for blocks, in transit, arrived.
    pub(super) target: HandOverTarget,
    /// Messages that have not been delivered yet.
    pub(super) messages: Vec<Message>,
}

/// Settings of the transfer from the machine that computes a prompt to the machine that decodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoverConfig {
    /// True if a layer leaves when the last chunk's step has computed it.
    pub layer_by_layer: bool,
    /// True if the first token is generated when the prompt is computed, before its KV has been transferred.
    pub first_token_at_prefill: bool,
    /// The tier's number that stands for another machine.
    pub remote: usize,
}

/// Role of a replica in hand-overs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// No hand-overs.
    #[default]
    Both,
    /// Its requests are decoded on another machine after their prompt.
    Prefills(HandoverConfig),
    /// It decodes requests after another machine has computed their prompt.
    Decodes(HandoverConfig),
}

impl Role {
    /// Settings of hand-overs from this machine, if there are any.
    pub fn sends(&self) -> Option<HandoverConfig> {
        match self {
            Self::Prefills(how) => Some(*how),
            _ => None,
        }
    }

    /// True if there are hand-overs from or to this machine.
    pub fn hands_over(&self) -> bool {
        *self != Self::Both
    }

    /// Settings of hand-overs to this machine, if there are any.
    pub fn receives(&self) -> Option<HandoverConfig> {
        match self {
            Self::Decodes(how) => Some(*how),
            _ => None,
        }
    }
}

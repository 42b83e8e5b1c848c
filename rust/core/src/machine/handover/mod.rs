//! Hand-overs: a prompt is computed on one machine, its answer on another (the rules of `spec/handover.py`).
//!
//! | file | what lives there |
//! |---|---|
//! | `sender` | what a prefill machine has computed, and when each layer of it is there |
//! | `target` | a decode machine reserves room, first come, first served, and takes into its batch |
//! | `over_memory` | what goes down, over the wire and up, where the memory of both machines is crossed |

mod over_memory;
mod sender;
mod target;

pub use target::HandOverTarget;

use super::messages::Message;

/// What a machine takes over from others, and its messages to them.
#[derive(Debug, Default)]
pub struct HandOver {
    /// Handed-over requests: queued for room, on their way, arrived.
    pub(super) target: HandOverTarget,
    /// Messages that have not been delivered yet.
    pub(super) messages: Vec<Message>,
}

/// How the KV of prompts goes from the machine that computed it to the one that decodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

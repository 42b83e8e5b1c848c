//! One request between its arrival and its last token.

use super::VllmConfig;
use crate::machine::messages::IncomingId;
use crate::machine::{AsyncScheduling, Request};
use crate::store::connector::Ending;
use crate::store::LeaseId;

/// A request's position in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuePosition {
    pub priority: i64,
    pub arrival_ns: u64,
    /// Its position, unless the queue is ordered by priority.
    pub stand: u64,
}

/// A request's tokens in steps in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct InFlight {
    /// Tokens that these steps compute.
    pub tokens: u64,
    /// Number of these tokens that belong to steps from before a preemption.
    pub stale: u64,
    /// Tokens that these steps will bring (asynchronous scheduling).
    pub placeholders: u64,
    /// Number of the first decision that may contain its next step (pipeline stages).
    pub eligible: u64,
}

/// State of a request's load from a lower tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Load {
    #[default]
    None,
    /// Its copy runs.
    Runs,
    /// Its end is reported.
    Ended,
    /// Its blocks have their keys, and the request waits for the rest of its blocks.
    Keyed,
}

/// A request's blocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBlocks {
    pub lease: LeaseId,
    /// Blocks held.
    pub blocks: u64,
    /// Leading blocks that have been through the key step.
    pub keyed: u64,
    /// Load of blocks, of those from this one on.
    pub load: Load,
    pub load_from: u32,
    /// True from its admission until its step has loaded blocks from the one above on.
    pub brings: bool,
    /// Tokens found at its last admission.
    pub found_tokens: u64,
    /// True from its admission until the step that computes the last of its known tokens, if that is not the first.
    pub claims: bool,
    /// True if requests behind it may have gone first since it last ran.
    pub is_passed: bool,
    /// The hand-over that brings its prompt, until that is here.
    pub incoming: Option<IncomingId>,
}

/// The scheduler's state of a request. Counts are tokens unless they say blocks.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    pub request: u32,
    pub position: QueuePosition,
    pub prompt: u64,
    /// Tokens when it has finished: prompt and answer.
    pub total: u64,
    /// Prompt and generated tokens.
    pub known: u64,
    /// Tokens that have KV, or will have it when the steps in flight have ended.
    pub computed: u64,
    pub flight: InFlight,
    pub held: HeldBlocks,
    /// Tokens of the step that is being composed.
    pub chunk: u64,
    pub is_running: bool,
    /// True if its last step left tokens to compute.
    pub is_chunk: bool,
    pub was_admitted: bool,
    /// True if its last token is generated; steps in flight still compute for it.
    pub is_done: bool,
    pub last_token_ns: Option<u64>,
}

impl Sequence {
    pub fn new(request: &Request) -> Self {
        let arrival = &request.arrival;
        Self {
            request: arrival.request,
            position: QueuePosition {
                priority: arrival.priority,
                arrival_ns: request.arrival_ns,
                ..QueuePosition::default()
            },
            prompt: arrival.prompt_tokens,
            total: arrival.prompt_tokens + arrival.output_tokens.max(1),
            known: arrival.prompt_tokens,
            ..Self::default()
        }
    }

    /// Its end, for the tiers: of a finished request all of the prompt may be stored.
    pub fn ending(&self, runs: bool) -> Ending {
        let is_finished = self.known == self.total;
        Ending {
            request: self.request,
            runs,
            prompt_tokens: if is_finished {
                self.prompt
            } else {
                self.computed.min(self.prompt)
            },
            processed_tokens: self.computed.saturating_sub(self.flight.tokens),
            confirmed_tokens: self.computed.saturating_sub(self.flight.placeholders),
        }
    }

    /// Known tokens and those that steps in flight will bring.
    pub fn expected(&self) -> u64 {
        self.known + self.flight.placeholders
    }

    /// Tokens left to compute; 0 if its last token is in flight already.
    pub fn lacking(&self, config: &VllmConfig) -> u64 {
        // a prompt for another machine ends with its first token
        let foreseen = config.async_scheduling == AsyncScheduling::Length || config.is_producer;
        if foreseen
            && self.flight.placeholders > 0
            && self.computed + 2 >= self.total + self.flight.placeholders
        {
            return 0;
        }
        self.expected() - self.computed
    }

    /// True if a chunk of `tokens` tokens is a decode: one token, after all known tokens.
    pub fn decodes(&self, tokens: u64) -> bool {
        self.expected() > self.prompt && tokens == 1 && self.expected() - self.computed == 1
    }
}

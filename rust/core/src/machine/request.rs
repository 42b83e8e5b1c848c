//! One request while it is served.

use crate::store::LeaseId;

/// Upper bound on the tiers of a machine; `native.py` requests no more.
pub const MOST_TIERS: usize = 8;

/// A request at its arrival at a replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arrival {
    /// Its number in the trace.
    pub request: u32,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Tokens it will generate.
    pub output_tokens: u64,
    /// Its session, −1 without one.
    pub session: i64,
    /// Its turn in the session, from 0.
    pub turn: i64,
    /// Label of the workload, for its row.
    pub is_conversational_turn: bool,
    /// Prompt tokens that the router expected to be computed; 0 if the router made no estimate.
    pub expected_prefill_tokens: u64,
    /// The priority of the trace, the smallest first; 0 if the trace has none.
    pub priority: i64,
    /// Prompt tokens that repeat earlier turns of its session; `None` if the trace does not state them.
    pub history_tokens: Option<u64>,
}

impl Arrival {
    /// True if the prompt continues a session of `total` tokens: it is longer, or a context window has left it a part
    /// of them.
    pub fn continues(&self, total: u64) -> bool {
        let part_is_left = self
            .history_tokens
            .is_some_and(|left| (1..total).contains(&left));
        self.prompt_tokens > total || part_is_left
    }
}

/// Position and history of a request in the batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduling {
    /// Number of its preemptions.
    pub preemptions: u32,
    /// Number of times that a later request was admitted before it.
    pub(super) passed: u32,
    /// Its position in the order in which sequences joined the batch.
    pub(super) joined: u64,
    /// True if its prompt is being computed.
    pub(super) prefilling: bool,
}

/// Tokens that a request has generated, and their times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Generated {
    pub tokens: u64,
    pub first_token_ns: Option<u64>,
    pub last_token_ns: Option<u64>,
}

/// Result of a request's look-up: cached tokens, and tokens to prefill.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachedPrefix {
    /// The outcome, decided at the first admission.
    pub outcome: u8,
    pub tokens: u64,
    /// The cached tokens by the tier they came from.
    pub from_tokens: [u64; MOST_TIERS],
    /// Prompt tokens that were not cached.
    pub left_tokens: u64,
    /// Tokens computed again after preemptions.
    pub recomputed_tokens: i64,
}

/// The parts of a request's TTFT, in the order in which they are taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TtftParts {
    pub client_ns: u64,
    pub queue_ns: u64,
    pub lookup_ns: u64,
    /// Exposed wait for free blocks.
    pub fetch_room_ns: u64,
    /// Exposed waits for KV by the tier it came from.
    pub fetch_from_ns: [u64; MOST_TIERS],
    pub prefill_ns: u64,
    pub first_decode_ns: u64,
    /// Wait for the hand-over before the first token.
    pub handover_ns: u64,
}

impl TtftParts {
    /// Total wait for KV or free blocks so far.
    pub fn fetch_ns(&self) -> u64 {
        self.fetch_room_ns + self.fetch_from_ns.iter().sum::<u64>()
    }

    /// Sum of all parts.
    pub fn total_ns(&self) -> u64 {
        let before_prefill = self.client_ns + self.queue_ns + self.lookup_ns + self.fetch_ns();
        before_prefill + self.prefill_ns + self.first_decode_ns + self.handover_ns
    }
}

/// Waits for KV by their cause: shares of the parts of TTFT, not parts themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stalls {
    /// Waits by the hop that was waited for: the tier that it reads.
    pub from_ns: [u64; MOST_TIERS],
    /// Part of the prefill in which its step waited for the KV of other requests.
    pub batch_ns: u64,
}

/// Hand-over of a request from the machine that computes its prompt to the machine that decodes it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HandoverRecord {
    /// The machine that computed its prompt, if another machine decodes it.
    pub prefill_machine: Option<i64>,
    /// True if it is decoded on another machine: its blocks here are released once its KV has been read.
    pub sent_on: bool,
    /// Wait between the first and the second token.
    pub gap_ns: u64,
    /// Part of the wait in which there were too few free blocks at the target.
    pub capacity_wait_ns: u64,
    pub blocks: u64,
}

/// A request between its arrival and its last token. Times are ns.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The request as it arrived.
    pub arrival: Arrival,
    /// Time of its arrival.
    pub arrival_ns: u64,
    /// Start of the current part of its TTFT.
    pub since_ns: u64,
    pub(super) lease: LeaseId,
    /// Its position and history in the batch.
    pub scheduling: Scheduling,
    pub(super) generated: Generated,
    pub(super) cached: CachedPrefix,
    pub(super) ttft: TtftParts,
    pub(super) stalls: Stalls,
    pub(super) handover: HandoverRecord,
    /// True if the client has aborted the request, which still holds blocks.
    pub(super) pending_aborts: bool,
    /// True if the request has finished or was aborted.
    pub(super) is_closed: bool,
}

impl Request {
    /// A request that arrives now.
    pub fn new(arrival: Arrival, now_ns: u64) -> Self {
        Self {
            arrival,
            arrival_ns: now_ns,
            since_ns: now_ns,
            ..Self::default()
        }
    }

    /// Tokens to compute before it decodes: the prompt and the tokens generated before a preemption.
    pub fn prefill_target_tokens(&self) -> u64 {
        self.arrival.prompt_tokens + self.generated.tokens
    }

    /// I6 and I8: the parts of a finished request's TTFT sum to it, and its tokens to the prompt.
    pub(super) fn adds_up(&self, finish_ns: u64) -> bool {
        let first_ns = self.arrival_ns + self.ttft.total_ns();
        let from_tiers: u64 = self.cached.from_tokens.iter().sum();
        self.generated.first_token_ns == Some(first_ns)
            && first_ns <= finish_ns
            && self.cached.tokens + self.cached.left_tokens == self.arrival.prompt_tokens
            && from_tiers == self.cached.tokens
    }

    /// Tokens with KV when it has finished: the last generated token never gets any.
    pub fn total_kv_tokens(&self) -> u64 {
        self.arrival.prompt_tokens + self.arrival.output_tokens.max(1) - 1
    }
}

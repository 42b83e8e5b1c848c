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
    pub(super) generated_tokens: u64,
    pub(super) last_token_ns: Option<u64>,
    pub(super) first_token_ns: Option<u64>,
    /// Number of its preemptions.
    pub preemptions: u32,
    /// Number of times that a later request was admitted before it.
    pub(super) passed: u32,
    /// Its position in the order in which sequences joined the batch.
    pub(super) joined: u64,
    /// True if its prompt is being computed.
    pub(super) prefilling: bool,
    pub(super) recomputed_tokens: i64,
    pub(super) client_ns: u64,
    pub(super) queue_ns: u64,
    pub(super) lookup_ns: u64,
    /// Exposed wait for free blocks.
    pub(super) fetch_room_ns: u64,
    /// Exposed waits for KV by the tier it came from.
    pub(super) fetch_from_ns: [u64; MOST_TIERS],
    /// The waits for KV again, by the hop that was waited for: the tier that it reads.
    pub(super) stall_from_ns: [u64; MOST_TIERS],
    pub(super) prefill_ns: u64,
    /// Part of `prefill_ns` in which its step waited for the KV of other requests.
    pub(super) batch_stall_ns: u64,
    pub(super) first_decode_ns: u64,
    /// The outcome of its look-up, decided at its first admission.
    pub(super) outcome: u8,
    pub(super) cached_tokens: u64,
    /// The cached tokens by the tier they came from.
    pub(super) cached_from_tokens: [u64; MOST_TIERS],
    pub(super) left_tokens: u64,
    /// True if the client has aborted the request, which still holds blocks.
    pub(super) pending_aborts: bool,
    /// True if the request has finished or was aborted.
    pub(super) is_closed: bool,
    /// True if it is decoded on another machine: its blocks here are released once its KV has been read.
    pub(super) sent_on: bool,
    /// The machine that computed its prompt, if another machine decodes it.
    pub(super) prefill_machine: Option<i64>,
    /// Wait for the hand-over before the first token.
    pub(super) handover_ns: u64,
    /// Wait for the hand-over between the first and the second token.
    pub(super) handover_gap_ns: u64,
    /// Part of the hand-over's wait in which there were too few free blocks at the target.
    pub(super) handover_room_ns: u64,
    pub(super) handover_blocks: u64,
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
        self.arrival.prompt_tokens + self.generated_tokens
    }

    /// Total wait for KV or free blocks so far.
    pub fn fetch_ns(&self) -> u64 {
        self.fetch_room_ns + self.fetch_from_ns.iter().sum::<u64>()
    }

    /// I6 and I8: the parts of a finished request's TTFT sum to it, and its tokens to the prompt.
    pub(super) fn adds_up(&self, finish_ns: u64) -> bool {
        let parts = self.client_ns + self.queue_ns + self.lookup_ns + self.fetch_ns();
        let parts = parts + self.prefill_ns + self.first_decode_ns + self.handover_ns;
        let first_ns = self.arrival_ns + parts;
        let from_tiers: u64 = self.cached_from_tokens.iter().sum();
        self.first_token_ns == Some(first_ns)
            && first_ns <= finish_ns
            && self.cached_tokens + self.left_tokens == self.arrival.prompt_tokens
            && from_tiers == self.cached_tokens
    }

    /// Tokens with KV when it has finished: the last generated token never gets any.
    pub fn total_kv_tokens(&self) -> u64 {
        self.arrival.prompt_tokens + self.arrival.output_tokens.max(1) - 1
    }
}

//! One request while it is served.

use crate::store::LeaseId;

/// Tiers that a machine may have; `native.py` asks for no more.
pub const MOST_TIERS: usize = 8;

/// A request as it reaches a replica.
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
    /// Prompt tokens that the router expected to be computed; 0 where it did not ask.
    pub expected_prefill_tokens: u64,
    /// The trace's own, the smallest first; 0 where it has none.
    pub priority: i64,
}

/// A request between its arrival and its last token. Times are ns.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What it came with.
    pub arrival: Arrival,
    /// When it came.
    pub arrival_ns: u64,
    /// When the current part of its TTFT began.
    pub since_ns: u64,
    pub(super) lease: LeaseId,
    pub(super) generated_tokens: u64,
    pub(super) last_token_ns: Option<u64>,
    pub(super) first_token_ns: Option<u64>,
    /// How often it was preempted.
    pub preemptions: u32,
    /// How often a later one was admitted before it.
    pub(super) passed: u32,
    /// Its place in the order in which sequences joined the batch.
    pub(super) joined: u64,
    /// Whether its prompt is being computed.
    pub(super) prefilling: bool,
    pub(super) recomputed_tokens: i64,
    pub(super) client_ns: u64,
    pub(super) queue_ns: u64,
    pub(super) lookup_ns: u64,
    /// Exposed waits: until room was free, and for KV by the tier it came from.
    pub(super) fetch_room_ns: u64,
    pub(super) fetch_from_ns: [u64; MOST_TIERS],
    /// The waits for KV again, by the hop that was waited for: the tier that it reads.
    pub(super) stall_from_ns: [u64; MOST_TIERS],
    pub(super) prefill_ns: u64,
    /// Of it, what its step waited for the KV of others.
    pub(super) batch_stall_ns: u64,
    pub(super) first_decode_ns: u64,
    /// What its look-up is called, decided at its first admission.
    pub(super) outcome: u8,
    pub(super) cached_tokens: u64,
    /// The cached tokens by the tier they came from.
    pub(super) cached_from_tokens: [u64; MOST_TIERS],
    pub(super) left_tokens: u64,
    /// Whether its client has given it up, and whether it has ended or left.
    pub(super) pending_aborts: bool,
    pub(super) is_closed: bool,
    /// Whether it goes on elsewhere: what it holds here is given up once its KV has been read.
    pub(super) sent_on: bool,
    /// The machine that computed its prompt, where another one answers it.
    pub(super) prefill_machine: Option<i64>,
    /// The hand-over: its wait before the first token, or else before the second; of it, for room there.
    pub(super) handover_ns: u64,
    pub(super) handover_gap_ns: u64,
    pub(super) handover_room_ns: u64,
    pub(super) handover_blocks: u64,
}

impl Request {
    /// A request that comes now.
    pub fn new(arrival: Arrival, now_ns: u64) -> Self {
        Self {
            arrival,
            arrival_ns: now_ns,
            since_ns: now_ns,
            ..Self::default()
        }
    }

    /// Tokens to compute before it decodes: the prompt and what it had generated before a preemption.
    pub fn prefill_target_tokens(&self) -> u64 {
        self.arrival.prompt_tokens + self.generated_tokens
    }

    /// All waiting for KV or room so far.
    pub fn fetch_ns(&self) -> u64 {
        self.fetch_room_ns + self.fetch_from_ns.iter().sum::<u64>()
    }

    /// Tokens with KV when it is done: the last generated token never gets any.
    pub fn total_kv_tokens(&self) -> u64 {
        self.arrival.prompt_tokens + self.arrival.output_tokens.max(1) - 1
    }
}

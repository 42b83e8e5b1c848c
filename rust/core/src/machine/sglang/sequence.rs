//! One request between its arrival and its last token.

use crate::engines::radix_store::Prefix;
use crate::machine::Request;

/// The scheduler counts no more of an answer that is still to come (`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`).
const MOST_NEW_TOKENS: u64 = 4096;

/// What the scheduler knows of a request. Counts are tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub request: u32,
    pub prompt: u64,
    /// Most tokens of its answer: as many as it will have.
    pub max_new: u64,
    /// Tokens of its answer that are out.
    pub out: u64,
    /// What its last look-up found; it is held once it has KV of its own.
    pub found: Prefix,
    /// Leading tokens that have KV before its next chunk (`prefix_len`).
    pub prefix: u64,
    /// The end of its last chunk (`extend_end`).
    pub end: u64,
    /// Tokens that were known when its chunk was decided on (`full_untruncated_fill_ids`).
    pub filled: u64,
    /// Tokens with KV, those of steps in flight too (`kv_committed_len`).
    pub committed: u64,
    /// Steps in flight that compute a chunk of its prompt which is not the last.
    pub middle_chunks: u64,
    /// Tokens of the step that is being composed.
    pub chunk: u64,
    /// Steps in flight that it is part of.
    pub steps_in_flight: u64,
    /// It lost its KV and has not been admitted again.
    pub is_retracted: bool,
    pub is_finished: bool,
    /// It has KV of its own.
    pub is_held: bool,
    pub was_admitted: bool,
    pub last_token_ns: Option<u64>,
}

impl Sequence {
    pub fn new(request: &Request) -> Self {
        let arrival = &request.arrival;
        Self {
            request: arrival.request,
            prompt: arrival.prompt_tokens,
            max_new: arrival.output_tokens.max(1),
            ..Self::default()
        }
    }

    /// Tokens that are known: the prompt and what is out of the answer.
    pub fn known(&self) -> u64 {
        self.prompt + self.out
    }

    /// Tokens that are found of it and may be used: the last known one is computed.
    pub fn matched(&self) -> u64 {
        self.found.tokens.min(self.known() - 1)
    }

    /// Tokens still to come, as far as they are counted.
    pub fn to_come(&self) -> u64 {
        (self.max_new - self.out).min(MOST_NEW_TOKENS)
    }

    /// Tokens that a request is counted with once its prompt is computed whole.
    pub fn whole_answer(&self) -> u64 {
        self.max_new.min(MOST_NEW_TOKENS)
    }

    /// Whether the step that is being composed computes a part of its prompt.
    pub fn is_chosen(&self) -> bool {
        self.chunk > 0
    }

    /// Whether the next token is its last.
    pub fn ends_next(&self) -> bool {
        self.out + 1 >= self.max_new
    }
}

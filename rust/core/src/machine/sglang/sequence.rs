//! One request between its arrival and its last token.

use super::storage::Asked;
use crate::engines::radix_store::Prefix;
use crate::machine::Request;

/// Upper bound on the expected tokens of an answer (`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`).
const MOST_NEW_TOKENS: u64 = 4096;

/// The chunk of a prompt that was decided last, and its position in the prompt.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extend {
    /// Leading tokens that have KV before the next chunk (`prefix_len`).
    pub prefix: u64,
    /// The end of the last chunk (`extend_end`).
    pub end: u64,
    /// Tokens known when the chunk was decided (`full_untruncated_fill_ids`).
    pub filled: u64,
    /// Steps in flight that compute a chunk of the prompt other than the last.
    pub middle_chunks: u64,
    /// Tokens of the step that is being composed.
    pub chunk: u64,
}

/// The scheduler's state of a request. Counts are tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Sequence {
    pub request: u32,
    pub prompt: u64,
    /// The smallest is served first.
    pub priority: i64,
    /// Its number among the entries in the queue, of which it may have several.
    pub entered: u64,
    /// Upper bound on the tokens of its answer: as many as it will have.
    pub max_new: u64,
    /// Generated tokens of its answer.
    pub out: u64,
    /// Result of its last look-up; it is locked once the request has KV of its own.
    pub found: Prefix,
    pub asked: Asked,
    pub extend: Extend,
    /// Tokens with KV, including those of steps in flight (`kv_committed_len`).
    pub committed: u64,
    /// Steps in flight that it is part of.
    pub steps_in_flight: u64,
    /// True if a step in flight loads its KV.
    pub is_loading: bool,
    /// True if it lost its KV and has not been admitted again.
    pub is_retracted: bool,
    pub is_finished: bool,
    /// True if it has KV of its own.
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
            priority: arrival.priority,
            max_new: arrival.output_tokens.max(1),
            ..Self::default()
        }
    }

    /// Known tokens: the prompt and the generated part of the answer.
    pub fn known(&self) -> u64 {
        self.prompt + self.out
    }

    /// Cached tokens that may be used: the last known token is always computed.
    pub fn matched(&self) -> u64 {
        let tokens = self.found.tokens + self.found.host_tokens;
        tokens.min(self.known() - 1)
    }

    /// Expected tokens still to be generated.
    pub fn to_come(&self) -> u64 {
        (self.max_new - self.out).min(MOST_NEW_TOKENS)
    }

    /// Tokens reserved for a request once its prompt is computed whole.
    pub fn whole_answer(&self) -> u64 {
        self.max_new.min(MOST_NEW_TOKENS)
    }

    /// True if the step that is being composed computes a part of its prompt.
    pub fn is_chosen(&self) -> bool {
        self.extend.chunk > 0
    }

    /// True if the next token is its last.
    pub fn ends_next(&self) -> bool {
        self.out + 1 >= self.max_new
    }
}

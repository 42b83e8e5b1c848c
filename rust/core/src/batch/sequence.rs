//! One running sequence: how much KV it has, wants and will have.

use crate::store::LeaseId;

/// A sequence of the batch. Token counts are KV tokens: the last generated token never gets KV.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// The caller's name for it.
    pub id: u32,
    /// What it holds in the store.
    pub lease: LeaseId,
    /// Tokens with KV.
    pub computed: u64,
    /// Tokens to compute before it decodes: the prompt, and what it had generated before a preemption.
    pub prefill_target: u64,
    /// Tokens with KV when it is done: prompt + output − 1.
    pub total: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// GPU blocks it holds or has reserved; tokens that it has room for where room is counted in them.
    pub blocks: u64,
    /// When its last token came; `None` before the first.
    pub last_token_ns: Option<u64>,
    /// Tokens of the current step.
    pub chunk: u64,
    /// Tokens with KV that fill a block which has not been shared yet; 0 before the first look.
    pub next_full_tokens: u64,
}

impl Sequence {
    pub(super) fn prefilling(&self) -> bool {
        self.computed < self.prefill_target
    }

    pub(super) fn wanted_tokens(&self) -> u64 {
        if self.prefilling() {
            self.prefill_target - self.computed
        } else {
            1
        }
    }

    /// Whether its next token needs a block that it does not have.
    pub(super) fn needs_block(&self, block_size_tokens: u64) -> bool {
        self.chunk > 0 && self.computed + self.chunk > self.blocks * block_size_tokens
    }
}

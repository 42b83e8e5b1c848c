//! One running sequence: the KV it has, needs and will have.

use crate::store::LeaseId;

/// A sequence of the batch. Token counts are KV tokens: the last generated token never gets KV.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// The caller's identifier of the sequence.
    pub id: u32,
    /// Its number in the trace.
    pub request: u32,
    /// Its lease in the store.
    pub lease: LeaseId,
    /// Tokens with KV.
    pub computed: u64,
    /// Tokens to compute before it decodes: the prompt and the tokens generated before a preemption.
    pub prefill_target: u64,
    /// Tokens with KV when it has finished: prompt + output − 1.
    pub total: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// GPU blocks it holds or has reserved; tokens, in stores that count capacity in tokens.
    pub blocks: u64,
    /// Time of its last token; `None` before the first.
    pub last_token_ns: Option<u64>,
    /// Tokens of the current step.
    pub chunk: u64,
    /// Tokens with KV that fill the first block not yet shared; 0 before the first commit.
    pub next_full_tokens: u64,
    /// Its position in batch order, set by the batch.
    pub order: u64,
    /// Iteration after which it joined the steady set, set by the batch.
    pub joined_steady: u64,
}

impl Sequence {
    /// True if its last token came at `now_ns`.
    pub(super) fn ends_at(&self, now_ns: u64) -> bool {
        self.computed == self.total && self.last_token_ns == Some(now_ns)
    }

    /// True if the iteration that ended at `now_ns` brought a token, and each of the next ones will.
    pub(super) fn in_step(&self, now_ns: u64) -> bool {
        !self.prefilling() && self.computed < self.total && self.last_token_ns == Some(now_ns)
    }

    pub(super) fn prefilling(&self) -> bool {
        self.computed < self.prefill_target
    }

    /// Tokens that its next step would take, with `drafts` drafted tokens while it decodes.
    pub(super) fn wanted_tokens(&self, drafts: u64) -> u64 {
        if self.prefilling() {
            self.prefill_target - self.computed
        } else if self.last_token_ns.is_some() {
            1 + drafts
        } else {
            1
        }
    }

    /// Drafted tokens of the current step.
    pub(super) fn drafts(&self) -> u64 {
        if self.prefilling() {
            0
        } else {
            self.chunk.saturating_sub(1)
        }
    }

    /// Tokens certain to be accepted that have KV once the current step has ended.
    pub(super) fn sure_tokens(&self) -> u64 {
        self.computed + self.chunk - self.drafts()
    }

    /// Blocks that its next tokens need and it does not have.
    pub(super) fn lacking_blocks(&self, block_size_tokens: u64) -> u64 {
        if self.chunk == 0 {
            return 0;
        }
        (self.computed + self.chunk)
            .div_ceil(block_size_tokens)
            .saturating_sub(self.blocks)
    }
}

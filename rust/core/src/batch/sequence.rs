//! One running sequence: how much KV it has, wants and will have.

use crate::store::LeaseId;

/// A sequence of the batch. Token counts are KV tokens: the last generated token never gets KV.
#[derive(Clone, Debug, Default)]
pub struct Sequence {
    /// The caller's name for it.
    pub id: u32,
    /// Its number in the trace.
    pub request: u32,
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
    /// Its place in batch order, given by the batch.
    pub order: u64,
    /// The iteration after which it decodes in lockstep with others, set by the batch.
    pub joined_steady: u64,
}

impl Sequence {
    /// Whether its last token came at `now_ns`.
    pub(super) fn ends_at(&self, now_ns: u64) -> bool {
        self.computed == self.total && self.last_token_ns == Some(now_ns)
    }

    /// Whether the iteration that ended at `now_ns` brought a token, and the next ones will bring one each.
    pub(super) fn in_step(&self, now_ns: u64) -> bool {
        !self.prefilling() && self.computed < self.total && self.last_token_ns == Some(now_ns)
    }

    pub(super) fn prefilling(&self) -> bool {
        self.computed < self.prefill_target
    }

    /// Tokens that its next step would take, with so many drafted while it decodes.
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

    /// Tokens known to be right that have KV once the current step has ended.
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

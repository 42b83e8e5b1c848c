//! Accounting of one prompt, front to back: each missed token is counted under one cause.

use super::{MissCause, TokensByCause};

/// Misses of one prompt, counted from front to back so far.
///
/// ```
/// use kvsim_core::causes::{prompt::PromptMisses, MissCause};
/// let mut misses = PromptMisses::after(32); // 32 tokens hit
/// misses.until(48, MissCause::Evicted);
/// let tokens = misses.end(50);
/// assert_eq!(tokens[MissCause::Evicted as usize], 16);
/// assert_eq!(tokens[MissCause::Shorter as usize], 2);
/// assert_eq!(tokens.iter().sum::<u64>(), 50 - 32);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PromptMisses {
    reported: u64,
    tokens: TokensByCause,
    new: Option<MissCause>,
}

impl PromptMisses {
    /// A prompt whose tokens behind the hit are not counted yet.
    pub fn after(hit_tokens: u64) -> Self {
        Self {
            reported: hit_tokens,
            tokens: TokensByCause::default(),
            new: None,
        }
    }

    /// Counts the tokens up to `end` that have no cause yet under `cause`.
    pub fn until(&mut self, end: u64, cause: MissCause) {
        self.tokens[cause as usize] += end.saturating_sub(self.reported);
        self.reported = self.reported.max(end);
    }

    /// Returns the cause of a block that no prompt has shown. The first such block decides the cause of all
    /// blocks behind it. `others_continued` returns true if a request had diverged after the block before the
    /// first.
    pub fn new_block(&mut self, others_continued: impl FnOnce() -> bool) -> MissCause {
        *self.new.get_or_insert_with(|| {
            if others_continued() {
                MissCause::Diverged
            } else {
                MissCause::NeverSeen
            }
        })
    }

    /// Finishes the prompt: its remaining tokens fill no block that may hit.
    pub fn end(mut self, input_tokens: u64) -> TokensByCause {
        self.until(input_tokens, MissCause::Shorter);
        self.tokens
    }
}

//! One prompt, told front to back: each missed token goes under one cause.

use super::{MissCause, TokensByCause};

/// The misses of one prompt as far as they have been told.
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
    /// Nothing is told behind the tokens that hit.
    pub fn after(hit_tokens: u64) -> Self {
        Self {
            reported: hit_tokens,
            tokens: TokensByCause::default(),
            new: None,
        }
    }

    /// Puts the tokens up to `end`, as far as they are not told yet, under a cause.
    pub fn until(&mut self, end: u64, cause: MissCause) {
        self.tokens[cause as usize] += end.saturating_sub(self.reported);
        self.reported = self.reported.max(end);
    }

    /// The cause of a block that no prompt has shown: the first such block decides it for all behind it.
    /// `others_continued` tells whether a request had gone on, another way, after the block before the first.
    pub fn new_block(&mut self, others_continued: impl FnOnce() -> bool) -> MissCause {
        *self.new.get_or_insert_with(|| {
            if others_continued() {
                MissCause::Diverged
            } else {
                MissCause::NeverSeen
            }
        })
    }

    /// Ends the prompt: what is left of it fills no block that may hit.
    pub fn end(mut self, input_tokens: u64) -> TokensByCause {
        self.until(input_tokens, MissCause::Shorter);
        self.tokens
    }
}

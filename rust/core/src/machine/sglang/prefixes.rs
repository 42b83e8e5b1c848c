//! A request's prefixes in the tree; a scheduler without a cache finds and keeps none.

use super::sequence::Sequence;
use super::settings::SglangConfig;
use crate::engines::radix_store::{Prefix, RadixStore};
use crate::store::Answer;

impl SglangConfig {
    /// The known prefix of a request's first `tokens` tokens.
    pub(super) fn find(&self, store: &mut RadixStore, s: &Sequence, tokens: u64) -> Prefix {
        if self.cache_enabled {
            store.find(s.request, tokens)
        } else {
            Prefix::default()
        }
    }

    /// Inserts the computed part of a prompt.
    pub(super) fn check_in(&self, store: &mut RadixStore, s: &Sequence) -> Answer<()> {
        if self.cache_enabled {
            store.check_in_tokens(s.request, s.extend.end.min(s.extend.filled))?;
        }
        Ok(())
    }

    /// Ends a request, whose tokens with KV are kept.
    pub(super) fn finish(&self, store: &mut RadixStore, s: &Sequence) -> Answer<()> {
        if self.cache_enabled {
            store.finish(s.request, s.committed.min(s.known()))
        } else {
            store.retract(s.request);
            Ok(())
        }
    }
}

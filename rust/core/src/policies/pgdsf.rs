//! Prefix-aware greedy dual size frequency.
//!
//! What it does: As gdsf, with uses times the cost of computing the block again: 1 + its mean context over the
//! blocks of the setting, at which attention costs as much as all else (RAGCache measures a profile instead).
//!
//! Why: A block late in a long prompt costs more attention to compute again than an early one.
//!
//! Example: Of 2 blocks, `a a a b c d e` evicts `b c a`: with equal costs it decides as `gdsf`.
//!
//! Source: Jin et al., RAGCache, 2024.

use super::leaf::{ordered, Facts, Key, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("pgdsf", |settings| {
    Box::new(Pgdsf::new(settings.attention_blocks))
});

/// The cost of a block is the prefill time per uncached token of the request that computed it.
///
/// RAGCache interpolates a measured profile T(cached, new) / new. Without a machine the profile is the
/// arithmetic of a transformer: a token costs 1 plus its context over `attention_blocks`, so `new` blocks
/// after `cached` ones cost 1 + (cached + new / 2) / attention_blocks each.
#[derive(Debug, Clone, Copy)]
pub struct Pgdsf {
    age: f64,
    attention_blocks: f64,
}

impl Pgdsf {
    /// No victim yet; `attention_blocks` is positive and finite.
    pub fn new(attention_blocks: f64) -> Self {
        Self {
            age: 0.0,
            attention_blocks,
        }
    }
}

impl LeafPolicy for Pgdsf {
    fn key(&self, facts: &Facts) -> Key {
        let context = f64::from(facts.found_blocks) + f64::from(facts.computed_blocks) / 2.0;
        let cost = 1.0 + context / self.attention_blocks;
        Key::with_use(ordered(self.age + facts.hits as f64 * cost), facts)
    }

    fn on_evict(&mut self, key: Key) {
        self.age = self.age.max(f64::from_bits(key.value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four blocks after eight cached ones cost 1 + (8 + 2) / 4 each; four first ones 1 + 2 / 4.
    #[test]
    fn a_block_late_in_a_prompt_is_worth_more() {
        let policy = Pgdsf::new(4.0);
        let worth = |found_blocks| {
            let facts = Facts {
                hits: 1,
                found_blocks,
                computed_blocks: 4,
                ..Facts::default()
            };
            f64::from_bits(policy.key(&facts).value)
        };
        assert_eq!((worth(0), worth(8)), (1.5, 3.5));
    }
}

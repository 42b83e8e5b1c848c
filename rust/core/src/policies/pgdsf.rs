//! Prefix-aware greedy dual size frequency: age + uses × cost of computing it again (RAGCache, Jin et al. 2024).

use super::leaf::{ordered, Facts, Key, LeafPolicy};

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
        (
            ordered(self.age + facts.hits as f64 * cost),
            facts.last_access,
        )
    }

    fn on_evict(&mut self, key: Key) {
        self.age = self.age.max(f64::from_bits(key.0));
    }
}

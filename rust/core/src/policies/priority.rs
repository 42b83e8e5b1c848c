//! Priorities by token range with durations, least recent first within a priority.
//!
//! What it does: A block has the priority, from 0 to 100, of the first token range that contains it, and 35 if none
//! does or once the range's duration has passed since its last use. Evict the smallest priority, on a tie the least
//! recent.
//!
//! Why: An operator knows what returns: system prompts at 90 outlive what users send once.
//!
//! Example: Of 2 blocks, `a0 b2 c2 d2` evicts `b c`: with 90 for the first two tokens of a prompt a stays; numbers
//! are depths.
//!
//! Source: TensorRT-LLM, KvCacheRetentionConfig.

use super::leaf::{Facts, Key, Lapse, LeafPolicy};
use super::NativePolicy;

/// The row of this policy.
pub const POLICY: NativePolicy = NativePolicy::ranked("priority", |settings| {
    Box::new(Priority::new(&settings.ranges))
});

/// The priority of a block outside all ranges, or after its duration (TensorRT-LLM's default).
pub const DEFAULT_PRIORITY: u8 = 35;

/// Blocks `[from, to)` of every prompt have this priority (0 is evicted first, 100 last) for a time after
/// each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First block, counted from 0.
    pub from: u32,
    /// The block after the last.
    pub to: u32,
    /// From 0 to 100.
    pub priority: u8,
    /// Duration after each use; None: unlimited.
    pub duration_ns: Option<i64>,
}

/// Priorities by depth; the first range that contains the block counts.
#[derive(Debug, Clone)]
pub struct Priority {
    ranges: Vec<Range>,
    boundaries: Vec<u32>,
}

impl Priority {
    /// A policy with these ranges, tried first to last.
    pub fn new(ranges: &[Range]) -> Self {
        let mut boundaries: Vec<u32> = ranges.iter().flat_map(|r| [r.from, r.to]).collect();
        boundaries.sort_unstable();
        boundaries.dedup();
        Self {
            ranges: ranges.to_vec(),
            boundaries,
        }
    }

    fn range(&self, depth: u32) -> Option<&Range> {
        self.ranges.iter().find(|r| r.from <= depth && depth < r.to)
    }
}

impl LeafPolicy for Priority {
    fn key(&self, facts: &Facts) -> Key {
        let priority = self
            .range(facts.depth)
            .map_or(DEFAULT_PRIORITY, |r| r.priority);
        Key::with_use(u64::from(priority), facts)
    }

    fn lapse(&self, facts: &Facts) -> Lapse {
        match self.range(facts.depth) {
            Some(Range {
                duration_ns: Some(ns),
                ..
            }) => Lapse::Rekey(
                facts.last_access_ns.saturating_add(*ns),
                Key::with_use(u64::from(DEFAULT_PRIORITY), facts),
            ),
            _ => Lapse::Never,
        }
    }

    fn split_at(&self) -> &[u32] {
        &self.boundaries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::worked_examples::settings;

    #[test]
    fn a_run_is_split_where_a_range_begins_or_ends() {
        assert_eq!(Priority::new(&settings().ranges).split_at(), [0, 2]);
    }
}

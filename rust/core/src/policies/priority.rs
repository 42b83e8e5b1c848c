//! Priorities by token range with durations, least recent first within one (TensorRT-LLM's retention config).

use super::leaf::{Facts, Key, Lapse, LeafPolicy};

/// What a block is worth when no range names it, and after its duration (TensorRT-LLM's default).
pub const DEFAULT_PRIORITY: u8 = 35;

/// Blocks `[from, to)` of every prompt have this priority (0 goes first, 100 last) for a time after each use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub from: u32,
    pub to: u32,
    pub priority: u8,
    /// None: for good.
    pub duration_ns: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct Priority {
    ranges: Vec<Range>,
    cuts: Vec<u32>,
}

impl Priority {
    pub fn new(ranges: &[Range]) -> Self {
        let mut cuts: Vec<u32> = ranges.iter().flat_map(|r| [r.from, r.to]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        Self {
            ranges: ranges.to_vec(),
            cuts,
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
        (u64::from(priority), facts.last_access)
    }

    fn lapse(&self, facts: &Facts) -> Lapse {
        match self.range(facts.depth) {
            Some(Range {
                duration_ns: Some(ns),
                ..
            }) => Lapse::Rekey(
                facts.last_access_ns.saturating_add(*ns),
                (u64::from(DEFAULT_PRIORITY), facts.last_access),
            ),
            _ => Lapse::Never,
        }
    }

    fn cuts(&self) -> &[u32] {
        &self.cuts
    }
}

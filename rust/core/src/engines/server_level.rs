//! A level of LMCache's server (0.5.7, `v1/distributed`): memory (L1) or the storage below it (L2).
//!
//! A loop wakes at whole seconds and, at 80 % or more, drops a fifth of the chunks.

use super::l1_order::{L1Order, L1Policy};
use crate::convert::{fit, whole};

pub(super) const SECOND_NS: u64 = 1_000_000_000;
/// `--eviction-trigger-watermark`.
const WATERMARK: f64 = 0.8;
/// `--eviction-ratio`.
const RATIO: f64 = 0.2;

/// Chunks of a level, and the next second at which its loop wakes.
#[derive(Debug)]
pub struct ServerLevel {
    pub(super) order: L1Order,
    pub(super) capacity: usize,
    next_ns: u64,
}

impl ServerLevel {
    /// An empty level of `capacity` chunks, whose loop starts at 0.
    pub fn new(policy: L1Policy, capacity: usize) -> Self {
        Self {
            order: L1Order::new(policy),
            capacity,
            next_ns: SECOND_NS,
        }
    }

    /// Lets the loop wake at every whole second up to a time. Returns the keys that each pass dropped, with its time.
    pub fn run_until(
        &mut self,
        now_ns: u64,
        is_locked: impl Fn(u64) -> bool,
    ) -> Vec<(u64, Vec<u64>)> {
        let mut passes = Vec::new();
        while self.next_ns <= now_ns {
            let tracked = self.order.len();
            let mut dropped = Vec::new();
            if tracked as f64 / self.capacity as f64 >= WATERMARK {
                let count = fit::<usize>(whole(tracked as f64 * RATIO)).max(1);
                dropped = self.order.evict(count, &is_locked);
            }
            if dropped.is_empty() {
                // nothing is written or unlocked before `now_ns`, so no later second drops more
                self.next_ns += (now_ns - self.next_ns) / SECOND_NS * SECOND_NS;
            } else {
                passes.push((self.next_ns, dropped));
            }
            self.next_ns = self.next_ns.saturating_add(SECOND_NS);
        }
        passes
    }

    /// Returns the free chunks.
    pub fn spare(&self) -> usize {
        self.capacity - self.order.len()
    }

    /// Keeps the absent ones of some keys, until the level is full. Returns those that are kept now.
    pub fn keep(&mut self, keys: &[u64]) -> Vec<u64> {
        let absent = keys.iter().copied().filter(|&k| !self.order.contains(k));
        let kept: Vec<u64> = absent.take(self.spare()).collect();
        self.order.store(&kept);
        kept
    }
}

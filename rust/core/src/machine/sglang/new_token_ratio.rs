//! The share of an answer that is reserved at an admission: it falls with every decode step, and a retraction resets
//! it (`scheduler_components/new_token_ratio_tracker.py`).

/// Tokens of an answer that a retraction reserves for each request that continues.
pub(super) const RETRACT_DECODE_STEPS: u64 = 20;
/// `SGLANG_INIT_NEW_TOKEN_RATIO`, `_MIN_NEW_TOKEN_RATIO_FACTOR` and `_NEW_TOKEN_RATIO_DECAY_STEPS`.
const FIRST: f64 = 0.7;
const LEAST_FACTOR: f64 = 0.14;
const DECAY_STEPS: f64 = 600.0;

/// The share, its decay per decode step and its lower bound.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewTokenRatio {
    pub current: f64,
    first: f64,
    least: f64,
    decay: f64,
}

impl NewTokenRatio {
    pub fn new(conservativeness: f64) -> Self {
        let first = (FIRST * conservativeness).min(1.0);
        let least = (first * LEAST_FACTOR).min(1.0);
        Self {
            current: first,
            first,
            least,
            decay: (first - least) / DECAY_STEPS,
        }
    }

    /// Records a decode step without a retraction.
    pub fn decays(&mut self) {
        self.current = (self.current - self.decay).max(self.least);
    }

    /// Records a retraction, after which `requests` requests continue, with `out` generated tokens of `answers` in
    /// total.
    pub fn retracted(&mut self, requests: u64, out: u64, answers: u64) {
        let decoded = out + RETRACT_DECODE_STEPS * requests;
        self.current = (decoded as f64 / (answers + 1) as f64).min(1.0);
    }

    /// Resets the share when there is no work left.
    pub fn reset(&mut self) {
        self.current = self.first;
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retraction_reserves_generated_tokens_and_twenty_for_each_request() {
        let share = |requests, out, answers| {
            let mut ratio = NewTokenRatio::new(1.0);
            ratio.retracted(requests, out, answers);
            ratio.current
        };
        assert_eq!(share(2, 9, 97), 49.0 / 98.0);
        assert_eq!(share(2, 9, 49), 49.0 / 50.0);
        assert_eq!([share(2, 9, 48), share(2, 10, 48)], [1.0, 1.0]);
    }

    #[test]
    fn six_hundred_steps_lower_it_to_its_bound() {
        let mut ratio = NewTokenRatio::new(1.0);
        (0..599).for_each(|_| ratio.decays());
        assert!(ratio.current > 0.0985);
        (0..9).for_each(|_| ratio.decays());
        assert_eq!(ratio.current, 0.7 * 0.14);
        ratio.reset();
        assert_eq!(ratio.current, 0.7);
        assert_eq!(NewTokenRatio::new(2.0).current, 1.0);
    }
}

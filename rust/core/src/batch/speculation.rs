//! Speculative decoding: a decode step verifies drafted tokens, and brings one token more than it accepts.
//!
//! Acceptance is a function of the request and its number of computed tokens, so it does not depend on the
//! batching of steps.

/// Settings of a batch for drafted tokens.
#[derive(Clone, Debug, Default)]
pub struct Speculation {
    /// By position, the probability that drafts up to it are accepted, in units of 2^-64; never rising.
    pub thresholds: Vec<u64>,
    /// Seed that makes the draws of one run differ from those of another.
    pub key: u64,
    /// Time that drafting adds to a step.
    pub draft_ns: u64,
}

/// Counts of drafted and accepted tokens so far.
#[derive(Clone, Debug, Default)]
pub struct Accepted {
    /// Decode steps of a sequence with drafts.
    pub steps: u64,
    /// Tokens drafted.
    pub drafted: u64,
    /// Accepted drafts by position.
    pub by_position: Vec<u64>,
}

impl Speculation {
    /// Tokens drafted at a time.
    pub fn tokens(&self) -> u64 {
        self.thresholds.len() as u64
    }

    /// Number of the `drafted` tokens that are accepted for a request with KV of `computed` tokens.
    ///
    /// ```
    /// use kvsim_core::batch::Speculation;
    /// let all = Speculation { thresholds: vec![u64::MAX; 3], ..Speculation::default() };
    /// assert_eq!((all.accepted(7, 100, 3), all.accepted(7, 100, 2)), (3, 2));
    /// let none = Speculation { thresholds: vec![0; 3], ..Speculation::default() };
    /// assert_eq!(none.accepted(7, 100, 3), 0);
    /// ```
    pub fn accepted(&self, request: u32, computed: u64, drafted: u64) -> u64 {
        let drawn = mixed(
            self.key
                .wrapping_add((u64::from(request) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
                .wrapping_add((computed + 1).wrapping_mul(0xD1B5_4A32_D192_ED03)),
        );
        let accepted = self.thresholds.iter().filter(|&&t| drawn < t).count() as u64;
        accepted.min(drafted)
    }
}

impl Accepted {
    /// Counts the drafts of one sequence in one step.
    pub fn count(&mut self, drafted: u64, accepted: u64) {
        self.steps += 1;
        self.drafted += drafted;
        if self.by_position.len() < drafted as usize {
            self.by_position.resize(drafted as usize, 0);
        }
        for at_position in &mut self.by_position[..accepted as usize] {
            *at_position += 1;
        }
    }
}

/// The final mixing of splitmix64: every bit of the result depends on every bit of `x`.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

//! NVIDIA Dynamo's `dynamo-two-tier-cost-fn`: load if it is uneven, else the longest prefix if it is long enough.
//!
//! Source: `lib/router-plugins/builtin/src/two_tier_cost_fn.rs` of ai-dynamo/dynamo at 0c3850ca, its adaptive mode at
//! 13c11ee8. Of equal machines the first wins; the source leaves the order open.

use super::gateway::{cheapest, GatewayRule, Seen};

/// Thresholds, each compared strictly.
#[derive(Clone, Copy, Debug)]
pub struct TwoTier {
    /// Difference of requests above which loads are uneven, if they also differ by the factor.
    pub balance_abs: u64,
    /// Factor between most and fewest requests.
    pub balance_rel: f64,
    /// Share of the prompt's blocks above which the longest prefix is followed.
    pub cache: f64,
}

impl GatewayRule for TwoTier {
    fn equal(&mut self, seen: &Seen<'_>) -> Vec<usize> {
        let (least, most) = seen.least_and_most();
        let uneven =
            most - least > self.balance_abs && most as f64 > self.balance_rel * least as f64;
        let longest = (0..seen.gpu_blocks.len()).max_by_key(|&machine| seen.gpu_blocks[machine]);
        let chosen = match longest {
            Some(holder) if !uneven && seen.share(holder) > self.cache => {
                seen.least_loaded(|machine| seen.gpu_blocks[machine] == seen.gpu_blocks[holder])
            }
            _ => seen.least_loaded(|_| true),
        };
        chosen.into_iter().collect()
    }
}

/// The adaptive mode: cache and load weighed by a sigmoid of the imbalance, at most once an interval.
#[derive(Clone, Copy, Debug)]
pub struct TwoTierAdaptive {
    interval_ns: u64,
    load_scale: f64,
    /// Time of the last update.
    updated_ns: Option<u64>,
    weight: f64,
}

impl TwoTierAdaptive {
    /// The rule before its first choice, which updates it.
    pub fn new(interval_ns: u64, load_scale: f64) -> Self {
        Self {
            interval_ns,
            load_scale,
            updated_ns: None,
            weight: 0.0,
        }
    }
}

impl GatewayRule for TwoTierAdaptive {
    fn equal(&mut self, seen: &Seen<'_>) -> Vec<usize> {
        if is_due(&mut self.updated_ns, seen.now_ns, self.interval_ns) {
            let (least, most) = seen.least_and_most();
            let (least, most) = (least as f64, most as f64);
            let imbalance = (most - least) / (most + self.load_scale);
            let pressure = least / (least + self.load_scale);
            let rise = 1.0 / (1.0 + (-10.0 * (imbalance - 0.5)).exp());
            self.weight = 0.1 + rise * (0.9 - pressure * (0.9 - 0.5) - 0.1);
        }
        let costs = seen.weighed(self.weight, self.load_scale);
        cheapest(&costs).into_iter().take(1).collect()
    }
}

/// True, and noted, if nothing was updated for an interval; intervals without a choice are not made up for.
pub(super) fn is_due(updated_ns: &mut Option<u64>, now_ns: u64, interval_ns: u64) -> bool {
    let due = updated_ns.is_none_or(|last| now_ns.saturating_sub(last) >= interval_ns);
    if due {
        *updated_ns = Some(now_ns);
    }
    due
}

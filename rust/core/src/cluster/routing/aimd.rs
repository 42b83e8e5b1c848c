//! Cache and load weighed by a controller of the load's imbalance: additive increase, multiplicative decrease.
//!
//! Source: `examples/router/custom-policy-example/adaptive/src/controller.rs` of ai-dynamo/dynamo at 2343b33d (pull
//! request 14531, closed), with its defaults.

use super::gateway::{cheapest, GatewayRule, Seen};
use super::two_tier::is_due;

const SMOOTHING: f64 = 0.2;
const MAX_STEP: f64 = 0.1;
const LEAST_WEIGHT: f64 = 0.1;
const MOST_WEIGHT: f64 = 0.9;
/// Most weight of load if all machines are busy.
const MOST_UNDER_PRESSURE: f64 = 0.5;
const MIDPOINT: f64 = 0.35;
const SLOPE: f64 = 8.0;

/// The controller and its state.
#[derive(Clone, Copy, Debug)]
pub struct Aimd {
    interval_ns: u64,
    load_scale: f64,
    /// True: the target is a sigmoid of the imbalance.
    sigmoid: bool,
    updated_ns: Option<u64>,
    weight: f64,
    /// Smoothed imbalance and pressure.
    imbalance: f64,
    pressure: f64,
}

impl Aimd {
    /// The controller before its first choice.
    pub fn new(interval_ns: u64, load_scale: f64, sigmoid: bool) -> Self {
        Self {
            interval_ns,
            load_scale,
            sigmoid,
            updated_ns: None,
            weight: LEAST_WEIGHT,
            imbalance: 0.0,
            pressure: 0.0,
        }
    }

    fn update(&mut self, seen: &Seen<'_>) {
        let (least, most) = seen.least_and_most();
        let (least, most) = (least as f64, most as f64);
        let damped = most / (most + self.load_scale);
        self.imbalance += SMOOTHING * (variation(seen.active) * damped - self.imbalance);
        self.pressure += SMOOTHING * (least / (least + self.load_scale) - self.pressure);
        let most_weight = MOST_WEIGHT - self.pressure * (MOST_WEIGHT - MOST_UNDER_PRESSURE);
        let above = self.weight - LEAST_WEIGHT;
        let target = if self.sigmoid {
            let rise = |imbalance: f64| 1.0 / (1.0 + (-SLOPE * (imbalance - MIDPOINT)).exp());
            let part = (rise(self.imbalance) - rise(0.0)) / (rise(1.0) - rise(0.0));
            LEAST_WEIGHT + part * (most_weight - LEAST_WEIGHT)
        } else if self.imbalance > MIDPOINT {
            self.weight + MAX_STEP
        } else if self.imbalance < MIDPOINT * 0.5 {
            LEAST_WEIGHT + 0.9 * above
        } else {
            self.weight
        };
        let target = target.clamp(LEAST_WEIGHT, most_weight);
        self.weight += (target - self.weight).clamp(-MAX_STEP, MAX_STEP);
    }
}

impl GatewayRule for Aimd {
    fn equal(&mut self, seen: &Seen<'_>) -> Vec<usize> {
        if is_due(&mut self.updated_ns, seen.now_ns, self.interval_ns) {
            self.update(seen);
        }
        cheapest(&seen.weighed(self.weight, self.load_scale))
    }
}

/// Coefficient of variation of the machines' requests, by its largest possible value; 0 without load.
fn variation(active: &[u64]) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for &requests in active {
        count += 1.0;
        let off = requests as f64 - mean;
        mean += off / count;
        squares += off * (requests as f64 - mean);
    }
    if count <= 1.0 || mean <= 0.0 {
        return 0.0;
    }
    ((squares / count).sqrt() / mean / (count - 1.0).sqrt()).clamp(0.0, 1.0)
}

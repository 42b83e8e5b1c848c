//! The rate demanded of a channel (the rules of `spec/channels.py`).

use crate::convert::fit;

const NS_PER_S: u64 = 1_000_000_000;

/// Samples of the rate, in bytes per second, that a channel would have needed.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    /// One sample per step that used KV while it arrived: its bytes over the step's own compute time.
    pub hiding: Vec<i64>,
    offered: Vec<i64>,
    /// The current second, and the sum of its bytes.
    second: Option<(u64, u64)>,
}

impl Demand {
    /// Records a job that is queued now; jobs come in time order.
    pub fn ask(&mut self, size_bytes: u64, now_ns: u64) {
        let second = now_ns / NS_PER_S;
        match &mut self.second {
            Some((current, sum)) if *current == second => *sum += size_bytes,
            other => {
                if let Some((_, sum)) = other.replace((second, size_bytes)) {
                    self.offered.push(fit::<i64>(sum));
                }
            }
        }
    }

    /// Records the bytes that one step loads over the channel while it computes.
    pub fn hide(&mut self, size_bytes: u64, compute_ns: u64) {
        let bytes = u128::from(size_bytes) * u128::from(NS_PER_S);
        let rate = bytes.div_ceil(u128::from(compute_ns.max(1)));
        self.hiding.push(i64::try_from(rate).unwrap_or(i64::MAX));
    }

    /// Returns one sample per second in which bytes were sent: their sum; the current second included.
    pub fn offered(&self) -> Vec<i64> {
        let current = self.second.map(|(_, sum)| fit::<i64>(sum));
        self.offered.iter().copied().chain(current).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Demand;

    #[test]
    fn a_second_sums_its_bytes_and_a_step_divides_them_by_its_time() {
        let mut demand = Demand::default();
        assert_eq!(demand.offered(), []);
        demand.ask(5, 10);
        demand.ask(7, 999_999_999);
        demand.ask(1, 3_000_000_000);
        assert_eq!(demand.offered(), [12, 1]);
        demand.hide(10, 3);
        demand.hide(10, 0);
        assert_eq!(demand.hiding, [3_333_333_334, 10_000_000_000]);
    }
}

//! A step function of capacity, such as the hits of LRU, exact at every capacity.

use std::collections::BTreeMap;

const PAGE: usize = 64;
/// A corner counts as the knee only this far above the line, or with half of the sum.
const LEAST_EARLY_KNEE: f64 = 0.1;

/// Amounts by the smallest capacity that gains them; the value at a capacity is the sum of the amounts up to it.
///
/// Memory: 4 bytes a capacity at which the amount changes, in pages of 64.
#[derive(Default)]
pub struct HitSteps {
    /// Change of the amount from one capacity to the next.
    pages: Vec<Option<Box<[i32; PAGE]>>>,
    /// Changes beyond 32 bits.
    beyond: BTreeMap<u64, i64>,
}

/// A change of the slope: the capacity before it, the value there, the slope after it.
struct Corner {
    capacity: u64,
    value: i64,
    slope: i64,
}

impl HitSteps {
    /// Adds `weight` at each of `count` capacities from `start` on.
    pub fn add(&mut self, start: u64, count: u64, weight: i64) {
        if count > 0 && weight != 0 {
            self.change(start, weight);
            self.change(start + count, -weight);
        }
    }

    fn change(&mut self, capacity: u64, by: i64) {
        let (page, at) = (capacity as usize / PAGE, capacity as usize % PAGE);
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        let cell = &mut self.pages[page].get_or_insert_with(|| Box::new([0; PAGE]))[at];
        let sum = i64::from(*cell) + by;
        match i32::try_from(sum) {
            Ok(sum) => *cell = sum,
            Err(_) => {
                *cell = 0;
                *self.beyond.entry(capacity).or_default() += sum;
            }
        }
    }

    /// Calls `visit` with every corner, ascending; it ends the walk by returning false.
    fn walk(&self, mut visit: impl FnMut(Corner) -> bool) {
        let mut at = Corner {
            capacity: 0,
            value: 0,
            slope: 0,
        };
        let pages = self.pages.iter().enumerate();
        for (k, page) in pages.filter_map(|(k, page)| page.as_ref().map(|p| (k, p))) {
            for (j, &change) in page.iter().enumerate() {
                let capacity = (k * PAGE + j) as u64;
                let beyond = match self.beyond.is_empty() {
                    true => 0,
                    false => self.beyond.get(&capacity).copied().unwrap_or(0),
                };
                let change = i64::from(change) + beyond;
                if change == 0 {
                    continue;
                }
                let before = capacity.saturating_sub(1);
                at.value += at.slope * (before - at.capacity) as i64;
                at.slope += change;
                at.capacity = before;
                if !visit(Corner { ..at }) {
                    return;
                }
            }
        }
    }

    /// The values at capacities in ascending order.
    pub fn at(&self, capacities: &[u64]) -> Vec<i64> {
        let mut out = Vec::with_capacity(capacities.len());
        let (mut from, mut value, mut slope) = (0, 0, 0);
        let mut upto = |end: u64, from: u64, value: i64, slope: i64| {
            while let Some(&c) = capacities.get(out.len()).filter(|&&c| c < end) {
                out.push(value + slope * (c - from) as i64);
            }
            out.len() < capacities.len()
        };
        self.walk(|corner| {
            let more = upto(corner.capacity, from, value, slope);
            (from, value, slope) = (corner.capacity, corner.value, corner.slope);
            more
        });
        upto(u64::MAX, from, value, slope);
        out
    }

    /// The capacities between which the value is a straight line, ascending from 0.
    pub fn corners(&self) -> Vec<u64> {
        let mut out = vec![0];
        self.walk(|corner| {
            if corner.capacity > 0 {
                out.push(corner.capacity);
            }
            true
        });
        out
    }

    /// The smallest capacity with the largest value, and that value.
    pub fn top(&self) -> (u64, i64) {
        let mut last = (0, 0);
        self.walk(|corner| {
            last = (corner.capacity, corner.value);
            true
        });
        last
    }

    /// The smallest capacity whose value is at least `amount`, which the largest value reaches.
    pub fn reaching(&self, amount: f64) -> u64 {
        let (mut from, mut value, mut slope) = (0u64, 0i64, 0i64);
        self.walk(|corner| {
            if corner.value as f64 >= amount {
                return false;
            }
            (from, value, slope) = (corner.capacity, corner.value, corner.slope);
            true
        });
        if value as f64 >= amount || slope == 0 {
            return from;
        }
        let steps = ((amount - value as f64) / slope as f64).ceil() as u64;
        let reached = |steps: u64| (value + slope * steps as i64) as f64 >= amount;
        match steps > 0 && reached(steps - 1) {
            true => from + steps - 1,
            false => from + steps + u64::from(!reached(steps)),
        }
    }

    /// The corner farthest above the straight line from nothing to the top (Kneedle, Satopää et al. 2011).
    ///
    /// A corner close to the line with less than half of the sum is none: where hits come late, the first few are
    /// no knee.
    pub fn knee(&self) -> u64 {
        let (last, top) = self.top();
        let (mut best, mut knee) = (f64::NEG_INFINITY, 0);
        let mut judge = |capacity: u64, value: i64| {
            let share = value as f64 / top as f64;
            let above = share - capacity as f64 / last as f64;
            let early = share < 0.5 && above < LEAST_EARLY_KNEE;
            let above = if early { -1.0 } else { above };
            if above > best {
                (best, knee) = (above, capacity);
            }
        };
        judge(0, 0);
        self.walk(|corner| {
            judge(corner.capacity, corner.value);
            true
        });
        knee
    }
}

#[cfg(test)]
mod tests {
    use super::HitSteps;

    #[test]
    fn ramps_and_jumps_sum_up() {
        let mut steps = HitSteps::default();
        steps.add(3, 4, 1);
        steps.add(5, 1, 10);
        steps.add(1, 1, 1 << 40);
        let every: Vec<u64> = (0..9).collect();
        let one = 1i64 << 40;
        let expected = [
            0,
            one,
            one,
            one + 1,
            one + 2,
            one + 13,
            one + 14,
            one + 14,
            one + 14,
        ];
        assert_eq!(steps.at(&every), expected);
        assert_eq!(steps.corners(), [0, 1, 2, 4, 5, 6]);
        assert_eq!(steps.top(), (6, one + 14));
        for (capacity, &value) in expected.iter().enumerate().take(7).skip(1) {
            let first = expected
                .iter()
                .position(|v| v >= &value)
                .unwrap_or(capacity);
            assert_eq!(steps.reaching(value as f64), first as u64);
        }
    }
}

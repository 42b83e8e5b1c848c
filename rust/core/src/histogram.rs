//! A counted histogram of latencies: 11 significant bits per bucket, so any quantile is within 0.05 %.

/// Bits kept of a value.
const PRECISION: u32 = 11;

/// Counts by bucket, with the exact count, sum and extremes.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    /// Number of values counted.
    pub count: u64,
    /// Sum of the values.
    pub sum: u128,
    /// The smallest value; 0 without values.
    pub min: u64,
    /// The largest value; 0 without values.
    pub max: u64,
}

/// The bucket of a value: exact below 2¹¹, then 1,024 buckets per power of two.
pub fn bucket(value: u64) -> u32 {
    let bits = 64 - value.leading_zeros();
    if bits <= PRECISION {
        return value as u32;
    }
    let shift = bits - PRECISION;
    (shift << (PRECISION - 1)) + (value >> shift) as u32
}

/// The smallest value of a bucket.
pub fn lower_edge(bucket: u32) -> u64 {
    let half = 1 << (PRECISION - 1);
    if bucket < 2 * half {
        return u64::from(bucket);
    }
    let shift = bucket / half - 1;
    u64::from(bucket - shift * half) << shift
}

impl Histogram {
    /// Counts a value `times` times.
    pub fn add(&mut self, value: u64, times: u64) {
        if times == 0 {
            return;
        }
        let index = bucket(value) as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += times;
        self.min = if self.count == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = self.max.max(value);
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
    }

    /// The buckets in use: (lower edge, count), ascending.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let used = self.counts.iter().enumerate().filter(|(_, &c)| c > 0);
        used.map(|(i, &c)| (lower_edge(i as u32), c)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_and_buckets_agree() {
        for value in (0..5000).chain([u64::MAX, 1 << 40, (1 << 40) + 12345]) {
            let edge = lower_edge(bucket(value));
            assert!(
                edge <= value && value - edge <= value / 1024,
                "{value} {edge}"
            );
            assert_eq!(bucket(edge), bucket(value));
        }
    }
}

//! Residuals of a step-time table's linear terms, by two counts: straight lines between measured points.

/// Nanoseconds at each pair of a count and of tokens, interpolated linearly; constant past the borders.
///
/// ```
/// use kvsim_core::residual_grid::ResidualGrid;
///
/// let grid = ResidualGrid::new(vec![1, 3], vec![0, 10], vec![0, 100, 40, 200]).unwrap();
/// assert_eq!(grid.at(1, 5), 50);
/// assert_eq!(grid.at(2, 5), 85);
/// assert_eq!(grid.at(9, 99), 200);
/// assert_eq!(ResidualGrid::default().at(9, 99), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResidualGrid {
    counts: Vec<u64>,
    tokens: Vec<u64>,
    ns: Vec<i64>,
}

impl ResidualGrid {
    /// A grid of `ns`, all tokens of the first count first. None unless both axes ascend with two points or more, and
    /// `ns` has one value for each pair. A grid without points has residual 0.
    pub fn new(counts: Vec<u64>, tokens: Vec<u64>, ns: Vec<i64>) -> Option<Self> {
        let rises = |axis: &[u64]| axis.windows(2).all(|pair| pair[0] < pair[1]);
        let grid = rises(&counts) && rises(&tokens) && counts.len().min(tokens.len()) > 1;
        let none = counts.is_empty() && tokens.is_empty();
        let whole = ns.len() == counts.len() * tokens.len();
        (whole && (grid || none)).then_some(Self { counts, tokens, ns })
    }

    /// The residual in ns, rounded down; two searches.
    pub fn at(&self, count: u64, tokens: u64) -> i64 {
        if self.ns.is_empty() {
            return 0;
        }
        let (row, above, wide) = span(&self.counts, count);
        let (column, right, long) = span(&self.tokens, tokens);
        let line = |row: usize| {
            let ns = &self.ns[row * self.tokens.len() + column..];
            i128::from(ns[0]) * (long - right) + i128::from(ns[1]) * right
        };
        let sum = line(row) * (wide - above) + line(row + 1) * above;
        sum.div_euclid(wide * long) as i64
    }
}

/// The interval of an axis that contains a value: its left end's index, the value's distance from it, and its length.
fn span(axis: &[u64], value: u64) -> (usize, i128, i128) {
    let value = value.clamp(axis[0], axis[axis.len() - 1]);
    let left = axis[1..axis.len() - 1].partition_point(|&end| end <= value);
    let from = |end: u64| i128::from(end) - i128::from(axis[left]);
    (left, from(value), from(axis[left + 1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_join_the_points_and_nothing_lies_past_the_borders() {
        let grid = ResidualGrid::new(vec![2, 4, 8], vec![0, 3], vec![-9, 0, 3, 6, 30, 33]).unwrap();
        let found = [
            (2, 0),
            (2, 1),
            (1, 2),
            (3, 0),
            (3, 1),
            (4, 3),
            (6, 1),
            (8, 9),
        ]
        .map(|(count, tokens)| grid.at(count, tokens));
        assert_eq!(found, [-9, -6, -3, -3, -1, 6, 17, 33]);
    }

    #[test]
    fn a_broken_grid_is_none() {
        let made = |counts: &[u64], tokens: &[u64], ns: usize| {
            ResidualGrid::new(counts.to_vec(), tokens.to_vec(), vec![1; ns]).is_some()
        };
        assert!(made(&[], &[], 0) && made(&[1, 2], &[1, 2], 4));
        assert!(
            !made(&[1, 2], &[1, 2], 3) && !made(&[1, 1], &[1, 2], 4) && !made(&[1], &[1, 2], 2)
        );
        assert!(!made(&[], &[1, 2], 0) && !made(&[1, 2], &[2, 1], 4));
    }
}

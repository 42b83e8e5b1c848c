//! Blocks in recency order: a Fenwick tree over touches that counts the blocks newer than a touch.

use crate::ids::NONE;

/// Blocks by the touch that last reached them.
pub struct Newer {
    tree: Vec<u64>,
    total: u64,
}

impl Newer {
    /// An empty order for touches below `touches`.
    pub fn new(touches: usize) -> Self {
        Self {
            tree: vec![0; touches + 1],
            total: 0,
        }
    }

    /// Number of touches that fit.
    pub fn touches(&self) -> usize {
        self.tree.len() - 1
    }

    /// Adds blocks that a touch reached.
    pub fn add(&mut self, touch: u32, blocks: u64) {
        self.total += blocks;
        let mut i = touch as usize + 1;
        while i < self.tree.len() {
            self.tree[i] += blocks;
            i += i & i.wrapping_neg();
        }
    }

    /// Removes blocks that a later touch reaches.
    pub fn remove(&mut self, touch: u32, blocks: u64) {
        self.total -= blocks;
        let mut i = touch as usize + 1;
        while i < self.tree.len() {
            self.tree[i] -= blocks;
            i += i & i.wrapping_neg();
        }
    }

    /// Blocks that were touched after `touch`.
    pub fn after(&self, touch: u32) -> u64 {
        let (mut i, mut sum) = (touch as usize + 1, 0);
        while i > 0 {
            sum += self.tree[i];
            i -= i & i.wrapping_neg();
        }
        self.total - sum
    }

    /// Numbers the touches that have blocks anew, with as many free numbers. Returns the new number of each old
    /// touch (`NONE` for a touch without blocks) and the next touch.
    pub fn renumber(&mut self) -> (Vec<u32>, u32) {
        let mut counts = std::mem::take(&mut self.tree);
        for i in (1..counts.len()).rev() {
            let above = i + (i & i.wrapping_neg());
            if above < counts.len() {
                counts[above] -= counts[i];
            }
        }
        let mut next = 0u32;
        let mut numbers = vec![NONE; counts.len() - 1];
        for old in 1..counts.len() {
            if counts[old] > 0 {
                numbers[old - 1] = next;
                next += 1;
                counts[next as usize] = counts[old];
            }
        }
        counts.truncate(next as usize + 1);
        counts.resize((2 * next as usize).max(LEAST) + 1, 0);
        for i in 1..counts.len() {
            let above = i + (i & i.wrapping_neg());
            if above < counts.len() {
                counts[above] += counts[i];
            }
        }
        self.tree = counts;
        (numbers, next)
    }
}

/// Least number of touches after a renumbering.
pub const LEAST: usize = 1 << 12;

/// The distance of each reference, −1 at a block's first. Ids are dense, and fewer than 2³² references. Cost: n log n.
pub fn distances(ids: &[u32]) -> Vec<i64> {
    let distinct = ids.iter().max().map_or(0, |&m| m as usize + 1);
    let mut last = vec![NONE; distinct];
    let mut newer = Newer::new(ids.len());
    let distance = |(id, now): (&u32, u32)| {
        let before = std::mem::replace(&mut last[*id as usize], now);
        let found = (before != NONE).then(|| {
            let blocks = newer.after(before) as i64;
            newer.remove(before, 1);
            blocks
        });
        newer.add(now, 1);
        found.unwrap_or(-1)
    };
    ids.iter().zip(0..).map(distance).collect()
}

#[cfg(test)]
mod tests {
    use super::distances;

    #[test]
    fn distances_count_distinct_blocks_between() {
        assert_eq!(distances(&[0, 1, 1, 2, 0, 1]), [-1, -1, 0, -1, 2, 2]);
        assert_eq!(distances(&[]), []);
    }
}

//! Reuse distances: the number of distinct blocks referenced between two references of a block.

/// The distance of each reference, −1 at a block's first. Ids are dense. Cost: n log n with one Fenwick tree.
pub fn distances(ids: &[u32]) -> Vec<i64> {
    let distinct = ids.iter().max().map_or(0, |&m| m as usize + 1);
    let mut last = vec![usize::MAX; distinct];
    let mut tree = vec![0i32; ids.len() + 1]; // 1 at the last position of each block so far
    let add = |mut at: usize, by: i32, tree: &mut [i32]| {
        at += 1;
        while at < tree.len() {
            tree[at] += by;
            at += at & at.wrapping_neg();
        }
    };
    let upto = |mut at: usize, tree: &[i32]| {
        let mut sum = 0i64;
        while at > 0 {
            sum += i64::from(tree[at]);
            at &= at - 1;
        }
        sum
    };
    let mut out = Vec::with_capacity(ids.len());
    let mut live = 0i64;
    for (now, &id) in ids.iter().enumerate() {
        let before = std::mem::replace(&mut last[id as usize], now);
        if before == usize::MAX {
            out.push(-1);
            live += 1;
        } else {
            out.push(live - upto(before + 1, &tree));
            add(before, -1, &mut tree);
        }
        add(now, 1, &mut tree);
    }
    out
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

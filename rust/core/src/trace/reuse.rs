//! Reuse of ids: the blocks that an unbounded cache finds.

/// The rows of a trace, and what each leaves in an unbounded cache.
pub struct Left<'a> {
    /// Dense ids of all rows.
    pub ids: &'a [u32],
    /// Row r has `ids[offsets[r]..offsets[r + 1]]`.
    pub offsets: &'a [i64],
    /// Prompt tokens of each row.
    pub input_tokens: &'a [i64],
    /// The row whose first ids each row leaves.
    pub source: &'a [i64],
    /// Tokens of those ids that it leaves, in whole blocks.
    pub left_tokens: &'a [i64],
}

impl Left<'_> {
    fn row(&self, r: usize) -> &[u32] {
        &self.ids[self.offsets[r] as usize..self.offsets[r + 1] as usize]
    }

    /// The leading blocks of `block` tokens of each row that rows before it left; an id names `size` tokens. Cost: one
    /// pass over the ids of prompts and of what they leave, 4 bytes a distinct id.
    pub fn found_blocks(&self, size: i64, block: i64) -> Vec<i64> {
        let distinct = self.ids.iter().max().map_or(0, |&most| most as usize + 1);
        // the most leading blocks of each id that a row so far left
        let mut left = vec![0u32; distinct];
        let reached =
            |tokens: i64, at: usize| ((tokens - at as i64 * size).clamp(0, size) / block) as u32;
        let row = |r: usize| {
            let mut found = 0;
            for (at, &id) in self.row(r).iter().enumerate() {
                let asked = reached(self.input_tokens[r], at);
                let here = asked.min(left[id as usize]);
                found += i64::from(here);
                if i64::from(here) * block < size {
                    break;
                }
            }
            for (at, &id) in self.row(self.source[r] as usize).iter().enumerate() {
                let blocks = reached(self.left_tokens[r], at);
                if blocks == 0 {
                    break;
                }
                left[id as usize] = left[id as usize].max(blocks);
            }
            found
        };
        (0..self.source.len()).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Left;

    #[test]
    fn a_row_finds_what_rows_before_it_left() {
        let left = Left {
            ids: &[0, 1, 0, 1, 2, 0, 1],
            offsets: &[0, 2, 5, 7],
            input_tokens: &[7, 10, 8],
            source: &[0, 1, 2],
            left_tokens: &[6, 10, 8],
        };
        // the first row leaves half of its second id, of blocks of 2 tokens
        assert_eq!(left.found_blocks(4, 2), [0, 3, 4]);
    }
}

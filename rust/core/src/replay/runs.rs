//! The trace as a static radix tree: ids that always come together are one run of blocks.

use super::prompt_error::PromptError;
use super::stack::RowBlocks;
use crate::ids::NONE;

/// The requests of a trace in the form that replays read; borrowed, nothing is copied.
#[derive(Debug, Clone, Copy)]
pub struct Prompts<'a> {
    /// Dense ids of all requests, one request after another.
    pub ids: &'a [u32],
    /// Request i owns `ids[offsets[i]..offsets[i + 1]]`.
    pub offsets: &'a [i64],
    /// Blocks per id: the trace's block size over the cache's.
    pub blocks_per_id: u32,
    /// Shareable blocks of each request, at most its ids times `blocks_per_id`.
    pub blocks: &'a [u32],
    /// Blocks of each request that no other can name (its output), after the shareable blocks.
    pub private_blocks: &'a [u32],
}

impl Prompts<'_> {
    /// Number of requests.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if there is no request.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The highest id plus one, which is the number of ids if they are dense.
    pub fn distinct_ids(&self) -> usize {
        self.ids.iter().max().map_or(0, |&m| m as usize + 1)
    }

    /// The ids of request i that its shareable blocks reach into.
    pub fn row(&self, i: usize) -> &[u32] {
        let used = self.blocks[i].div_ceil(self.blocks_per_id) as usize;
        let start = self.offsets[i] as usize;
        &self.ids[start..start + used]
    }

    /// The blocks of request i.
    pub fn blocks_of(&self, i: usize) -> RowBlocks {
        RowBlocks {
            named: u64::from(self.blocks[i]),
            private: u64::from(self.private_blocks[i]),
            limit: u64::from(self.blocks[i]),
        }
    }

    /// Blocks that request i takes of the j-th id of its row.
    pub fn taken(&self, i: usize, j: usize) -> u32 {
        (self.blocks[i] - j as u32 * self.blocks_per_id).min(self.blocks_per_id)
    }

    /// Check shape and size once, before anything indexes with them.
    pub fn check(&self) -> Result<(), PromptError> {
        let n = self.blocks.len();
        if self.offsets.len() != n + 1 || self.private_blocks.len() != n {
            return Err(PromptError::Shape);
        }
        if self.blocks_per_id == 0 || self.offsets[0] != 0 {
            return Err(PromptError::Shape);
        }
        for (i, row) in self.offsets.windows(2).enumerate() {
            let used = i64::from(self.blocks[i].div_ceil(self.blocks_per_id));
            if row[1] < row[0] || row[1] - row[0] < used {
                return Err(PromptError::Shape);
            }
            if self.blocks[i].checked_add(self.private_blocks[i]).is_none() {
                return Err(PromptError::TooManyBlocks);
            }
        }
        if self.offsets[n] != self.ids.len() as i64 {
            return Err(PromptError::Shape);
        }
        if self.distinct_ids() > MOST_IDS || self.ids.len() >= NONE as usize {
            return Err(PromptError::TooManyIds);
        }
        Ok(())
    }
}

/// Tables have an entry per id: a larger id is not dense but a mistake.
const MOST_IDS: usize = 1 << 30;

/// Runs of blocks that every request takes whole or not at all, and each request as a path of runs.
///
/// Cost: one pass over the ids to find where requests part, one to write the paths. Afterwards a request
/// costs its runs (three on average on the conversation trace), whatever the block size.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// Blocks of each run.
    pub len: Vec<u32>,
    /// Blocks above each run's first.
    pub depth: Vec<u32>,
    /// The run above, `NONE` at the top; if the trace is no tree, the run above at the first appearance.
    pub parent: Vec<u32>,
    /// Request i is the runs `path[offsets[i]..offsets[i + 1]]`, root first.
    pub path: Vec<u32>,
    /// Start of each request's path, and the end of the last.
    pub offsets: Vec<u32>,
}

impl Runs {
    /// Find the runs of a trace; fails if a request names an id twice.
    pub fn of(prompts: &Prompts) -> Result<Self, PromptError> {
        let pieces = Pieces::of(prompts);
        let heads = pieces.heads(prompts)?;
        let mut runs = Self::default();
        let mut run_of = vec![NONE; pieces.len.len()];
        runs.offsets.push(0);
        for i in 0..prompts.len() {
            let (mut depth, mut parent) = (0u32, NONE);
            pieces.walk(prompts, i, |piece| {
                let p = piece as usize;
                if heads[p] {
                    if run_of[p] == NONE {
                        run_of[p] = runs.push(0, depth, parent);
                    }
                    parent = run_of[p];
                    runs.path.push(parent);
                } else {
                    run_of[p] = parent;
                }
                depth += pieces.len[p];
                let end = depth - runs.depth[parent as usize];
                let len = &mut runs.len[parent as usize];
                *len = (*len).max(end);
            });
            if prompts.private_blocks[i] > 0 {
                let run = runs.push(prompts.private_blocks[i], depth, parent);
                runs.path.push(run);
            }
            runs.offsets.push(runs.path.len() as u32);
        }
        Ok(runs)
    }

    /// Appends a run.
    pub(super) fn push(&mut self, len: u32, depth: u32, parent: u32) -> u32 {
        self.len.push(len);
        self.depth.push(depth);
        self.parent.push(parent);
        (self.len.len() - 1) as u32
    }

    /// Number of requests.
    pub fn requests(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The runs of request i, root first.
    pub fn path(&self, i: usize) -> &[u32] {
        &self.path[self.offsets[i] as usize..self.offsets[i + 1] as usize]
    }
}

/// Ids cut where some request ends inside them; nearly always one piece per id.
struct Pieces {
    /// Pieces of id d are `first[d]..first[d + 1]`.
    first: Vec<u32>,
    len: Vec<u32>,
}

impl Pieces {
    fn of(prompts: &Prompts) -> Self {
        let distinct = prompts.distinct_ids();
        let whole = prompts.blocks_per_id;
        let mut cuts: Vec<(u32, u32)> = Vec::new();
        for i in 0..prompts.len() {
            let row = prompts.row(i);
            if let Some(&last) = row.last() {
                let taken = prompts.taken(i, row.len() - 1);
                if taken < whole {
                    cuts.push((last, taken));
                }
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        let mut first = Vec::with_capacity(distinct + 1);
        let mut len = Vec::with_capacity(distinct + cuts.len());
        let mut next = cuts.iter().peekable();
        for id in 0..distinct as u32 {
            first.push(len.len() as u32);
            let mut start = 0;
            while let Some((_, cut)) = next.next_if(|c| c.0 == id) {
                len.push(cut - start);
                start = *cut;
            }
            len.push(whole - start);
        }
        first.push(len.len() as u32);
        Self { first, len }
    }

    /// Call `visit` with every piece of request i, root first.
    #[inline]
    fn walk(&self, prompts: &Prompts, i: usize, mut visit: impl FnMut(u32)) {
        let row = prompts.row(i);
        for (j, &id) in row.iter().enumerate() {
            let (from, to) = (self.first[id as usize], self.first[id as usize + 1]);
            if to - from == 1 {
                visit(from);
                continue;
            }
            let mut left = prompts.taken(i, j);
            for piece in from..to {
                if left == 0 {
                    break;
                }
                visit(piece);
                left -= self.len[piece as usize];
            }
        }
    }

    /// For each piece, true if it starts a run: its predecessor differs, or fewer requests continue to it.
    fn heads(&self, prompts: &Prompts) -> Result<Vec<bool>, PromptError> {
        let n = self.len.len();
        let mut requests = vec![0u32; n];
        let mut above = vec![NONE; n];
        let mut heads = vec![false; n];
        let mut seen_by = vec![NONE; n];
        for i in 0..prompts.len() {
            let mut before = NONE;
            let mut repeated = None;
            self.walk(prompts, i, |piece| {
                let p = piece as usize;
                if seen_by[p] == i as u32 {
                    repeated = Some(piece);
                }
                seen_by[p] = i as u32;
                if requests[p] == 0 {
                    above[p] = before;
                    heads[p] = before == NONE;
                } else if above[p] != before {
                    heads[p] = true;
                }
                requests[p] += 1;
                before = piece;
            });
            if let Some(piece) = repeated {
                let id = self.first.partition_point(|&f| f <= piece) as u32 - 1;
                return Err(PromptError::RepeatedId { request: i, id });
            }
        }
        for p in 0..n {
            if !heads[p] && above[p] != NONE && requests[above[p] as usize] != requests[p] {
                heads[p] = true;
            }
        }
        Ok(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(rows: &[&[u32]], per: u32, blocks: &[u32]) -> Runs {
        let ids: Vec<u32> = rows.concat();
        let mut offsets = vec![0i64];
        for row in rows {
            offsets.push(offsets.last().unwrap() + row.len() as i64);
        }
        let private = vec![0; rows.len()];
        let prompts = Prompts {
            ids: &ids,
            offsets: &offsets,
            blocks_per_id: per,
            blocks,
            private_blocks: &private,
        };
        prompts.check().unwrap();
        Runs::of(&prompts).unwrap()
    }

    #[test]
    fn ids_that_always_come_together_are_one_run() {
        let r = runs(
            &[&[0, 1, 2, 3], &[0, 1, 4], &[0, 1, 2, 3]],
            4,
            &[16, 12, 16],
        );
        assert_eq!(r.len, [8, 8, 4]);
        assert_eq!(r.path(0), [0, 1]);
        assert_eq!(r.path(1), [0, 2]);
        assert_eq!(r.parent, [NONE, 0, 0]);
        assert_eq!(r.depth, [0, 8, 8]);
    }

    #[test]
    fn a_request_that_ends_inside_an_id_cuts_it() {
        let r = runs(&[&[0, 1], &[0, 1]], 4, &[6, 8]);
        assert_eq!(r.len, [6, 2]);
        assert_eq!(r.path(0), [0]);
        assert_eq!(r.path(1), [0, 1]);
    }

    #[test]
    fn a_request_that_ends_at_the_end_of_an_id_parts_the_run() {
        let r = runs(&[&[0, 1, 2], &[0, 1]], 1, &[3, 2]);
        assert_eq!(r.len, [2, 1]);
    }

    #[test]
    fn the_same_id_under_two_parents_starts_a_run() {
        let r = runs(&[&[0, 1], &[2, 1]], 1, &[2, 2]);
        assert_eq!(r.len, [1, 1, 1]);
        assert_eq!(r.path(1), [2, 1]);
    }
}

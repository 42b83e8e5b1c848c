//! Stack distances (Mattson et al. 1970) on runs: the hits of least recently used at every capacity.

use super::newer::Newer;
use super::runs::Runs;
use super::TouchFrom;
use crate::ids::NONE;

/// Blocks that hit together: of `blocks`, block j (from 0) hits at capacities ≥ `capacity + j × step`.
///
/// `step` is 1 if the blocks of a run leave one by one from its tail, and 0 if the run is found whole or not
/// at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reuse {
    /// The request that reuses the blocks.
    pub request: u32,
    /// The smallest capacity at which the first block hits.
    pub capacity: u64,
    /// Number of blocks.
    pub blocks: u32,
    /// Capacity that each further block needs in addition to the block before it.
    pub step: u32,
    /// The request that touched the run last.
    pub before: u32,
}

/// Return every reuse of the trace with the capacities at which it hits, in request order.
///
/// One pass, whatever the number of capacities evaluated later: O(runs touched × log) time and 8 bytes per
/// touch, at any block size. A request may count at most `limits[i]` leading blocks as hits.
pub fn reuses(runs: &Runs, limits: &[u32], touch_from: TouchFrom) -> Vec<Reuse> {
    let mut newer = Newer::new(runs.path.len());
    let mut touched = vec![NONE; runs.len.len()];
    let mut toucher = vec![NONE; runs.len.len()];
    let mut clock = 0u32;
    let mut out = Vec::new();
    for (i, &limit) in limits.iter().enumerate() {
        let path = runs.path(i);
        let (mut left, mut floor) = (limit, 0u64);
        for &run in path {
            let r = run as usize;
            if touched[r] == NONE || left == 0 {
                break;
            }
            let above = newer.after(touched[r]);
            let blocks = runs.len[r].min(left);
            left -= blocks;
            let mut push = |capacity, blocks, step| {
                if blocks > 0 {
                    out.push(Reuse {
                        request: i as u32,
                        capacity,
                        blocks,
                        step,
                        before: toucher[r],
                    });
                }
            };
            match touch_from {
                TouchFrom::Tail => {
                    // a block is newer than a block before it only if the trace is no tree
                    let early = floor.saturating_sub(above).min(u64::from(blocks)) as u32;
                    push(floor, early, 0);
                    push(above + u64::from(early) + 1, blocks - early, 1);
                    floor = floor.max(above + u64::from(blocks));
                }
                TouchFrom::Root => {
                    floor = floor.max(above + u64::from(runs.len[r]));
                    push(floor, blocks, 0);
                }
            }
        }
        let mut touch = |run: u32| {
            let (r, blocks) = (run as usize, u64::from(runs.len[run as usize]));
            if touched[r] != NONE {
                newer.remove(touched[r], blocks);
            }
            newer.add(clock, blocks);
            touched[r] = clock;
            toucher[r] = i as u32;
            clock += 1;
        };
        match touch_from {
            TouchFrom::Tail => path.iter().rev().for_each(|&run| touch(run)),
            TouchFrom::Root => path.iter().for_each(|&run| touch(run)),
        }
    }
    out
}

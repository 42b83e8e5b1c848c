//! Clairvoyant upper bounds: a cache that keeps the blocks needed soonest (Belady 1966), prefix-closed on
//! runs, or flat.

use std::collections::BinaryHeap;

use super::blocks::Blocks;
use super::prompt_error::PromptError;
use super::runs::{Prompts, Runs};
use super::{Decisions, TouchFrom};

const NEVER: u32 = u32::MAX;

/// Replay a trace and keep the blocks needed soonest: the farthest next use is evicted first, of equals the
/// deepest.
///
/// New blocks may be bypassed at once. A block's parent is never needed later than the block, so the kept
/// blocks are prefix-closed. Bypassed blocks do not count as evictions.
pub fn replay(runs: &Runs, capacity: u64) -> Decisions {
    let mut next = next_uses(runs);
    let mut resident = vec![0u32; runs.len.len()];
    let mut heap: BinaryHeap<(u32, u32, u32)> = BinaryHeap::new();
    let mut out = Decisions {
        hits: Vec::with_capacity(runs.requests()),
        ..Decisions::default()
    };
    let mut due = vec![NEVER; runs.len.len()];
    let mut before: Vec<u32> = Vec::new();
    let mut size = 0u64;
    for i in 0..runs.requests() {
        let (from, path) = (runs.offsets[i] as usize, runs.path(i));
        let (mut found, mut unbroken) = (0, true);
        let old_size = size;
        before.clear();
        for (j, &run) in path.iter().enumerate() {
            let (r, len) = (run as usize, runs.len[run as usize]);
            found += if unbroken { resident[r] } else { 0 };
            unbroken &= resident[r] == len;
            before.push(resident[r]);
            size += u64::from(len - resident[r]);
            resident[r] = len;
            due[r] = std::mem::replace(&mut next[from + j], NEVER);
            heap.push((due[r], runs.depth[r], run));
        }
        out.hits.push(found);
        while size > capacity {
            let Some((when, depth, run)) = heap.pop() else {
                break;
            };
            let r = run as usize;
            if due[r] != when || resident[r] == 0 {
                continue;
            }
            let cut = (size - capacity).min(u64::from(resident[r])) as u32;
            resident[r] -= cut;
            size -= u64::from(cut);
            if resident[r] > 0 {
                heap.push((when, depth, run));
            }
        }
        let admitted: u64 = path
            .iter()
            .zip(&before)
            .map(|(&r, &b)| u64::from(resident[r as usize].saturating_sub(b)))
            .sum();
        out.evictions += old_size + admitted - size;
    }
    out.resident = size;
    out
}

/// For every position in the paths, the next request that takes the same run.
fn next_uses(runs: &Runs) -> Vec<u32> {
    let mut next = vec![NEVER; runs.path.len()];
    let mut last = vec![NEVER; runs.len.len()];
    for i in (0..runs.requests()).rev() {
        for at in runs.offsets[i]..runs.offsets[i + 1] {
            let run = runs.path[at as usize] as usize;
            next[at as usize] = std::mem::replace(&mut last[run], i as u32);
        }
    }
    next
}

/// Replay a trace as a flat stream of blocks: the farthest next use is evicted, every miss is inserted.
///
/// Fails if the stream is longer than 32 bits can number.
pub fn replay_flat(
    prompts: &Prompts,
    capacity: u64,
    touch_from: TouchFrom,
) -> Result<Decisions, PromptError> {
    let (mut blocks, universe) = Blocks::of(prompts, 0)?;
    let mut stream: Vec<u32> = Vec::new();
    let mut ends = Vec::with_capacity(prompts.len());
    let mut row = Vec::new();
    for i in 0..prompts.len() {
        blocks.number(prompts.row(i), prompts.blocks_of(i), &mut row)?;
        match touch_from {
            TouchFrom::Tail => stream.extend(row.iter().rev()),
            TouchFrom::Root => stream.extend(&row),
        }
        if stream.len() >= NEVER as usize {
            return Err(PromptError::TooManyBlocks);
        }
        ends.push(stream.len());
    }
    let mut due = vec![NEVER; universe];
    let mut next = vec![NEVER; stream.len()];
    for (at, &block) in stream.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut due[block as usize], at as u32);
    }
    // from here on `due` is the next use of a resident block, or 0: no block is next used at access 0
    due.fill(0);
    let mut heap: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let mut out = Decisions::default();
    let mut at = 0;
    for end in ends {
        let mut hits = 0;
        for (&block, &when) in stream[at..end].iter().zip(&next[at..end]) {
            if due[block as usize] != 0 {
                hits += 1;
            } else {
                if out.resident >= capacity {
                    while let Some((when, victim)) = heap.pop() {
                        if due[victim as usize] == when {
                            due[victim as usize] = 0;
                            out.evictions += 1;
                            out.resident -= 1;
                            break;
                        }
                    }
                }
                out.resident += 1;
            }
            due[block as usize] = when;
            heap.push((when, block));
        }
        out.hits.push(hits);
        at = end;
    }
    Ok(out)
}

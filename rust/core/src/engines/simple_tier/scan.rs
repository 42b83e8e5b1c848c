//! The walk of lazy stores over the GPU's free blocks, in the order in which they are taken.

use crate::convert::fit;
use crate::engines::groups::manager::GroupManager;
use crate::engines::groups::pool::NULL;
use crate::engines::groups::{Group, Kind};

/// Position of the walk.
#[derive(Debug)]
pub(super) struct Scan {
    /// Blocks that a step looks at.
    most: u32,
    /// Last block that was looked at, `NULL` before the first.
    last: u32,
    has_moved: bool,
    /// Blocks stored since the last step of a request, at most as many as the pool has: a tier smaller than the pool
    /// evicts them and stores them again, without end.
    idle_blocks: u32,
    pool_blocks: u32,
}

impl Scan {
    /// A walk that looks at blocks for twice a step's tokens, windows and states (`_estimate_lazy_target_blocks`).
    pub fn new(groups: &[Group], step_tokens: u64, pool_blocks: u32) -> Self {
        let each = groups.iter().map(|group| match group.kind {
            Kind::Linear => 2,
            Kind::Sliding(window) => group.blocks(window) + 1,
            Kind::Full | Kind::Chunked(_) => group.blocks(step_tokens),
        });
        Self {
            most: 2 * each.sum::<u32>(),
            last: NULL,
            has_moved: false,
            idle_blocks: 0,
            pool_blocks,
        }
    }

    /// Looks at the next blocks; returns those that are to be stored, at most `free`.
    pub fn walk(
        &mut self,
        manager: &GroupManager,
        free: u32,
        is_to_store: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let (mut blocks, before) = (Vec::new(), self.last);
        if self.last != NULL && !manager.pool.is_idle(self.last) {
            self.last = NULL;
        }
        for block in manager.pool.free_after(self.last).take(self.most as usize) {
            if blocks.len() >= free as usize {
                break;
            }
            self.last = block;
            if is_to_store(block) {
                blocks.push(block);
            }
        }
        self.has_moved = self.last != before;
        self.idle_blocks += fit::<u32>(blocks.len());
        blocks
    }

    /// Notes a step of a request.
    pub fn restart(&mut self) {
        self.idle_blocks = 0;
    }

    /// Returns true if an engine without requests may store further blocks.
    pub fn continues(&self) -> bool {
        self.idle_blocks < self.pool_blocks
    }

    /// Returns true if the last step looked at new blocks.
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }
}

//! Release of a request's blocks: those that are no longer read, and all at its end.

use std::cmp::Reverse;

use super::manager::GroupManager;
use super::pool::Pool;
use super::rules::skipped_blocks;
use super::tables::Table;
use super::{Group, Reuse};

impl GroupManager {
    /// Releases the blocks that are no longer read.
    pub fn drop_unread(&mut self, request: u32) {
        let held = &mut self.held[request as usize];
        let mut ends = Vec::new();
        for (number, (group, table)) in self.groups.iter().zip(&mut held.tables).enumerate() {
            let gone = skipped_blocks(group, held.computed).min(table.positions());
            if gone > table.start {
                let leading = (gone - table.start) as usize;
                match self.limits.reuse {
                    Reuse::Engine => self
                        .pool
                        .release(table.blocks.range(..leading).rev().copied()),
                    Reuse::Tree => ends.extend(block_ends(number, group, table).take(leading)),
                }
                table.blocks.drain(..leading);
                table.start = gone;
            }
        }
        release_from_the_end(&mut self.pool, ends);
    }

    /// Releases all blocks of a request: group by group, each last to first, or all groups together from the
    /// end on.
    pub fn release(&mut self, request: u32) {
        let tables = std::mem::take(&mut self.held[request as usize].tables);
        match self.limits.reuse {
            Reuse::Engine => {
                for table in &tables {
                    self.pool.release(table.blocks.iter().rev().copied());
                }
            }
            Reuse::Tree => {
                let groups = self.groups.iter().zip(&tables).enumerate();
                let ends =
                    groups.flat_map(|(number, (group, table))| block_ends(number, group, table));
                release_from_the_end(&mut self.pool, ends.collect());
            }
        }
    }
}

impl GroupManager {
    /// Releases all blocks of a request whose release was put off (`_drain_deferred_frees`): those of the last group
    /// first, each group's last to first.
    pub fn release_late(&mut self, request: u32) {
        let tables = std::mem::take(&mut self.held[request as usize].tables);
        let blocks = tables
            .iter()
            .rev()
            .flat_map(|table| table.blocks.iter().rev());
        self.pool.release(blocks.copied());
    }
}

/// A block with its end in tokens: the latest first, of equal ends an earlier group's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct BlockEnd {
    end_tokens: Reverse<u64>,
    group: usize,
    block: u32,
}

/// Returns the blocks of a table, from its first position that has not been released.
fn block_ends<'a>(
    number: usize,
    group: &'a Group,
    table: &'a Table,
) -> impl Iterator<Item = BlockEnd> + 'a {
    let slots = (u64::from(table.start) + 1..).zip(&table.blocks);
    slots.map(move |(slot, &block)| BlockEnd {
        end_tokens: Reverse(slot * group.block_size),
        group: number,
        block,
    })
}

/// Releases blocks by their ends, last first; of blocks with the same end, an earlier group's first.
fn release_from_the_end(pool: &mut Pool, mut ends: Vec<BlockEnd>) {
    ends.sort_unstable();
    pool.release(ends.into_iter().map(|end| end.block));
}

//! Capacity for the next tokens of a running request.

use super::manager::GroupManager;
use super::pool::NULL;
use super::{Group, Kind};

impl GroupManager {
    /// Releases blocks that are no longer read, then takes capacity up to `end` tokens. Returns false if it does
    /// not fit; released blocks stay released.
    pub fn extend(&mut self, request: u32, end: u64) -> bool {
        self.drop_unread(request);
        if self.lacking(request, end) > self.pool.free_blocks() {
            return false;
        }
        self.take(request, end);
        true
    }

    /// Returns the number of blocks that a running request takes for capacity up to `end` tokens.
    pub fn lacking(&self, request: u32, end: u64) -> u32 {
        let tables = &self.held[request as usize].tables;
        let missing = self.groups.iter().zip(tables).map(|(group, table)| {
            new_blocks(group, group.blocks(end).saturating_sub(table.positions()))
        });
        missing.sum()
    }

    /// Returns the positions by which a running request's tables grow; more than the blocks it takes.
    pub fn lacking_positions(&self, request: u32, end: u64) -> u64 {
        let tables = &self.held[request as usize].tables;
        let missing = self.groups.iter().zip(tables);
        missing
            .map(|(group, table)| u64::from(group.blocks(end).saturating_sub(table.positions())))
            .sum()
    }

    /// Takes capacity up to `end` tokens, for which there must be free blocks.
    pub fn take(&mut self, request: u32, end: u64) {
        let tables = &mut self.held[request as usize].tables;
        for (group, table) in self.groups.iter().zip(tables) {
            let more = group.blocks(end).saturating_sub(table.positions());
            let new = new_blocks(group, more);
            for _ in new..more {
                table.blocks.push_back(NULL);
            }
            table.blocks.reserve(new as usize);
            self.pool.take(new, |block| table.blocks.push_back(block));
        }
    }
}

/// Returns the blocks that a group takes for new positions: a state only for the last position.
pub(super) fn new_blocks(group: &Group, positions: u32) -> u32 {
    if group.kind == Kind::Linear {
        positions.min(1)
    } else {
        positions
    }
}

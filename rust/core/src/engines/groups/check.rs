//! The invariants of the pool and the tables (design: I2, I3, I4), recomputed from scratch.

use super::manager::GroupManager;
use super::pool::{Pool, NULL};
use super::rules::skipped_blocks;
use crate::convert::fit;
use crate::ids::NONE;
use crate::store::Violation;

impl GroupManager {
    /// Checks all invariants, with the blocks that copies hold besides requests; the first violation is the error. Cost:
    /// linear in blocks and tables.
    pub fn check(&self, copied: impl Iterator<Item = u32>) -> Result<(), Violation> {
        let mut ref_counts = vec![0u32; self.pool.nodes.len()];
        copied.for_each(|block| ref_counts[block as usize] += 1);
        for held in &self.held {
            for &block in held.tables.iter().flat_map(|table| &table.blocks) {
                if block != NULL {
                    ref_counts[block as usize] += 1;
                }
            }
        }
        let counted = self
            .pool
            .nodes
            .iter()
            .map(|node| node.ref_count)
            .zip(ref_counts);
        if let Some((block, (counted, found))) = counted.enumerate().find(|(_, (a, b))| a != b) {
            return Err(format!(
                "I3: block {block} counts {counted} holders, {found} hold it"
            ));
        }
        self.pool.check()?;
        self.check_tables()
    }

    /// Checks that the pool has the part of the prefix that a running request still reads (I4 for all group
    /// kinds).
    fn check_tables(&self) -> Result<(), Violation> {
        for (request, held) in self.held.iter().enumerate() {
            for (number, (group, table)) in self.groups.iter().zip(&held.tables).enumerate() {
                let computed = held.computed;
                let (first, end) = (skipped_blocks(group, computed), group.blocks(computed));
                let gone = (first.max(table.start)..end).find(|&k| table.block(k) == NULL);
                if table.start > first || gone.is_some() {
                    return Err(format!(
                        "I4: group {number} of request {request} lacks blocks that {computed} tokens need"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Pool {
    /// Checks queue and keys.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_queue()?;
        self.check_keys()
    }

    /// Checks that the queue has every block without a holder once, linked both ways.
    fn check_queue(&self) -> Result<(), Violation> {
        let idle = self
            .nodes
            .iter()
            .skip(1)
            .filter(|node| node.ref_count == 0)
            .count();
        let (mut before, mut length) = (NULL, 0);
        loop {
            let block = self.nodes[before as usize].next;
            if self.nodes[block as usize].previous != before {
                return Err(format!(
                    "I2: block {block} of the free queue is wrongly linked"
                ));
            }
            if block == NULL {
                break;
            }
            (before, length) = (block, length + 1);
            if self.nodes[block as usize].ref_count > 0 || length > idle {
                return Err(format!(
                    "I2: block {block} is in the free queue twice or has a holder"
                ));
            }
        }
        if length != idle || length != self.free as usize {
            return Err(format!(
                "I2: {idle} blocks have no holder, {length} are queued, {} counted",
                self.free
            ));
        }
        Ok(())
    }

    /// Checks that every block with a key is found under it, and that the counts agree.
    fn check_keys(&self) -> Result<(), Violation> {
        let (mut keyed, mut held) = (0u64, 0u64);
        for block in 1..self.nodes.len() {
            let slot = self.nodes[block].slot;
            if slot == NONE {
                continue;
            }
            keyed += 1;
            held += u64::from(self.nodes[block].ref_count > 0);
            let mut at = self.indexes[usize::from(self.group[block])].first(slot);
            while at != fit::<u32>(block) {
                if at == NONE {
                    return Err(format!("block {block} is not found under its key"));
                }
                at = self.duplicate[at as usize];
            }
        }
        if held != self.held_keyed || keyed != self.counts.inserted - self.counts.evicted {
            return Err(format!(
                "I2: {keyed} blocks have a key and {held} of them a holder, counted {} and {}",
                self.counts.inserted - self.counts.evicted,
                self.held_keyed
            ));
        }
        Ok(())
    }
}

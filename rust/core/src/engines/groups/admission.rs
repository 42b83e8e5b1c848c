//! Whether a request and what it has found fit, and the tables that it starts with.

use super::joint_hit::Found;
use super::manager::GroupManager;
use super::room::new_blocks;
use super::rules::{admission_blocks, skipped_blocks};
use super::tables::Table;

/// What an admission may take.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// So many blocks.
    pub blocks: u32,
    /// Tokens that must fit in them besides its first chunk, as far as a group holds them at one time.
    pub whole_tokens: Option<u64>,
    /// Most tokens that steps under way compute, behind which a window is kept.
    pub in_flight_tokens: u64,
}

impl GroupManager {
    /// Holds what was found and room up to `end` tokens; false, and no change, where it does not fit. The
    /// whole prompt must fit besides, as far as a group holds it all at one time.
    pub fn admit(&mut self, request: u32, prompt: u64, found: Found, end: u64) -> bool {
        let room = Room {
            blocks: self.pool.free_blocks(),
            whole_tokens: Some(prompt),
            in_flight_tokens: self.limits.max_num_batched_tokens,
        };
        self.admit_within(room, request, prompt, found, end)
    }

    /// As `admit`, within so many of the free blocks; another request can go on from where the prompt ends.
    pub fn admit_within(
        &mut self,
        room: Room,
        request: u32,
        prompt: u64,
        found: Found,
        end: u64,
    ) -> bool {
        let mut tables = Vec::with_capacity(self.groups.len());
        let (mut whole, mut first) = (0, 0);
        for (number, group) in self.groups.iter().enumerate() {
            let table = self.found_table(request, number, found.tokens);
            let idle = table.blocks.iter().filter(|&&b| self.pool.is_idle(b));
            let idle = idle.count() as u32;
            let from = table.positions().max(skipped_blocks(group, found.tokens));
            let more = |blocks: u32| new_blocks(group, blocks.saturating_sub(from)) + idle;
            if let Some(tokens) = room.whole_tokens {
                let longest = self.limits.max_model_len;
                whole += more(admission_blocks(
                    group,
                    tokens,
                    room.in_flight_tokens,
                    longest,
                ));
            }
            first += more(group.blocks(end));
            tables.push(table);
        }
        if first.max(whole) > room.blocks {
            return false;
        }
        for &block in tables.iter().flat_map(|table| &table.blocks) {
            self.pool.touch(block);
        }
        let held = &mut self.held[request as usize];
        held.tables = tables;
        held.computed = found.tokens;
        held.boundaries.clear();
        held.boundaries.push(prompt - 1);
        if found.junction > 0 {
            held.boundaries.push(found.junction);
        }
        self.take(request, end);
        true
    }

    /// A group's blocks up to a hit, from the first one on that is still read.
    fn found_table(&self, request: u32, number: usize, hit: u64) -> Table {
        let group = &self.groups[number];
        let end = group.whole(hit);
        let start = skipped_blocks(group, hit).min(end);
        let mut table = Table {
            start,
            keyed: end,
            ..Table::default()
        };
        let mut at = start;
        while at < end {
            let (key, run) = group.run(request, at);
            at += self
                .pool
                .run_of(number, key, run.min(end - at), &mut table.blocks);
        }
        table
    }
}

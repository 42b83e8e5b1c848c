//! Admission of a request: check that the request and its hit fit, and build its first tables.

use super::extend::new_blocks;
use super::joint_hit::Found;
use super::manager::GroupManager;
use super::pool::NULL;
use super::rules::{admission_blocks, skipped_blocks};
use super::tables::Table;
use super::{Group, Kind};
use crate::convert::fit;

/// Upper limits of an admission.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionLimits {
    /// Number of blocks.
    pub blocks: u32,
    /// Those of them that are not for the first chunk.
    pub claimed_blocks: u32,
    /// True if nothing is computed before the rest of the hit is loaded.
    pub loads_first: bool,
    /// Tokens that must fit in the blocks besides the first chunk, as far as a group holds them at one time.
    pub whole_tokens: Option<u64>,
    /// Tokens that steps in flight compute at most; a window is kept behind them.
    pub in_flight_tokens: u64,
}

impl GroupManager {
    /// Holds the blocks found and takes capacity up to `end` tokens. Returns false, with no change, if they do
    /// not fit. The whole prompt must fit too, as far as a group holds all of it at one time.
    pub fn admit(&mut self, request: u32, prompt: u64, found: Found, end: u64) -> bool {
        let admission_limits = AdmissionLimits {
            blocks: self.pool.free_blocks(),
            claimed_blocks: 0,
            loads_first: false,
            whole_tokens: Some(prompt),
            in_flight_tokens: self.limits.max_num_batched_tokens,
        };
        self.admit_within(admission_limits, request, prompt, found, end)
    }

    /// Admits as in `admit`, within limits; another request can continue from the end of the prompt.
    pub fn admit_within(
        &mut self,
        admission_limits: AdmissionLimits,
        request: u32,
        prompt: u64,
        found: Found,
        end: u64,
    ) -> bool {
        let groups = 0..self.groups.len();
        let in_pool = |number| self.found_table(request, number, found.tokens, found.tokens);
        let tables = groups.map(in_pool).collect();
        self.admit_over(admission_limits, request, prompt, found, tables, end)
    }

    /// Admits a request of whose hit the pool has only a part, by group; the rest is loaded into new blocks.
    ///
    /// `tables` have the blocks of the hit that are still read, `NULL` for a block that the pool lacks. A table ends
    /// before the hit if the pool lacks all of its blocks.
    pub fn admit_over(
        &mut self,
        admission_limits: AdmissionLimits,
        request: u32,
        prompt: u64,
        found: Found,
        mut tables: Vec<Table>,
        end: u64,
    ) -> bool {
        let (mut whole, mut first) = (0, 0);
        for (group, table) in self.groups.iter().zip(&tables) {
            let needed = |blocks: u32| match admission_limits.loads_first {
                true if is_state_to_load(group, table, found.tokens) => 1,
                _ => self.needed(group, table, found.tokens, blocks),
            };
            if let Some(tokens) = admission_limits.whole_tokens {
                let longest = self.limits.max_model_len;
                whole += needed(admission_blocks(
                    group,
                    tokens,
                    admission_limits.in_flight_tokens,
                    longest,
                ));
            }
            first += needed(group.blocks(end));
        }
        first += admission_limits.claimed_blocks;
        if first.max(whole) > admission_limits.blocks {
            return false;
        }
        let here = tables.iter().flat_map(|table| &table.blocks);
        for &block in here.filter(|&&block| block != NULL) {
            self.pool.touch(block);
        }
        for (group, table) in self.groups.iter().zip(&mut tables) {
            for slot in &mut table.blocks {
                if *slot == NULL {
                    self.pool.take(1, |block| *slot = block);
                }
            }
            let start = skipped_blocks(group, found.tokens);
            if table.positions() < start {
                table.start = start;
            }
            let more = group.blocks(found.tokens).saturating_sub(table.positions());
            self.pool.take(more, |block| table.blocks.push_back(block));
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

    /// Returns the blocks that a group needs for `blocks` blocks, without those of its hit that other requests
    /// hold.
    fn needed(&self, group: &Group, table: &Table, hit: u64, blocks: u32) -> u32 {
        if is_state_to_load(group, table, hit) {
            return new_blocks(group, blocks.saturating_sub(group.whole(hit))) + 1;
        }
        let taken = |&&block: &&u32| block == NULL || self.pool.is_idle(block);
        let from = table.positions().max(skipped_blocks(group, hit));
        new_blocks(group, blocks.saturating_sub(from))
            + fit::<u32>(table.blocks.iter().filter(taken).count())
    }

    /// Returns the blocks that a running request may still take for `tokens` tokens, as far as a group holds them at one
    /// time.
    pub fn claim(&self, request: u32, tokens: u64, in_flight_tokens: u64) -> u32 {
        let (tables, longest) = (
            &self.held[request as usize].tables,
            self.limits.max_model_len,
        );
        let groups = self.groups.iter().zip(tables);
        let each = groups.map(|(group, table)| {
            let blocks = admission_blocks(group, tokens, in_flight_tokens, longest);
            new_blocks(group, blocks.saturating_sub(table.positions()))
        });
        each.sum()
    }

    /// Returns the number of states at the end of the first `tokens` tokens, all in the pool, that no request holds.
    pub fn idle_states(&self, request: u32, tokens: u64) -> u32 {
        let groups = self.groups.iter().enumerate();
        let states = groups.filter(|(_, group)| group.kind == Kind::Linear && tokens > 0);
        let idle = states.filter(|(number, group)| {
            let key = group.key(request, group.whole(tokens) - 1);
            self.pool.is_idle(self.pool.find(*number, key).0)
        });
        fit::<u32>(idle.count())
    }

    /// Returns a group's blocks of a hit that is all in the pool, from the first block that is still read on.
    pub fn found_table(&self, request: u32, number: usize, tokens: u64, hit: u64) -> Table {
        let group = &self.groups[number];
        let end = group.whole(tokens);
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

    /// Returns a group's blocks of a hit; `NULL` for blocks that the pool lacks.
    pub fn table_with_gaps(&self, request: u32, number: usize, hit: u64) -> Table {
        let group = &self.groups[number];
        let end = group.whole(hit);
        let start = skipped_blocks(group, hit).min(end);
        let find = |block| self.pool.find(number, group.key(request, block)).0;
        Table {
            start,
            keyed: end,
            blocks: (start..end).map(find).collect(),
        }
    }
}

/// Returns true if a group keeps states, and that at the end of a hit is not in the pool.
fn is_state_to_load(group: &Group, table: &Table, hit: u64) -> bool {
    group.kind == Kind::Linear && table.positions() != group.whole(hit)
}

//! Loads from the tier into the blocks that an admission has taken.

use std::collections::BTreeSet;

use super::to_offer::{GroupSlot, ToOffer};
use super::{Brought, FoundBelow, GroupTier, GroupWrites, Site};
use crate::convert::fit;
use crate::engines::groups::manager::GroupManager;
use crate::engines::groups::pool::NULL;
use crate::engines::groups::rules::skipped_blocks;
use crate::engines::groups::tables::Table;
use crate::engines::groups::Kind;
use crate::engines::used_tier::SlotKey;
use crate::store::{LeaseId, MoveId, NO_MOVE};

/// A load, and for each of its blocks the key of its chunk.
pub(super) struct Read {
    pub id: MoveId,
    pub keys: Vec<u64>,
}

/// Returns the blocks of the pool's own hit by group, and those behind it that are to be loaded.
pub fn behind_pool(
    manager: &GroupManager,
    request: u32,
    looked: FoundBelow,
) -> (Vec<Table>, Vec<GroupSlot>) {
    let hit = looked.found.tokens;
    let (mut tables, mut lacking) = (Vec::new(), Vec::new());
    for (number, group) in manager.groups().iter().enumerate() {
        let table = manager.found_table(request, number, looked.pool_tokens, hit);
        let start = table.positions().max(skipped_blocks(group, hit));
        lacking.extend((start..group.blocks(hit)).map(|block| GroupSlot::new(number, block)));
        tables.push(table);
    }
    (tables, lacking)
}

impl GroupTier {
    /// Returns the found blocks of the pool by group, and the blocks that are to be loaded.
    pub fn lacking(
        &self,
        manager: &GroupManager,
        request: u32,
        looked: FoundBelow,
    ) -> (Vec<Table>, Vec<GroupSlot>) {
        if self.writes == GroupWrites::Engine {
            return behind_pool(manager, request, looked);
        }
        let hit = looked.found.tokens;
        let (mut tables, mut lacking) = (Vec::new(), Vec::new());
        for (number, group) in manager.groups().iter().enumerate() {
            let table = manager.table_with_gaps(request, number, hit);
            let all = table.start..group.blocks(hit);
            let gaps = all.filter(|&block| table.block(block) == NULL);
            lacking.extend(gaps.map(|block| GroupSlot::new(number, block)));
            tables.push(table);
        }
        (tables, lacking)
    }

    /// Holds the keys of blocks to be loaded while other blocks are evicted; `release_keys` ends the hold.
    pub fn keep(&mut self, manager: &GroupManager, request: u32, slots: &[GroupSlot]) -> Vec<u64> {
        let keys = self.keys_at(manager, request, slots);
        self.tier.in_use.hold(&keys);
        keys
    }

    /// Releases keys that `keep` holds.
    pub fn release_keys(&mut self, keys: &[u64]) {
        self.tier.in_use.release_keys(keys);
    }

    /// Loads the missing blocks of an admission, and records the moves it waits for; `given` are blocks that it
    /// took.
    pub fn bring(
        &mut self,
        site: Site<'_>,
        request: u32,
        lease: LeaseId,
        looked: FoundBelow,
        lacking: &[GroupSlot],
        given: &[u32],
    ) {
        let manager = site.manager;
        let groups = manager.groups().len();
        let freeing_moves = self.readers(given.iter().copied());
        let tables = (0..groups).flat_map(|number| manager.blocks_of(request, number));
        let loads: BTreeSet<MoveId> = tables
            .filter(|&block| block != NULL)
            .map(|block| self.copies.writer_of(block))
            .filter(|&by| by != NO_MOVE)
            .collect();
        let mut loads: Vec<MoveId> = loads.into_iter().collect();
        // Nothing is offered again in front of a load, but the states that it brings; they may have left the tier.
        let starts = manager.groups().iter();
        let offered = starts.map(|group| match group.kind {
            Kind::Linear => group.whole(looked.pool_tokens),
            _ if lacking.is_empty() => 0,
            _ => group.whole(looked.found.tokens),
        });
        let offered = match self.writes {
            GroupWrites::Engine => offered.collect(),
            _ => vec![0; groups],
        };
        if !lacking.is_empty() {
            let mut after: BTreeSet<MoveId> = freeing_moves.iter().copied().collect();
            if self.writes != GroupWrites::Engine {
                let keys = self.keys_at(manager, request, lacking).into_iter();
                let written = keys.map(|key| self.copies.written_by(key));
                after.extend(written.filter(|&by| by != NO_MOVE));
            }
            let after: Vec<MoveId> = after.into_iter().collect();
            loads.push(self.read(manager, request, lacking, &after).id);
            if self.writes == GroupWrites::Engine {
                manager.give_keys(request, looked.found.tokens);
            } else {
                for &GroupSlot { group, block } in lacking {
                    manager.give_key(request, group, block);
                }
            }
        }
        self.to_offer[request as usize] = Some(ToOffer::from(offered));
        let brought = Brought {
            in_pool_blocks: fit::<u32>(looked.pool_tokens / manager.align()),
            freeing_moves,
            loads,
        };
        self.brought.insert(lease, brought);
    }

    /// Starts a load of a request's blocks from the tier after given moves.
    pub(super) fn read(
        &mut self,
        manager: &GroupManager,
        request: u32,
        lacking: &[GroupSlot],
        after: &[MoveId],
    ) -> Read {
        let keys = self.keys_at(manager, request, lacking);
        let slots = lacking
            .iter()
            .map(|&slot| self.slot(manager, self.chunk_end(slot)));
        let slots: Vec<u32> = slots.collect();
        let slotted = slots.into_iter().zip(&keys);
        self.tier
            .load(request, slotted.map(|(slot, &key)| SlotKey { slot, key }));
        let blocks = lacking
            .iter()
            .map(|slot| manager.block_at(request, slot.group, slot.block));
        let blocks: Vec<u32> = blocks.collect();
        self.tier.in_use.hold(&keys);
        let id = self.copies.read(keys.clone(), blocks, after);
        self.by_group.insert(
            id,
            count_by_group(
                manager.groups().len(),
                lacking.iter().map(|slot| slot.group),
            ),
        );
        Read { id, keys }
    }

    /// Returns for each block the key of its chunk.
    pub(super) fn keys_at(
        &self,
        manager: &GroupManager,
        request: u32,
        slots: &[GroupSlot],
    ) -> Vec<u64> {
        let keys = slots.iter();
        keys.map(|&slot| self.chunk_key(manager, request, slot))
            .collect()
    }

    /// Records the number of blocks of each group that a move copies.
    pub(super) fn note_counts(&mut self, id: MoveId, groups: usize, slots: &[GroupSlot]) {
        self.by_group.insert(
            id,
            count_by_group(groups, slots.iter().map(|slot| slot.group)),
        );
    }

    /// Copies blocks of the pool to the tier under keys that are new there.
    pub(super) fn send(&mut self, keys: Vec<u64>, blocks: Vec<u32>) -> MoveId {
        self.tier.in_use.hold(&keys);
        self.copies.write(keys.clone(), blocks, &keys)
    }
}

/// Returns how often each group occurs.
pub(in crate::engines) fn count_by_group(
    groups: usize,
    of: impl Iterator<Item = usize>,
) -> Vec<u64> {
    let mut counts = vec![0; groups];
    of.for_each(|group| counts[group] += 1);
    counts
}

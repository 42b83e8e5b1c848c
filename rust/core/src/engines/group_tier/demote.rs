//! Write-back: blocks that leave the pool are copied to the tier.

use super::presence::key_in_tier;
use super::to_offer::GroupSlot;
use super::{GroupTier, GroupWrites, Site};
use crate::convert::fit;
use crate::engines::groups::pool::{Given, GroupKey};
use crate::store::STAGING;

impl GroupTier {
    /// Copies blocks that have just left the pool and are not in the tier. Blocks that do not fit in the tier
    /// are dropped, oldest first.
    pub fn demote(&mut self, site: Site<'_>, given: &[Given]) {
        self.reallocated(given);
        if self.writes != GroupWrites::Back {
            return;
        }
        let groups = site.manager.groups().len();
        let left = given.iter().filter_map(|&Given { block, key }| {
            let GroupKey { group, key } = key?;
            let key = key_in_tier(groups as u64, group, key);
            (!self.tier.contains(key)).then_some((block, group, key))
        });
        let mut left: Vec<(u32, usize, u64)> = left.collect();
        let fits = fit::<usize>(self.tier.unused_blocks());
        left.drain(..left.len().saturating_sub(fits));
        if left.is_empty() {
            return;
        }
        let keys: Vec<u64> = left.iter().map(|&(_, _, key)| key).collect();
        let evicted = self.tier.put(&keys);
        site.records.evicted_from(STAGING, evicted, site.now_ns);
        let blocks = left.iter().map(|&(block, _, _)| block).collect();
        let slots: Vec<GroupSlot> = left
            .iter()
            .map(|&(_, group, _)| GroupSlot::new(group, 0))
            .collect();
        let id = self.send(keys, blocks);
        self.note_counts(id, groups, &slots);
    }
}

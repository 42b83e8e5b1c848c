//! Presence of a prompt's blocks in pool and tier, and the keys of a tier that keeps several groups' blocks.

use crate::convert::fit;
use crate::engines::groups::joint_hit::Presence;
use crate::engines::groups::manager::GroupManager;
use crate::engines::used_tier::UsedTier;

/// Bit of keys that only one request can have; their lower half is the block.
const PRIVATE: u64 = 1 << 63;
const LOWER: u64 = 0xFFFF_FFFF;

/// Returns the tier's key of a group's key; keys of the groups are interleaved.
pub(super) fn key_in_tier(groups: u64, group: usize, key: u64) -> u64 {
    if key & PRIVATE == 0 {
        return key * groups + group as u64;
    }
    (key & !LOWER) | ((key & LOWER) * groups + group as u64)
}

/// Returns the group of a tier's key, and its key there.
pub(super) fn group_of(groups: u64, key: u64) -> (usize, u64) {
    if key & PRIVATE == 0 {
        return (fit::<usize>(key % groups), key / groups);
    }
    let lower = key & LOWER;
    ((lower % groups) as usize, (key & !LOWER) | (lower / groups))
}

/// Returns the tier's key of a block.
pub(super) fn key_of(manager: &GroupManager, group: usize, request: u32, block: u32) -> u64 {
    let groups = manager.groups();
    let key = groups[group].key(request, block);
    key_in_tier(groups.len() as u64, group, key)
}

/// Presence in pool or tier, block by block.
pub(super) struct InBoth<'a> {
    pub manager: &'a GroupManager,
    pub tier: &'a UsedTier,
    pub request: u32,
}

impl Presence for InBoth<'_> {
    fn run(&self, group: usize, block: u32, _: u32) -> u32 {
        1 - self.missing(group, block)
    }

    fn missing(&self, group: usize, block: u32) -> u32 {
        let key = self.manager.groups()[group].key(self.request, block);
        let below = key_of(self.manager, group, self.request, block);
        u32::from(!self.manager.has(group, key) && !self.tier.contains(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_tier_names_its_group() {
        for groups in 1..5 {
            for key in [0, 7, 1 << 40, PRIVATE | 3 << 32 | 9] {
                for group in 0..groups as usize {
                    let there = key_in_tier(groups, group, key);
                    assert_eq!(group_of(groups, there), (group, key));
                }
            }
        }
    }
}

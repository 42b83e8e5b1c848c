//! What pool and tier have of a prompt, and the keys of a tier that keeps several groups' blocks.

use crate::engines::groups::joint_hit::Presence;
use crate::engines::groups::manager::GroupManager;
use crate::engines::used_tier::UsedTier;

/// The bit of keys that only one request can have; of these the block stands in the lower half.
const PRIVATE: u64 = 1 << 63;
const LOWER: u64 = 0xFFFF_FFFF;

/// The tier's key of a group's key: groups' keys lie between each other.
pub(super) fn key_in_tier(groups: u64, group: usize, key: u64) -> u64 {
    if key & PRIVATE == 0 {
        return key * groups + group as u64;
    }
    (key & !LOWER) | ((key & LOWER) * groups + group as u64)
}

/// The group and its key of a key of the tier.
pub(super) fn group_of(groups: u64, key: u64) -> (usize, u64) {
    if key & PRIVATE == 0 {
        return ((key % groups) as usize, key / groups);
    }
    let lower = key & LOWER;
    ((lower % groups) as usize, (key & !LOWER) | (lower / groups))
}

/// The tier's key of a block.
pub(super) fn key_of(manager: &GroupManager, group: usize, request: u32, block: u32) -> u64 {
    let groups = manager.groups();
    let key = groups[group].key(request, block);
    key_in_tier(groups.len() as u64, group, key)
}

/// The pool as far as its joint hit goes, the tier alone behind it.
pub(super) struct PoolThenTier<'a> {
    manager: &'a GroupManager,
    tier: &'a UsedTier,
    request: u32,
    pool_tokens: u64,
}

impl<'a> PoolThenTier<'a> {
    pub(super) fn new(
        manager: &'a GroupManager,
        tier: &'a UsedTier,
        (request, pool_tokens): (u32, u64),
    ) -> Self {
        Self {
            manager,
            tier,
            request,
            pool_tokens,
        }
    }
}

impl Presence for PoolThenTier<'_> {
    fn run(&self, group: usize, block: u32, limit: u32) -> u32 {
        let in_pool = self.manager.groups()[group].whole(self.pool_tokens);
        if block < in_pool {
            return limit.min(in_pool - block);
        }
        1 - self.missing(group, block)
    }

    fn missing(&self, group: usize, block: u32) -> u32 {
        let in_pool = self.manager.groups()[group].whole(self.pool_tokens);
        let key = key_of(self.manager, group, self.request, block);
        u32::from(block >= in_pool && !self.tier.contains(key))
    }
}

/// The pool or the tier, block by block.
pub(super) struct PoolOrTier<'a> {
    manager: &'a GroupManager,
    tier: &'a UsedTier,
    request: u32,
}

impl<'a> PoolOrTier<'a> {
    pub(super) fn new(manager: &'a GroupManager, tier: &'a UsedTier, request: u32) -> Self {
        Self {
            manager,
            tier,
            request,
        }
    }
}

impl Presence for PoolOrTier<'_> {
    fn run(&self, group: usize, block: u32, _limit: u32) -> u32 {
        1 - self.missing(group, block)
    }

    fn missing(&self, group: usize, block: u32) -> u32 {
        let key = self.manager.groups()[group].key(self.request, block);
        let groups = self.manager.groups().len() as u64;
        let is_here =
            self.manager.has(group, key) || self.tier.contains(key_in_tier(groups, group, key));
        u32::from(!is_here)
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

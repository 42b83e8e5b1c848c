//! Chunks of one of LMCache's tiers in the order of its cache policy (0.5.6, `storage_backend/cache_policy`).

use std::collections::BTreeSet;

use super::key_index::KeyMap;

/// LMCache's `cache_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkPolicy {
    /// Least recent hit or insertion first.
    Lru,
    /// Fewest hits first; of equals the one that has had so many for longest.
    Lfu,
    /// Oldest insertion first.
    Fifo,
    /// Most recent hit or insertion first.
    Mru,
}

impl ChunkPolicy {
    /// The policy of a name in small letters.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "lru" => Self::Lru,
            "lfu" => Self::Lfu,
            "fifo" => Self::Fifo,
            "mru" => Self::Mru,
            _ => return None,
        })
    }
}

/// The chunks of a tier, by policy.
#[derive(Debug)]
pub struct ChunkOrder {
    policy: ChunkPolicy,
    clock: u64,
    /// Hits (LFU alone) and time of each key.
    at: KeyMap<u64, (u64, u64)>,
    ranked: BTreeSet<(u64, u64, u64)>,
}

impl ChunkOrder {
    /// An empty tier.
    pub fn new(policy: ChunkPolicy) -> Self {
        Self {
            policy,
            clock: 0,
            at: KeyMap::default(),
            ranked: BTreeSet::new(),
        }
    }

    /// How many chunks it has.
    pub fn len(&self) -> u64 {
        self.ranked.len() as u64
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.ranked.is_empty()
    }

    /// Whether it has a chunk.
    pub fn contains(&self, key: u64) -> bool {
        self.at.contains_key(&key)
    }

    /// Adds a chunk that is not here.
    pub fn put(&mut self, key: u64) {
        self.clock += 1;
        self.at.insert(key, (1, self.clock));
        self.ranked.insert((1, self.clock, key));
    }

    /// Counts a hit of a chunk that is here.
    pub fn hit(&mut self, key: u64) {
        if self.policy == ChunkPolicy::Fifo {
            return;
        }
        let Some(rank) = self.at.get_mut(&key) else {
            return;
        };
        self.ranked.remove(&(rank.0, rank.1, key));
        self.clock += 1;
        rank.0 += u64::from(self.policy == ChunkPolicy::Lfu);
        rank.1 = self.clock;
        self.ranked.insert((rank.0, rank.1, key));
    }

    /// Removes and returns the next chunk that `is_kept` does not hold.
    pub fn evict(&mut self, is_kept: impl Fn(u64) -> bool) -> Option<u64> {
        let free = |&&(_, _, key): &&(u64, u64, u64)| !is_kept(key);
        let victim = *if self.policy == ChunkPolicy::Mru {
            self.ranked.iter().rev().find(free)?
        } else {
            self.ranked.iter().find(free)?
        };
        self.ranked.remove(&victim);
        self.at.remove(&victim.2);
        Some(victim.2)
    }

    /// The keys in order: oldest first, under LFU next to be evicted first.
    pub fn keys(&self) -> Vec<u64> {
        self.ranked.iter().map(|&(_, _, key)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_victim() {
        let victim = |policy| {
            let mut order = ChunkOrder::new(policy);
            [1, 2, 3].into_iter().for_each(|key| order.put(key));
            [1, 1, 2, 3].into_iter().for_each(|key| order.hit(key));
            order.evict(|key| key == 9)
        };
        let all = [
            ChunkPolicy::Lru,
            ChunkPolicy::Lfu,
            ChunkPolicy::Fifo,
            ChunkPolicy::Mru,
        ];
        assert_eq!(all.map(victim), [Some(1), Some(2), Some(1), Some(3)]);
        let mut order = ChunkOrder::new(ChunkPolicy::Lru);
        order.put(7);
        assert_eq!((order.evict(|key| key == 7), order.keys()), (None, vec![7]));
    }
}

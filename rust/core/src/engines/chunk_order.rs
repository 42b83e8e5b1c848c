//! Chunks of one of LMCache's tiers in the order of its cache policy (0.5.6, `storage_backend/cache_policy`).

use std::collections::BTreeSet;

use super::key_index::KeyMap;
use super::linked_keys::LinkedKeys;
use crate::names::named_values;

named_values! {
    /// LMCache's `cache_policy`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ChunkPolicy {
        /// Evicts the least recent hit or insertion first.
        Lru = "lru",
        /// Evicts the fewest hits first; of equals, the chunk that reached its count first.
        Lfu = "lfu",
        /// Evicts the oldest insertion first.
        Fifo = "fifo",
        /// Evicts the most recent hit or insertion first.
        Mru = "mru",
    }
}

/// Chunks of a tier, in the policy's order.
#[derive(Debug)]
pub struct ChunkOrder {
    policy: ChunkPolicy,
    chunks: Chunks,
}

/// Chunks in the order of a kind of policy.
#[derive(Debug)]
enum Chunks {
    /// Oldest first.
    Queue(LinkedKeys),
    /// Fewest hits first.
    ByHits(ByHits),
}

/// Chunks by number of hits and time of the last hit.
#[derive(Debug, Default)]
struct ByHits {
    clock: u64,
    at: KeyMap<u64, (u64, u64)>,
    ranked: BTreeSet<(u64, u64, u64)>,
}

impl ByHits {
    fn put(&mut self, key: u64) {
        self.clock += 1;
        self.at.insert(key, (1, self.clock));
        self.ranked.insert((1, self.clock, key));
    }

    fn hit(&mut self, key: u64) {
        let Some(rank) = self.at.get_mut(&key) else {
            return;
        };
        self.ranked.remove(&(rank.0, rank.1, key));
        self.clock += 1;
        *rank = (rank.0 + 1, self.clock);
        self.ranked.insert((rank.0, rank.1, key));
    }

    fn remove(&mut self, key: u64) {
        if let Some((hits, time)) = self.at.remove(&key) {
            self.ranked.remove(&(hits, time, key));
        }
    }

    fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranked.iter().map(|&(_, _, key)| key)
    }
}

impl ChunkOrder {
    /// An empty tier.
    pub fn new(policy: ChunkPolicy) -> Self {
        let chunks = match policy {
            ChunkPolicy::Lfu => Chunks::ByHits(ByHits::default()),
            _ => Chunks::Queue(LinkedKeys::default()),
        };
        Self { policy, chunks }
    }

    /// Returns the number of chunks.
    pub fn len(&self) -> u64 {
        match &self.chunks {
            Chunks::Queue(queue) => queue.len() as u64,
            Chunks::ByHits(chunks) => chunks.ranked.len() as u64,
        }
    }

    /// Returns true if there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if the tier has a chunk.
    pub fn contains(&self, key: u64) -> bool {
        match &self.chunks {
            Chunks::Queue(queue) => queue.contains(key),
            Chunks::ByHits(chunks) => chunks.at.contains_key(&key),
        }
    }

    /// Adds a chunk, which must be absent.
    pub fn put(&mut self, key: u64) {
        match &mut self.chunks {
            Chunks::Queue(queue) => queue.push(key),
            Chunks::ByHits(chunks) => chunks.put(key),
        }
    }

    /// Counts a hit of a chunk, which must be present.
    pub fn hit(&mut self, key: u64) {
        match &mut self.chunks {
            Chunks::ByHits(chunks) => chunks.hit(key),
            Chunks::Queue(queue) if self.policy != ChunkPolicy::Fifo && queue.contains(key) => {
                queue.push(key);
            }
            Chunks::Queue(_) => {}
        }
    }

    /// Removes and returns the next chunk that `is_kept` does not hold.
    pub fn evict(&mut self, is_kept: impl Fn(u64) -> bool) -> Option<u64> {
        let free = |&key: &u64| !is_kept(key);
        match &mut self.chunks {
            Chunks::Queue(queue) => {
                let newest_first = self.policy == ChunkPolicy::Mru;
                let victim = if newest_first {
                    queue.iter_back().find(free)?
                } else {
                    queue.iter().find(free)?
                };
                queue.remove(victim);
                Some(victim)
            }
            Chunks::ByHits(chunks) => {
                let victim = chunks.keys().find(free)?;
                chunks.remove(victim);
                Some(victim)
            }
        }
    }

    /// Returns the keys in order: oldest first, under LFU next to be evicted first.
    pub fn keys(&self) -> Vec<u64> {
        match &self.chunks {
            Chunks::Queue(queue) => queue.iter().collect(),
            Chunks::ByHits(chunks) => chunks.keys().collect(),
        }
    }
}

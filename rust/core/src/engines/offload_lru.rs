//! LRU of vLLM's CPU tier (0.33.0, `kv_offload/cpu/policies/lru.py`).

use super::linked_keys::LinkedKeys;
use super::offload_tier::{Access, OffloadPolicy};

/// Keys in one queue, least recent first.
#[derive(Debug, Default)]
pub struct OffloadLru {
    queue: LinkedKeys,
}

impl OffloadPolicy for OffloadLru {
    fn resident(&self) -> usize {
        self.queue.len()
    }

    fn contains(&self, key: u64) -> bool {
        self.queue.contains(key)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        Box::new(self.queue.iter())
    }

    fn offer(&mut self, _: &[u64]) {}

    fn evict(&mut self, blocks: usize, is_kept: &dyn Fn(u64) -> bool) -> Option<Vec<u64>> {
        let victims: Vec<u64> = self
            .queue
            .iter()
            .filter(|&key| !is_kept(key))
            .take(blocks)
            .collect();
        if victims.len() < blocks {
            return None;
        }
        for &key in &victims {
            self.queue.remove(key);
        }
        Some(victims)
    }

    fn insert(&mut self, key: u64) {
        self.queue.push(key);
    }

    /// Makes the keys of a running request the most recent, the first of them last.
    fn access(&mut self, keys: &[u64]) {
        for &key in keys.iter().rev() {
            if self.queue.contains(key) {
                self.queue.push(key);
            }
        }
    }

    fn finish(&mut self, key: u64, _: Access) {
        if self.queue.contains(key) {
            self.queue.push(key);
        }
    }
}

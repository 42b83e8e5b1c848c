//! ARC of vLLM's CPU tier (0.33.0, `kv_offload/cpu/policies/arc.py`; Megiddo and Modha, FAST 2003).

use super::linked_keys::LinkedKeys;
use super::offload_tier::{Access, ArcSizes, OffloadPolicy};
use crate::convert::{fit, whole};

/// Keys used once, keys used again, and the ghosts of both, least recent first.
#[derive(Debug)]
pub struct OffloadArc {
    capacity: usize,
    t1: LinkedKeys,
    t2: LinkedKeys,
    b1: LinkedKeys,
    b2: LinkedKeys,
    /// Target size of t1.
    target: f64,
}

impl OffloadArc {
    /// An empty tier of `capacity` blocks.
    pub fn new(capacity: usize) -> Self {
        let [t1, t2, b1, b2] = [0; 4].map(|_| LinkedKeys::default());
        Self {
            capacity,
            t1,
            t2,
            b1,
            b2,
            target: 0.0,
        }
    }
}

impl OffloadPolicy for OffloadArc {
    fn resident(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    fn contains(&self, key: u64) -> bool {
        self.t1.contains(key) || self.t2.contains(key)
    }

    fn keys(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        Box::new(self.t1.iter().chain(self.t2.iter()))
    }

    /// Adapts the target: each key that was evicted too early moves it, up for b1, down for b2.
    fn offer(&mut self, keys: &[u64]) {
        for &key in keys.iter().rev() {
            let (once, again) = (self.b1.len() as f64, self.b2.len() as f64);
            if self.b1.contains(key) {
                self.target = (self.target + (again / once).max(1.0)).min(self.capacity as f64);
                self.b1.push(key);
            } else if self.b2.contains(key) {
                self.target = (self.target - (once / again).max(1.0)).max(0.0);
                self.b2.push(key);
            }
        }
    }

    /// Evicts from t1 while it has at least its target size, else from t2; from the other list if one is empty.
    fn evict(&mut self, blocks: usize, is_kept: &dyn Fn(u64) -> bool) -> Option<Vec<u64>> {
        let mut victims = Vec::with_capacity(blocks);
        let mut from_t1 = 0;
        {
            let mut once = self.t1.iter().filter(|&key| !is_kept(key));
            let mut again = self.t2.iter().filter(|&key| !is_kept(key));
            while victims.len() < blocks {
                let full = self.t1.len() - from_t1 >= fit(whole(self.target));
                let first = if full {
                    once.next().map(|key| (key, true))
                } else {
                    None
                };
                let victim = first
                    .or_else(|| again.next().map(|key| (key, false)))
                    .or_else(|| once.next().map(|key| (key, true)))?;
                from_t1 += usize::from(victim.1);
                victims.push(victim);
            }
        }
        for &(key, is_t1) in &victims {
            let (list, ghosts) = if is_t1 {
                (&mut self.t1, &mut self.b1)
            } else {
                (&mut self.t2, &mut self.b2)
            };
            list.remove(key);
            ghosts.push(key);
        }
        for ghosts in [&mut self.b1, &mut self.b2] {
            while ghosts.len() > self.capacity {
                ghosts.pop();
            }
        }
        Some(victims.into_iter().map(|(key, _)| key).collect())
    }

    fn insert(&mut self, key: u64) {
        self.t1.push(key);
        self.b1.remove(key);
        self.b2.remove(key);
    }

    fn finish(&mut self, key: u64, access: Access) {
        if access == Access::Refused {
            return;
        }
        if self.t2.contains(key) {
            self.t2.push(key);
        } else if self.t1.contains(key) {
            if access == Access::Stored {
                self.t1.push(key);
            } else {
                self.t1.remove(key);
                self.t2.push(key);
            }
        }
    }

    fn arc_sizes(&self) -> Option<ArcSizes> {
        let [t1, t2, b1, b2] =
            [&self.t1, &self.t2, &self.b1, &self.b2].map(|list| list.len() as u64);
        Some(ArcSizes {
            t1,
            t2,
            b1,
            b2,
            target: self.target,
        })
    }
}

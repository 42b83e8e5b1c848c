//! Chunks of LMCache's server in the order of its eviction policy (0.5.7, `v1/distributed/eviction_policy`).
//!
//! Of the keys of one call the later ones count as older.

use super::linked_keys::LinkedKeys;
use crate::convert::{fit, whole};
use crate::names::named_values;

named_values! {
    /// The server's `--eviction-policy`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum L1Policy {
        /// Drops the least recent first.
        Lru = "lru",
        /// Balances keys used once against keys used again.
        Arc = "arc",
    }
}

/// Keys used once, keys used again, and the ghosts of both, least recent first; LRU has the first list alone.
#[derive(Debug)]
pub struct L1Order {
    policy: L1Policy,
    t1: LinkedKeys,
    t2: LinkedKeys,
    b1: LinkedKeys,
    b2: LinkedKeys,
    /// Target size of t1.
    target: f64,
    /// The most keys that were present so far: the policy has no capacity.
    most: usize,
}

impl L1Order {
    /// No keys.
    pub fn new(policy: L1Policy) -> Self {
        let [t1, t2, b1, b2] = [0; 4].map(|_| LinkedKeys::default());
        Self {
            policy,
            t1,
            t2,
            b1,
            b2,
            target: 0.0,
            most: 0,
        }
    }

    /// Returns the number of keys that are present.
    pub(super) fn len(&self) -> usize {
        self.t1.len() + self.t2.len()
    }

    /// Returns true if a key is present.
    pub fn contains(&self, key: u64) -> bool {
        self.t1.contains(key) || self.t2.contains(key)
    }

    /// Returns the keys that are present: used once, then used again, the least recent first.
    pub fn keys(&self) -> Vec<u64> {
        self.t1.iter().chain(self.t2.iter()).collect()
    }

    /// Adds the absent keys of one call. ARC learns from those that it dropped too early, and takes none as used
    /// again.
    pub fn write(&mut self, keys: &[u64]) {
        for &key in keys.iter().rev() {
            self.learn(key);
            self.t2.remove(key);
            self.t1.push(key);
            self.most = self.most.max(self.len());
            self.trim();
        }
    }

    /// Adds the absent keys of one call to storage: there ARC takes those that it dropped too early as used again.
    pub fn store(&mut self, keys: &[u64]) {
        for &key in keys.iter().rev() {
            let is_known = self.b1.contains(key) || self.b2.contains(key);
            if is_known && self.policy == L1Policy::Arc {
                self.learn(key);
                self.t2.push(key);
            } else {
                self.t1.push(key);
            }
            self.most = self.most.max(self.len());
            self.trim();
        }
    }

    /// Adapts the target to a key that was dropped too early, which is no ghost then.
    fn learn(&mut self, key: u64) {
        let (once, again) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.remove(key) {
            self.target = (self.target + (again / once).max(1.0)).min(self.most as f64);
        } else if self.b2.remove(key) {
            self.target = (self.target - (once / again).max(1.0)).max(0.0);
        }
    }

    /// Removes a key without a ghost.
    pub fn forget(&mut self, key: u64) {
        self.t1.remove(key);
        self.t2.remove(key);
    }

    /// Renews keys as their write ends; ARC has counted their use.
    pub fn written(&mut self, keys: &[u64]) {
        if self.policy == L1Policy::Lru {
            self.touch(keys);
        }
    }

    /// Renews the present ones of some keys.
    pub fn touch(&mut self, keys: &[u64]) {
        for &key in keys.iter().rev() {
            if !self.contains(key) {
                continue;
            }
            if self.policy == L1Policy::Lru {
                self.t1.push(key);
            } else {
                self.t1.remove(key);
                self.t2.push(key);
            }
        }
    }

    /// Removes and returns the next keys that are not locked: ARC's from t1 while it has its target size, else from t2.
    pub fn evict(&mut self, count: usize, is_locked: impl Fn(u64) -> bool) -> Vec<u64> {
        let target = fit::<usize>(whole(self.target));
        let mut once = self.t1.iter().filter(|&key| !is_locked(key));
        let mut again = self.t2.iter().filter(|&key| !is_locked(key));
        let mut left = self.t1.len();
        let mut dropped = Vec::with_capacity(count.min(self.len()));
        while dropped.len() < count {
            let first = if left >= target { once.next() } else { None };
            let Some(key) = first.or_else(|| again.next()).or_else(|| once.next()) else {
                break;
            };
            left -= usize::from(self.t1.contains(key));
            dropped.push(key);
        }
        drop((once, again));
        for &key in &dropped {
            let ghosts = if self.t1.remove(key) {
                &mut self.b1
            } else {
                self.t2.remove(key);
                &mut self.b2
            };
            if self.policy == L1Policy::Arc {
                ghosts.push(key);
            }
        }
        self.trim();
        dropped
    }

    /// Forgets ghosts beyond the most keys that were present, and beyond twice as many of all.
    fn trim(&mut self) {
        while self.t1.len() + self.b1.len() > self.most && self.b1.pop().is_some() {}
        while self.len() + self.b1.len() + self.b2.len() > 2 * self.most {
            if self.b2.pop().or_else(|| self.b1.pop()).is_none() {
                break;
            }
        }
    }
}

//! Keys of a tier that copies are writing or reading, with a count of copies; these keys must not be evicted.

use super::key_slots::KeySlots;

/// Keys in use, each with the number of its copies.
#[derive(Debug, Default)]
pub struct HeldKeys(KeySlots);

impl HeldKeys {
    /// Holds keys while a copy reads or writes them.
    pub fn hold(&mut self, keys: &[u64]) {
        for &key in keys {
            let copies = self.0.get(key).unwrap_or(0);
            self.0.insert(key, copies + 1);
        }
    }

    /// Releases keys after a `hold`.
    pub fn release_keys(&mut self, keys: &[u64]) {
        for &key in keys {
            match self.0.get(key) {
                Some(1) => drop(self.0.remove(key)),
                Some(copies) => drop(self.0.insert(key, copies - 1)),
                None => {}
            }
        }
    }

    /// Returns true if a key is in use.
    pub fn contains(&self, key: u64) -> bool {
        self.0.get(key).is_some()
    }

    /// Returns the number of keys in use.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of keys in use for which a predicate holds.
    pub fn count(&self, is_so: impl Fn(u64) -> bool) -> u64 {
        self.0.keys().filter(|&key| is_so(key)).count() as u64
    }

    /// Returns the number of the given distinct keys that are in use.
    pub fn among(&self, keys: impl Iterator<Item = u64>) -> usize {
        keys.filter(|&key| self.contains(key)).count()
    }

    /// Returns true if a predicate holds for all keys in use.
    pub fn all(&self, is_so: impl FnMut(u64) -> bool) -> bool {
        self.0.keys().all(is_so)
    }
}

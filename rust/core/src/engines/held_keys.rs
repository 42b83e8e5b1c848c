//! Keys of a tier that are being written or read, by how many copies: they stay.

use super::key_slots::KeySlots;

/// Keys in use, each with the number of its copies.
#[derive(Debug, Default)]
pub struct HeldKeys(KeySlots);

impl HeldKeys {
    /// Keeps keys while a copy reads or writes them.
    pub fn hold(&mut self, keys: &[u64]) {
        for &key in keys {
            let copies = self.0.get(key).unwrap_or(0);
            self.0.insert(key, copies + 1);
        }
    }

    /// Ends a `hold`.
    pub fn release_keys(&mut self, keys: &[u64]) {
        for &key in keys {
            match self.0.get(key) {
                Some(1) => drop(self.0.remove(key)),
                Some(copies) => drop(self.0.insert(key, copies - 1)),
                None => {}
            }
        }
    }

    /// Whether a key is in use.
    pub fn contains(&self, key: u64) -> bool {
        self.0.get(key).is_some()
    }

    /// How many keys are in use.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// How many of the keys in use something holds of.
    pub fn count(&self, is_so: impl Fn(u64) -> bool) -> u64 {
        self.0.keys().filter(|&key| is_so(key)).count() as u64
    }

    /// How many of some different keys are in use.
    pub fn among(&self, keys: impl Iterator<Item = u64>) -> usize {
        keys.filter(|&key| self.contains(key)).count()
    }

    /// Whether something holds of all keys in use.
    pub fn all(&self, is_so: impl FnMut(u64) -> bool) -> bool {
        self.0.keys().all(is_so)
    }
}

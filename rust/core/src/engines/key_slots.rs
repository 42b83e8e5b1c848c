//! Maps from keys to numbers: neighboring keys are adjacent in memory, so the keys of a prompt are close
//! together.

use super::key_index::KeyIndex;
use crate::convert::fit;
use crate::ids::NONE;

/// Keys per page.
const PAGE: u32 = 32;
/// Bit of keys that only one request can have.
const PRIVATE: u64 = 1 << 63;

/// Keys with a number each, below 2^32 − 1; pages without numbers are released.
#[derive(Debug)]
pub struct KeySlots {
    index: KeyIndex,
    /// Bound of the keys for which pages are allocated.
    known: u64,
    len: usize,
}

impl Default for KeySlots {
    /// An empty map.
    fn default() -> Self {
        Self {
            index: KeyIndex::new(0, PAGE),
            known: 0,
            len: 0,
        }
    }
}

impl KeySlots {
    /// Returns how many keys have a number.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of a key.
    pub fn get(&self, key: u64) -> Option<u32> {
        if key & PRIVATE == 0 && key >= self.known {
            return None;
        }
        let (slot, _) = self.index.find(key)?;
        Some(self.index.first(slot)).filter(|&number| number != NONE)
    }

    /// Sets the number of a key. Returns its previous number.
    pub fn insert(&mut self, key: u64, number: u32) -> Option<u32> {
        if key & PRIVATE == 0 && key >= self.known {
            let pages = (key / u64::from(PAGE) + 1).next_power_of_two();
            self.index.know_ids(fit::<u32>(pages));
            self.known = pages * u64::from(PAGE);
        }
        let (slot, _) = self.index.open(key);
        let before = self.index.first(slot);
        if before != NONE {
            self.index.replace(slot, number);
            return Some(before);
        }
        self.index.fill(slot, number);
        self.len += 1;
        None
    }

    /// Removes a key's number and returns it.
    pub fn remove(&mut self, key: u64) -> Option<u32> {
        let number = self.get(key)?;
        let (slot, _) = self.index.find(key)?;
        self.index.clear(slot);
        self.len -= 1;
        Some(number)
    }

    /// Returns the keys that have a number, in an order that must not affect results.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        self.index.filled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_map() {
        let mut slots = KeySlots::default();
        let keys = [0, 31, 32, 7_000_000, PRIVATE | 5, PRIVATE | (9 << 32) | 40];
        for (number, &key) in (0..).zip(&keys) {
            assert_eq!((slots.get(key), slots.insert(key, number)), (None, None));
        }
        assert_eq!(slots.insert(31, 77), Some(1));
        assert_eq!((slots.len(), slots.get(33)), (6, None));
        let mut all: Vec<u64> = slots.keys().collect();
        all.sort_unstable();
        assert_eq!(all, keys);
        for (number, &key) in [0, 77, 2, 3, 4, 5].iter().zip(&keys) {
            assert_eq!(slots.remove(key), Some(*number));
            assert_eq!(slots.remove(key), None);
        }
        assert_eq!((slots.len(), slots.keys().count()), (0, 0));
    }
}

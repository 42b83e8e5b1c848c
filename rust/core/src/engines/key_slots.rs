//! A number for each of some keys: neighbouring keys lie side by side, so that those of a prompt are near each other.

use super::key_index::KeyIndex;
use crate::ids::NONE;

/// Keys of a page of them.
const PAGE: u32 = 32;
/// The bit of keys that only one request can have.
const PRIVATE: u64 = 1 << 63;

/// Keys with a number each, below 2^32 − 1; the pages of keys that have none are given back.
#[derive(Debug)]
pub struct KeySlots {
    index: KeyIndex,
    /// Keys below it have room for their pages.
    known: u64,
    len: usize,
}

impl Default for KeySlots {
    /// No keys.
    fn default() -> Self {
        Self {
            index: KeyIndex::new(0, PAGE),
            known: 0,
            len: 0,
        }
    }
}

impl KeySlots {
    /// How many keys have a number.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of a key.
    pub fn get(&self, key: u64) -> Option<u32> {
        if key & PRIVATE == 0 && key >= self.known {
            return None;
        }
        let (slot, _) = self.index.find(key)?;
        Some(self.index.first(slot)).filter(|&number| number != NONE)
    }

    /// Gives a key a number; the one that it had.
    pub fn insert(&mut self, key: u64, number: u32) -> Option<u32> {
        if key & PRIVATE == 0 && key >= self.known {
            let pages = (key / u64::from(PAGE) + 1).next_power_of_two();
            self.index.know_ids(pages as u32);
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

    /// Takes a key's number away; the one that it had.
    pub fn remove(&mut self, key: u64) -> Option<u32> {
        let number = self.get(key)?;
        let (slot, _) = self.index.find(key)?;
        self.index.clear(slot);
        self.len -= 1;
        Some(number)
    }

    /// The keys that have a number, in an order that no result may show.
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

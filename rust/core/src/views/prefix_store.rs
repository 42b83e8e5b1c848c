//! The global prefix store (seed 000, 3.2 point 3 and 3.4): one entry for each shared prefix of whole blocks.
//!
//! An entry with users, or with an entry one block longer, stays. Otherwise it is evictable but still cached.
//! It is evicted when memory is needed: the least recently used first, and of one access the longest first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::key_map::KeyMap;
use crate::keys::BlockKeys;
use crate::slab::Slab;

/// Id of an entry, valid for as long as the entry has a user.
pub type EntryId = u32;

/// No entry: the parent of a prefix of one block.
pub const NO_ENTRY: EntryId = EntryId::MAX;

/// One shared prefix; seed 000's `GlobalPrefixCacheInfo`.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// Key of its last block: the hash of the prefix.
    key: u64,
    /// The entry one block shorter.
    parent: EntryId,
    blocks: u32,
    /// Number of requests and sessions that use it.
    references: u32,
    /// Number of its users that cannot be evicted themselves, and of pinned entries one block longer.
    pins: u32,
    /// Number of entries one block longer.
    longer: u32,
    /// Order of the last access: one access per release, so equal times do not tie.
    access: u64,
    last_access_ns: u64,
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.references == 0 && self.longer == 0
    }
}

/// An evictable entry, the next victim first: by access, then the longest, then by key.
type Evictable = Reverse<(u64, Reverse<u32>, u64)>;

/// All shared prefixes of one machine. Cost: a look-up per candidate, a heap operation per release; an access
/// walks to the prefix's start.
#[derive(Debug, Default)]
pub struct PrefixStore {
    entries: Slab<Entry>,
    by_key: KeyMap<u64, EntryId>,
    /// Every entry that became unused, each time; entries in use again are skipped.
    evictable: BinaryHeap<Evictable>,
    /// Number of entries that no eviction can free.
    pinned: u64,
}

impl PrefixStore {
    /// Returns the number of blocks of all prefixes, shared blocks counted once.
    pub fn blocks(&self) -> u64 {
        self.by_key.len() as u64
    }

    /// Returns the number of blocks that running requests keep from being evicted.
    pub fn pinned_blocks(&self) -> u64 {
        self.pinned
    }

    /// Returns the entry of the prefix that ends with a block.
    pub fn get(&self, key: u64) -> Option<EntryId> {
        self.by_key.get(&key).copied()
    }

    /// Returns the length in blocks and the entry of the longest cached prefix of a request's first `blocks`
    /// blocks; 0 without an entry. Tries the longest candidate first, down to `shortest_blocks`.
    pub fn longest(
        &self,
        keys: &BlockKeys,
        request: u32,
        blocks: u32,
        shortest_blocks: u64,
    ) -> (u32, EntryId) {
        let candidates = (1..=blocks).rev();
        for length in candidates.take_while(|&n| u64::from(n) >= shortest_blocks) {
            if let Some(entry) = self.get(keys.key(request, length - 1)) {
                return (length, entry);
            }
        }
        (0, NO_ENTRY)
    }

    /// Returns the length of an entry in blocks, its users, and the order of its last access.
    pub fn describe(&self, entry: EntryId) -> (u32, u32, u64) {
        let entry = &self.entries[entry];
        (entry.blocks, entry.references, entry.access)
    }

    /// Returns the time of an entry's last access.
    pub fn last_access_ns(&self, entry: EntryId) -> u64 {
        self.entries[entry].last_access_ns
    }

    /// Adds a missing prefix, one block longer than `parent`.
    pub fn add(&mut self, key: u64, parent: EntryId) -> EntryId {
        let mut blocks = 1;
        if parent != NO_ENTRY {
            let shorter = &mut self.entries[parent];
            shorter.longer += 1;
            blocks += shorter.blocks;
        }
        let entry = Entry {
            key,
            parent,
            blocks,
            ..Entry::default()
        };
        let id = self.entries.keep(entry);
        self.by_key.insert(key, id);
        id
    }

    /// Adds a user of a prefix, and so of every shorter one.
    pub fn acquire(&mut self, entry: EntryId) {
        self.entries[entry].references += 1;
    }

    /// Removes a user of a prefix; without users it becomes evictable but stays cached.
    pub fn release(&mut self, entry: EntryId) {
        self.entries[entry].references -= 1;
        self.offer(entry);
    }

    /// Pins a prefix and every shorter one: they are not evicted.
    pub fn pin(&mut self, mut entry: EntryId) {
        while entry != NO_ENTRY {
            let pinned = &mut self.entries[entry];
            pinned.pins += 1;
            if pinned.pins > 1 {
                return;
            }
            self.pinned += 1;
            entry = pinned.parent;
        }
    }

    /// Ends a `pin`.
    pub fn unpin(&mut self, mut entry: EntryId) {
        while entry != NO_ENTRY {
            let pinned = &mut self.entries[entry];
            pinned.pins -= 1;
            if pinned.pins > 0 {
                return;
            }
            self.pinned -= 1;
            entry = pinned.parent;
        }
    }

    /// Records an access of a prefix, and of every shorter one.
    pub fn touch(&mut self, mut entry: EntryId, access: u64, now_ns: u64) {
        while entry != NO_ENTRY {
            let touched = &mut self.entries[entry];
            (touched.access, touched.last_access_ns) = (access, now_ns);
            entry = touched.parent;
        }
    }

    /// Returns the entry to evict next and the order of its last access; `None` if all are in use.
    pub fn oldest_unused(&mut self) -> Option<(EntryId, u64)> {
        while let Some(&Reverse((access, _, key))) = self.evictable.peek() {
            if let Some(id) = self.get(key) {
                let entry = &self.entries[id];
                if entry.is_unused() && entry.access == access {
                    return Some((id, access));
                }
            }
            // evicted, in use again, or accessed since: listed again then
            self.evictable.pop();
        }
        None
    }

    /// Drops an unused entry; the entry one block shorter may become evictable.
    pub fn evict(&mut self, entry: EntryId) {
        let gone = self.entries.remove(entry);
        self.by_key.remove(&gone.key);
        if gone.parent != NO_ENTRY {
            self.entries[gone.parent].longer -= 1;
            self.offer(gone.parent);
        }
    }

    fn offer(&mut self, id: EntryId) {
        let entry = &self.entries[id];
        if entry.is_unused() {
            let offered = (entry.access, Reverse(entry.blocks), entry.key);
            self.evictable.push(Reverse(offered));
        }
    }

    /// Recounts the entries' relations, given the used and the pinned prefixes, one per user.
    pub fn check(&self, used: &[EntryId], pinned: &[EntryId]) -> Result<(), String> {
        let mut counted = vec![(0u32, 0u32, 0u32); self.entries.len()];
        for &entry in used {
            counted[entry as usize].0 += 1;
        }
        for &entry in pinned {
            let mut at = entry;
            while at != NO_ENTRY {
                counted[at as usize].1 += 1;
                if counted[at as usize].1 > 1 {
                    break;
                }
                at = self.entries[at].parent;
            }
        }
        let mut live = vec![false; self.entries.len()];
        for &entry in self.by_key.values() {
            live[entry as usize] = true;
            let parent = self.entries[entry].parent;
            if parent != NO_ENTRY {
                counted[parent as usize].2 += 1;
            }
        }
        for (at, entry) in self.entries.iter().enumerate().filter(|(at, _)| live[*at]) {
            let said = (entry.references, entry.pins, entry.longer);
            if said != counted[at] {
                let key = entry.key;
                return Err(format!(
                    "I3: the prefix {key} has (users, pins, longer) {said:?}, not {:?}",
                    counted[at]
                ));
            }
        }
        let all = (0..counted.len()).filter(|&at| live[at] && counted[at].1 > 0);
        if all.count() as u64 != self.pinned {
            return Err("I3: pinned prefixes are not those that are pinned".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryId, PrefixStore, NO_ENTRY};
    use crate::keys::BlockKeys;

    fn served(store: &mut PrefixStore, access: u64, chain: &[u64]) -> EntryId {
        let mut last = NO_ENTRY;
        for &key in chain {
            last = match store.get(key) {
                Some(entry) => entry,
                None => store.add(key, last),
            };
        }
        store.acquire(last);
        store.touch(last, access, access * 100);
        store.release(last);
        last
    }

    fn evicted(store: &mut PrefixStore) -> Vec<u64> {
        let mut keys = Vec::new();
        while let Some((entry, _)) = store.oldest_unused() {
            keys.push(store.entries[entry].key);
            store.evict(entry);
        }
        keys
    }

    #[test]
    fn the_longest_candidate_is_found_first_and_nothing_below_the_shortest() {
        let mut store = PrefixStore::default();
        let three = served(&mut store, 1, &[1, 2, 3]);
        let two = store.get(2).unwrap();
        let keys = BlockKeys::of_rows(1, &[[1, 2, 3], [1, 2, 4], [5, 6, 7]]); // a key is its id
        assert_eq!(store.longest(&keys, 0, 3, 1), (3, three));
        assert_eq!(store.longest(&keys, 1, 3, 1), (2, two));
        assert_eq!(store.longest(&keys, 1, 3, 3), (0, NO_ENTRY));
        assert_eq!(store.longest(&keys, 2, 3, 1), (0, NO_ENTRY));
        assert_eq!(store.describe(two), (2, 0, 1));
        assert_eq!((store.blocks(), store.last_access_ns(three)), (3, 100));
    }

    #[test]
    fn the_least_recent_leave_first_and_of_one_access_the_longest() {
        let mut store = PrefixStore::default();
        served(&mut store, 1, &[1, 2, 3]);
        let four = served(&mut store, 2, &[1, 2, 4]);
        served(&mut store, 3, &[5]);
        store.acquire(four);
        store.pin(four);
        assert_eq!(store.pinned_blocks(), 3);
        store.check(&[four], &[four]).unwrap();
        assert_eq!(evicted(&mut store), [3, 5]); // 4 is in use; 1 and 2 are its prefixes
        store.touch(four, 9, 900);
        store.unpin(four);
        store.release(four);
        assert_eq!(evicted(&mut store), [4, 2, 1]);
        assert_eq!((store.blocks(), store.pinned_blocks()), (0, 0));
        store.check(&[], &[]).unwrap();
    }

    #[test]
    fn n_users_of_n_prefixes_of_one_beginning_pin_its_blocks_once() {
        let mut store = PrefixStore::default();
        let trunk = served(&mut store, 1, &[1, 2]);
        let ends: Vec<_> = (10..20).map(|key| store.add(key, trunk)).collect();
        for (n, &end) in (1..).zip(&ends) {
            store.acquire(end);
            store.pin(end);
            assert_eq!(store.pinned_blocks(), 2 + n);
        }
        store.check(&ends, &ends).unwrap();
        for (n, &end) in (1..).zip(&ends) {
            store.unpin(end);
            store.release(end);
            let left = ends.len() as u64 - n;
            assert_eq!(store.pinned_blocks(), if left > 0 { 2 + left } else { 0 });
        }
    }
}

//! The global prefix store (seed 000, 3.2 point 3 and 3.4): one entry for each shared prefix of whole blocks.
//!
//! An entry with users, or with an entry one block longer, stays. Otherwise it is evictable but still cached.
//! It is evicted when memory is needed, or for the size limit: the least recently used first, and of one access
//! the longest first.
//!
//! Requests enter the prefixes that they use or compute, and hold the longest. Under detailed accounting only the
//! size limit evicts entries, and a prefix that it evicts, or that finds no space, is not shared until it is
//! entered again; its blocks stay where they are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{PrefixAdmission, PrefixViewConfig};
use crate::ids::BlockRange;
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
    /// Admission of prefixes for sharing.
    pub admission: PrefixAdmission,
    limit_blocks: Option<u64>,
    /// Prefixes that the size limit evicted or refused since they were last entered.
    left: KeyMap<u64, ()>,
    /// Number of releases.
    pub access: u64,
}

/// Blocks that a request entered as shared prefixes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entered {
    /// Number of blocks that had been entered before.
    pub merged: u64,
    /// Number of entries evicted for the size limit.
    pub evicted: u64,
}

impl PrefixStore {
    /// Creates an empty store of prefixes of whole blocks.
    pub fn new(config: PrefixViewConfig, block_size_tokens: u64) -> Self {
        let block = block_size_tokens.max(1);
        Self {
            admission: PrefixAdmission::new(config, block),
            limit_blocks: config.max_tokens.map(|tokens| tokens / block),
            ..Self::default()
        }
    }

    /// Returns true if it has a size limit.
    pub fn is_limited(&self) -> bool {
        self.limit_blocks.is_some()
    }

    /// Returns how many of a request's first blocks the size limit has left in the store.
    pub fn within_limit(&self, keys: &BlockKeys, request: u32, blocks: u32) -> u32 {
        let has_left = |&block: &u32| self.left.contains_key(&keys.key(request, block));
        let mut checked = 0..if self.left.is_empty() { 0 } else { blocks };
        checked.find(has_left).unwrap_or(blocks)
    }

    /// Holds the longest entry among a request's first `blocks` blocks, and returns it.
    pub fn hold_longest(&mut self, keys: &BlockKeys, request: u32, blocks: u32) -> EntryId {
        let (_, entry) = self.longest(keys, request, blocks, 1);
        self.hold(entry);
        entry
    }

    /// Enters a request's blocks up to `to` as far as they are admitted and find space within the size limit.
    /// Holds the longest entry in place of `held`, and returns it.
    pub fn enter(
        &mut self,
        keys: &BlockKeys,
        request: u32,
        mut held: EntryId,
        to: u32,
    ) -> (EntryId, Entered) {
        let mut entered = Entered::default();
        for block in self.length(held)..to {
            let key = keys.key(request, block);
            let entry = match self.get(key) {
                Some(entry) => {
                    entered.merged += 1;
                    entry
                }
                None if !self.admission.is_admitted(key) => break,
                None if !self.evict_for_one(&mut entered.evicted) => {
                    let left = &mut self.left;
                    keys.each_back(request, BlockRange::new(block, to), |key| {
                        left.insert(key, ());
                    });
                    break;
                }
                None => self.add(key, held),
            };
            self.hold(entry);
            self.end_hold(held);
            held = entry;
        }
        (held, entered)
    }

    /// Evicts for one block within the size limit; false if all entries are in use.
    fn evict_for_one(&mut self, evicted: &mut u64) -> bool {
        while self
            .limit_blocks
            .is_some_and(|limit| self.blocks() >= limit)
        {
            let Some((oldest, _)) = self.oldest_unused() else {
                return false;
            };
            self.left.insert(self.entries[oldest].key, ());
            self.evict(oldest);
            *evicted += 1;
        }
        true
    }

    /// Adds a user of a prefix that keeps it from being evicted.
    pub fn hold(&mut self, entry: EntryId) {
        if entry != NO_ENTRY {
            self.acquire(entry);
            self.pin(entry);
        }
    }

    /// Ends a `hold`, without a use.
    pub fn end_hold(&mut self, entry: EntryId) {
        if entry != NO_ENTRY {
            self.unpin(entry);
            self.release(entry);
        }
    }

    /// Ends a `hold` at the end of a request: the prefix is the most recently used.
    pub fn end_use(&mut self, entry: EntryId) {
        self.access += 1;
        self.touch(entry);
        self.end_hold(entry);
    }

    /// Returns the length of an entry in blocks.
    pub fn length(&self, entry: EntryId) -> u32 {
        if entry == NO_ENTRY {
            0
        } else {
            self.entries[entry].blocks
        }
    }

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
        self.left.remove(&key);
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

    /// Makes a prefix, and every shorter one, the most recently used.
    fn touch(&mut self, mut entry: EntryId) {
        while entry != NO_ENTRY {
            let touched = &mut self.entries[entry];
            touched.access = self.access;
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

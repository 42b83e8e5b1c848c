//! Numbers of 64-bit ids in order of first appearance.

use super::id_hash::mixed;
use crate::ids::NONE;

/// Ids by number, and open tables of numbers with a byte of each id's hash, one for each part of the hashes.
///
/// Memory: none while each id equals its number; otherwise 8 bytes an id and 5.7 to 8.6 of the tables. A table is
/// rebuilt from the ids when it grows, so no two sizes of all exist together. The id after the one found last is
/// compared first, so runs of ids that were new together cost no look-up in a table.
pub struct NumberIndex {
    /// True while each id equals its number: `ids` and the tables are empty then.
    same: bool,
    len: usize,
    ids: Vec<u64>,
    tables: Vec<Table>,
    last: usize,
}

/// Numbers of the ids of one part of the hashes.
#[derive(Clone, Default)]
struct Table {
    slots: Vec<u32>,
    tags: Vec<u8>,
    /// Slots in use, those of removed ids included.
    used: usize,
}

const EMPTY: u8 = 0;
const TABLES: usize = 256;

impl Table {
    /// The first slot of a hash, and its byte.
    #[inline]
    fn first(&self, hash: u64) -> (usize, u8) {
        let within = u128::from(hash << 8) * self.slots.len() as u128;
        ((within >> 64) as usize, (hash >> 40) as u8 | 1)
    }

    fn next(&self, at: usize) -> usize {
        match at + 1 {
            end if end == self.slots.len() => 0,
            next => next,
        }
    }

    /// The number of an id.
    #[inline]
    fn find(&self, id: u64, hash: u64, ids: &[u64]) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let (mut at, tag) = self.first(hash);
        while self.tags[at] != EMPTY {
            let number = self.slots[at] as usize;
            if self.tags[at] == tag && ids.get(number) == Some(&id) {
                return Some(number);
            }
            at = self.next(at);
        }
        None
    }

    fn insert(&mut self, number: u32, hash: u64, ids: &[u64]) {
        if (self.used + 1) * 8 > self.slots.len() * 7 {
            self.grow(ids);
        }
        self.put(number, hash);
    }

    fn put(&mut self, number: u32, hash: u64) {
        let (mut at, tag) = self.first(hash);
        while self.tags[at] != EMPTY {
            at = self.next(at);
        }
        (self.tags[at], self.slots[at]) = (tag, number);
        self.used += 1;
    }

    fn grow(&mut self, ids: &[u64]) {
        let size = (self.slots.len() * 3 / 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![NONE; size]);
        let tags = std::mem::replace(&mut self.tags, vec![EMPTY; size]);
        self.used = 0;
        // all ids are read before the first is put: reads that wait for none of the others
        let hash = |&number: &u32| ids.get(number as usize).map_or(0, |&id| mixed(id));
        let hashes: Vec<u64> = old.iter().map(hash).collect();
        for ((&number, &tag), &hash) in old.iter().zip(&tags).zip(&hashes) {
            if tag != EMPTY && (number as usize) < ids.len() {
                self.put(number, hash);
            }
        }
    }
}

impl NumberIndex {
    /// An empty index; `same` if ids may equal their numbers.
    pub fn new(same: bool) -> Self {
        Self {
            same,
            len: 0,
            ids: Vec::new(),
            tables: Vec::new(),
            last: 0,
        }
    }

    /// Number of ids.
    pub fn count(&self) -> usize {
        self.len
    }

    /// The id of a number.
    pub fn id(&self, number: usize) -> u64 {
        match self.same {
            true => number as u64,
            false => self.ids[number],
        }
    }

    /// The ids by number; empty if each equals its number.
    pub fn into_ids(self) -> Vec<u64> {
        match (0..self.ids.len() as u64).eq(self.ids.iter().copied()) {
            true => Vec::new(),
            false => self.ids,
        }
    }

    /// The number of an id.
    #[inline]
    pub fn find(&mut self, id: u64) -> Option<usize> {
        if self.same {
            return (id < self.len as u64).then_some(id as usize);
        }
        if self.ids.get(self.last + 1) == Some(&id) {
            self.last += 1;
            return Some(self.last);
        }
        self.probe(id)
    }

    fn probe(&mut self, id: u64) -> Option<usize> {
        let hash = mixed(id);
        let table = self.tables.get((hash >> 56) as usize)?;
        let number = table.find(id, hash, &self.ids)?;
        self.last = number;
        Some(number)
    }

    /// Returns true if ids are the next ones of a run that is known; they are found then.
    #[inline]
    pub fn find_run(&mut self, ids: &[u64]) -> Option<usize> {
        let from = match self.same {
            true => ids[0] as usize,
            false => self.last + 1,
        };
        let end = from.checked_add(ids.len())?;
        if end > self.len {
            return None;
        }
        let found = match self.same {
            true => ids.iter().zip(ids[0]..).all(|(&id, at)| id == at),
            false => self.ids[from..end] == *ids,
        };
        self.last = if found { end - 1 } else { self.last };
        found.then_some(from)
    }

    /// Loads the slots of ids that are looked up next, all at once rather than one after another.
    pub fn load(&self, ids: &[u64]) -> u8 {
        let tag = |&id: &u64| {
            let hash = mixed(id);
            let table = self.tables.get((hash >> 56) as usize);
            table.map_or(0, |t| t.tags.get(t.first(hash).0).copied().unwrap_or(0))
        };
        ids.iter().map(tag).fold(0, |all, tag| all | tag)
    }

    /// Appends an id that has no number yet and can be found.
    pub fn add(&mut self, id: u64) {
        self.push(id);
        if self.same {
            return;
        }
        self.last = self.len - 1;
        if self.tables.is_empty() {
            self.tables = vec![Table::default(); TABLES];
            (0..self.last).for_each(|number| self.insert(number));
        }
        self.insert(self.last);
    }

    fn insert(&mut self, number: usize) {
        let hash = mixed(self.ids[number]);
        self.tables[(hash >> 56) as usize].insert(number as u32, hash, &self.ids);
    }

    /// Appends an id that is never looked up.
    pub fn push(&mut self, id: u64) {
        if self.same && id != self.len as u64 {
            self.ids = (0..self.len as u64).collect();
            self.same = false;
        }
        if !self.same {
            self.ids.push(id);
        }
        self.len += 1;
    }

    /// Removes the newest ids, down to `len`.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            // a slot whose number a later id takes leads to that id, which is as good
            self.ids.truncate(len);
            self.len = len;
        }
    }
}

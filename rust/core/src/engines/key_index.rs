//! Index from a block's key to the block: one chunk of slots for each id that has a block.
//!
//! A key is an id and an offset inside it (`keys`), so the blocks of an id are adjacent. A run of keys thus costs one
//! look-up, and memory depends on the resident blocks, not on the ids of the trace.

pub use crate::key_map::{KeyHasher, KeyMap};

use crate::convert::fit;
use crate::ids::NONE;

/// Bit of keys that only one request can have.
const PRIVATE: u64 = 1 << 63;

/// Maps from keys to slots, and from slots to the first block inserted under their key.
#[derive(Debug)]
pub struct KeyIndex {
    blocks_per_id: u32,
    /// Log2 of the slots of a chunk; a chunk has at least one slot per offset.
    shift: u32,
    chunk_of_id: Vec<u32>,
    chunk_of_private: KeyMap<u64, u32>,
    /// First key of each chunk, and the number of its used slots.
    first_key: Vec<u64>,
    taken: Vec<u32>,
    spare: Vec<u32>,
    slots: Vec<u32>,
}

impl KeyIndex {
    /// An empty index for ids below `ids` of `blocks_per_id` blocks each.
    pub fn new(ids: u32, blocks_per_id: u32) -> Self {
        Self {
            blocks_per_id,
            shift: blocks_per_id.next_power_of_two().trailing_zeros(),
            chunk_of_id: vec![NONE; ids as usize],
            chunk_of_private: KeyMap::default(),
            first_key: Vec::new(),
            taken: Vec::new(),
            spare: Vec::new(),
            slots: Vec::new(),
        }
    }

    /// Grows the index for ids below `ids`.
    pub fn know_ids(&mut self, ids: u32) {
        let ids = self.chunk_of_id.len().max(ids as usize);
        self.chunk_of_id.resize(ids, NONE);
    }

    /// Splits a key into its id, of a private key the first key of its chunk, and its offset there.
    fn split(&self, key: u64) -> (u64, u32) {
        let per = u64::from(self.blocks_per_id);
        if key & PRIVATE == 0 {
            return (key / per, fit::<u32>(key % per));
        }
        let slot = (key & 0xFFFF_FFFF) % per;
        (key - slot, fit::<u32>(slot))
    }

    /// Returns a key's offset in its chunk, which need not exist.
    pub fn offset_of(&self, key: u64) -> u32 {
        self.split(key).1
    }

    /// Returns the number of keys from `key` on in its chunk, which need not exist.
    pub fn run(&self, key: u64) -> u32 {
        self.blocks_per_id - self.offset_of(key)
    }

    fn chunk(&self, id: u64) -> Option<u32> {
        let chunk = if id & PRIVATE == 0 {
            self.chunk_of_id[fit::<usize>(id)]
        } else {
            *self.chunk_of_private.get(&id)?
        };
        (chunk != NONE).then_some(chunk)
    }

    /// Returns the slot of a key, if its chunk exists; the next `run` keys have the slots after it.
    pub fn find(&self, key: u64) -> Option<(u32, u32)> {
        let (id, slot) = self.split(key);
        let chunk = self.chunk(id)?;
        Some(((chunk << self.shift) + slot, self.blocks_per_id - slot))
    }

    /// Finds a key's slot as `find` does, and creates the chunk if it is missing.
    pub fn open(&mut self, key: u64) -> (u32, u32) {
        let (id, slot) = self.split(key);
        let chunk = self.chunk(id).unwrap_or_else(|| self.add(id));
        ((chunk << self.shift) + slot, self.blocks_per_id - slot)
    }

    fn add(&mut self, id: u64) -> u32 {
        let chunk = self.spare.pop().unwrap_or_else(|| {
            self.first_key.push(0);
            self.taken.push(0);
            self.slots
                .resize(self.slots.len() + (1 << self.shift), NONE);
            fit::<u32>(self.first_key.len() - 1)
        });
        if id & PRIVATE == 0 {
            self.first_key[chunk as usize] = id * u64::from(self.blocks_per_id);
            self.chunk_of_id[fit::<usize>(id)] = chunk;
        } else {
            self.first_key[chunk as usize] = id;
            self.chunk_of_private.insert(id, chunk);
        }
        chunk
    }

    /// Returns the key of a slot.
    pub fn key(&self, slot: u32) -> u64 {
        self.first_key[(slot >> self.shift) as usize] + u64::from(slot & ((1 << self.shift) - 1))
    }

    /// Returns the first block under the slot's key, or `NONE`.
    pub fn first(&self, slot: u32) -> u32 {
        self.slots[slot as usize]
    }

    /// Sets the first block of an empty slot.
    pub fn fill(&mut self, slot: u32, block: u32) {
        self.slots[slot as usize] = block;
        self.taken[(slot >> self.shift) as usize] += 1;
    }

    /// Sets the first run of consecutive empty slots of a chunk.
    pub fn fill_run(&mut self, slot: u32, slots: u32, run: u32) {
        self.name_run(slot, slots, run);
        self.taken[(slot >> self.shift) as usize] += slots;
    }

    /// Replaces the first run of consecutive used slots.
    pub fn name_run(&mut self, slot: u32, slots: u32, run: u32) {
        self.slots[slot as usize..(slot + slots) as usize].fill(run);
    }

    /// Replaces the first block of a used slot.
    pub fn replace(&mut self, slot: u32, block: u32) {
        self.slots[slot as usize] = block;
    }

    /// Clears a slot, and releases its chunk after the last one.
    pub fn clear(&mut self, slot: u32) {
        self.clear_run(slot, 1);
    }

    /// Clears consecutive slots of a chunk, and releases the chunk after the last one.
    pub fn clear_run(&mut self, slot: u32, slots: u32) {
        self.name_run(slot, slots, NONE);
        let chunk = (slot >> self.shift) as usize;
        self.taken[chunk] -= slots;
        if self.taken[chunk] == 0 {
            let first = self.first_key[chunk];
            if first & PRIVATE == 0 {
                self.chunk_of_id[fit::<usize>(first / u64::from(self.blocks_per_id))] = NONE;
            } else {
                self.chunk_of_private.remove(&first);
            }
            self.spare.push(fit::<u32>(chunk));
        }
    }

    /// Returns true if a slot and the slot before it are in one chunk.
    pub fn joins(&self, slot: u32) -> bool {
        slot & ((1 << self.shift) - 1) != 0
    }

    /// Returns the keys that have a block, chunk by chunk.
    pub fn filled(&self) -> impl Iterator<Item = u64> + '_ {
        let filled = (0..).zip(&self.slots).filter(|(_, &block)| block != NONE);
        filled.map(|(slot, _)| self.key(slot))
    }

    /// Returns the number of keys that have a block.
    pub fn keys(&self) -> u64 {
        self.taken.iter().map(|&n| u64::from(n)).sum()
    }

    /// Returns the bytes on the heap; the map of private chunks is an estimate.
    pub fn heap_bytes(&self) -> usize {
        4 * (self.chunk_of_id.capacity()
            + self.taken.capacity()
            + self.spare.capacity()
            + self.slots.capacity())
            + 8 * self.first_key.capacity()
            + 13 * self.chunk_of_private.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_come_and_go_with_their_blocks() {
        let mut index = KeyIndex::new(3, 3);
        assert_eq!(index.find(4), None);
        let (slot, run) = index.open(4);
        assert_eq!((run, index.key(slot)), (2, 4));
        index.fill(slot, 9);
        assert_eq!(index.first(index.find(4).unwrap().0), 9);
        assert_eq!(index.first(index.find(5).unwrap().0), NONE);
        index.clear(slot);
        assert_eq!((index.find(4), index.keys()), (None, 0));
        let private = PRIVATE | (7 << 32) | 5;
        let (again, run) = index.open(private);
        assert_eq!((run, index.key(again)), (1, private));
    }
}

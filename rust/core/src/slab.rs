//! A slab: records in slots that are reused.

use std::ops::{Deref, DerefMut, Index, IndexMut};

/// Records by slot; also readable as a slice.
#[derive(Clone, Debug, Default)]
pub struct Slab<T> {
    records: Vec<T>,
    /// Free slots.
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    /// Takes a free slot, which still has its last record.
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.records.push(T::default());
            self.records.len() as u32 - 1
        })
    }

    /// Stores a record and returns its slot.
    pub fn keep(&mut self, record: T) -> u32 {
        let slot = self.take();
        self[slot] = record;
        slot
    }

    /// Removes a record; its slot is free.
    pub fn remove(&mut self, slot: u32) -> T {
        self.free(slot);
        std::mem::take(&mut self[slot])
    }

    /// Frees a slot; its record stays until the slot is used again.
    pub fn free(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Slots in use. Cost: free slots times all slots.
    pub fn taken(&self) -> impl Iterator<Item = u32> + '_ {
        let all = 0..self.records.len() as u32;
        all.filter(|slot| !self.free.contains(slot))
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.records[slot as usize]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.records[slot as usize]
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.records
    }
}

impl<T> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.records
    }
}

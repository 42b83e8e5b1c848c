//! Records under handles: each handle is used once in a process. A stale or foreign handle is recognized even
//! if the slot of its record was reused.

use crate::convert::fit;
use std::ops::{Index, IndexMut};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a handle that hold its record's slot; the rest is its serial number.
const INDEX_BITS: u32 = 28;
const INDEX: u64 = (1 << INDEX_BITS) - 1;
/// Handle of an empty slot.
const VACANT: u64 = 0;

/// Serial numbers of all handles of the process. They decide nothing: among the handles of one store a later
/// one is larger, whatever else runs. The first handle is 2³², beyond [`super::NO_MOVE`].
static SERIAL: AtomicU64 = AtomicU64::new(1 << (32 - INDEX_BITS));

#[derive(Clone, Debug)]
struct Slot<T> {
    handle: u64,
    record: T,
}

/// Records by handle. Cost: constant, one comparison more than the access.
#[derive(Clone, Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
        }
    }
}

impl<T: Default> Slots<T> {
    /// Inserts a record; returns its handle.
    pub fn insert(&mut self, record: T) -> u64 {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                self.slots.push(Slot {
                    handle: VACANT,
                    record: T::default(),
                });
                self.slots.len() - 1
            }
        };
        let handle = serial << INDEX_BITS | index as u64;
        self.slots[index] = Slot { handle, record };
        handle
    }

    /// Removes and returns the record of a handle; `None` if the handle has no record.
    pub fn remove(&mut self, handle: u64) -> Option<T> {
        let index = (handle & INDEX) as usize;
        let slot = self.slots.get_mut(index)?;
        if slot.handle != handle || handle == VACANT {
            return None;
        }
        slot.handle = VACANT;
        self.vacant.push(fit::<u32>(index));
        Some(std::mem::take(&mut slot.record))
    }
}

impl<T> Slots<T> {
    /// Returns the record of a handle; `None` if the handle was removed or belongs to another store.
    pub fn get(&self, handle: u64) -> Option<&T> {
        let slot = self.slots.get((handle & INDEX) as usize)?;
        (slot.handle == handle && handle != VACANT).then_some(&slot.record)
    }

    /// Returns the record of a handle, mutable.
    pub fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut((handle & INDEX) as usize)?;
        (slot.handle == handle && handle != VACANT).then_some(&mut slot.record)
    }

    /// Iterates over all records with their handles, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let taken = self.slots.iter().filter(|slot| slot.handle != VACANT);
        taken.map(|slot| (slot.handle, &slot.record))
    }
}

/// Access by handles that are known to be valid.
impl<T> Index<u64> for Slots<T> {
    type Output = T;

    fn index(&self, handle: u64) -> &T {
        let slot = &self.slots[(handle & INDEX) as usize];
        debug_assert_eq!(slot.handle, handle);
        &slot.record
    }
}

impl<T> IndexMut<u64> for Slots<T> {
    fn index_mut(&mut self, handle: u64) -> &mut T {
        let slot = &mut self.slots[(handle & INDEX) as usize];
        debug_assert_eq!(slot.handle, handle);
        &mut slot.record
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn a_handle_names_its_record_until_it_ends() {
        let mut slots = Slots::default();
        let first = slots.insert("first");
        assert_eq!((slots.get(first), slots[first]), (Some(&"first"), "first"));
        assert_eq!(slots.remove(first), Some("first"));
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.iter().count(), 0);
    }

    #[test]
    fn a_stale_handle_is_recognized_after_its_slot_was_reused() {
        let mut slots = Slots::default();
        let stale = slots.insert(1);
        slots.remove(stale);
        let fresh = slots.insert(2);
        assert!(fresh > stale);
        assert_eq!((slots.get(stale), slots.get(fresh)), (None, Some(&2)));
    }

    #[test]
    fn a_foreign_handle_is_recognized() {
        let (mut mine, mut theirs) = (Slots::default(), Slots::default());
        let (a, b) = (mine.insert(1), theirs.insert(2));
        assert_eq!((mine.get(b), theirs.get(a)), (None, None));
        assert_eq!((mine.get(0), mine.get(u64::MAX)), (None, None));
    }
}

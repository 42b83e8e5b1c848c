//! Requests in flight, and the blocks they hold.

use crate::engines::requests::Overlap;

/// The number of running requests that hold each block, and the number of resident blocks that are held.
///
/// A request holds all its blocks from its start until `window` requests run and another starts. A held block
/// is no victim. Cost: 4 bytes per block, one addition per block at the start and one at the end.
#[derive(Debug)]
pub struct Holds {
    running: Overlap,
    ref_counts: Vec<u32>,
    resident: u64,
}

impl Holds {
    /// No requests in flight; `slots` blocks (or runs of blocks) are known, more may come.
    pub fn new(window: u32, slots: usize) -> Self {
        Self {
            running: Overlap::new(window),
            ref_counts: vec![0; slots],
            resident: 0,
        }
    }

    /// The request that ends before the next one starts.
    pub fn before_start(&mut self) -> Option<u32> {
        self.running.before_start()
    }

    /// Start a request; returns the request that ends at once, if requests do not overlap.
    pub fn start(&mut self, request: u32) -> Option<u32> {
        self.running.start(request)
    }

    /// Return true if a request holds a slot.
    pub fn is_held(&self, slot: u32) -> bool {
        self.ref_counts.get(slot as usize).is_some_and(|&n| n > 0)
    }

    /// Hold a slot with so many resident blocks.
    pub fn hold(&mut self, slot: u32, resident: u32) {
        self.grow(slot);
        let ref_counts = &mut self.ref_counts[slot as usize];
        if *ref_counts == 0 {
            self.resident += u64::from(resident);
        }
        *ref_counts += 1;
    }

    fn grow(&mut self, slot: u32) {
        if self.ref_counts.len() <= slot as usize {
            self.ref_counts.resize(slot as usize + 1, 0);
        }
    }

    /// Hold what a slot gave to another one as it is held.
    pub fn split(&mut self, slot: u32, into: u32) {
        self.grow(slot.max(into));
        self.ref_counts[into as usize] = self.ref_counts[slot as usize];
    }

    /// Release a slot with so many resident blocks; returns true if no request holds it now.
    pub fn release(&mut self, slot: u32, resident: u32) -> bool {
        let ref_counts = &mut self.ref_counts[slot as usize];
        *ref_counts -= 1;
        let free = *ref_counts == 0;
        if free {
            self.resident -= u64::from(resident);
        }
        free
    }

    /// Count blocks that became resident at a slot.
    pub fn arrived(&mut self, slot: u32, blocks: u32) {
        if self.is_held(slot) {
            self.resident += u64::from(blocks);
        }
    }

    /// Resident blocks that requests hold.
    pub fn resident(&self) -> u64 {
        self.resident
    }
}

//! Requests in flight, and the blocks they hold.

use crate::engines::requests::Overlap;

/// How many running requests hold each block, and how many resident blocks are held.
///
/// A request holds all its blocks from its start until `window` run and another wants to start. What it
/// holds is no victim. Cost: 4 bytes a block, one addition a block at the start and one at the end.
#[derive(Debug)]
pub struct Holds {
    running: Overlap,
    ref_counts: Vec<u32>,
    resident: u64,
}

impl Holds {
    /// Nothing runs; `slots` blocks (or runs of blocks) can be held.
    pub fn new(window: u32, slots: usize) -> Self {
        Self {
            running: Overlap::new(window),
            ref_counts: vec![0; slots],
            resident: 0,
        }
    }

    /// The request that ends so that another may start.
    pub fn before_start(&mut self) -> Option<u32> {
        self.running.before_start()
    }

    /// Start a request; the one that ends at once where requests do not overlap.
    pub fn start(&mut self, request: u32) -> Option<u32> {
        self.running.start(request)
    }

    /// Whether somebody holds a place.
    pub fn is_held(&self, slot: u32) -> bool {
        self.ref_counts[slot as usize] > 0
    }

    /// Hold a place with so many resident blocks.
    pub fn hold(&mut self, slot: u32, resident: u32) {
        let ref_counts = &mut self.ref_counts[slot as usize];
        if *ref_counts == 0 {
            self.resident += u64::from(resident);
        }
        *ref_counts += 1;
    }

    /// Let go of a place with so many resident blocks; whether nobody holds it now.
    pub fn release(&mut self, slot: u32, resident: u32) -> bool {
        let ref_counts = &mut self.ref_counts[slot as usize];
        *ref_counts -= 1;
        let free = *ref_counts == 0;
        if free {
            self.resident -= u64::from(resident);
        }
        free
    }

    /// Take notice of blocks that arrived at a place.
    pub fn arrived(&mut self, slot: u32, blocks: u32) {
        if self.is_held(slot) {
            self.resident += u64::from(blocks);
        }
    }

    /// Resident blocks that somebody holds.
    pub fn resident(&self) -> u64 {
        self.resident
    }
}

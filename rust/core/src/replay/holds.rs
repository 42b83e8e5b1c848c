//! Requests in flight, and the blocks they hold.

use crate::engines::requests::Overlap;

/// How many running requests hold each block, and how many resident blocks are held.
///
/// A request holds all its blocks from its start until `window` run and another wants to start. What it
/// holds is no victim. Cost: 4 bytes a block, one addition a block at the start and one at the end.
#[derive(Debug)]
pub struct Holds {
    running: Overlap,
    holders: Vec<u32>,
    resident: u64,
}

impl Holds {
    /// Nothing runs; `places` blocks (or runs of blocks) can be held.
    pub fn new(window: u32, places: usize) -> Self {
        Self {
            running: Overlap::new(window),
            holders: vec![0; places],
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
    pub fn is_held(&self, place: u32) -> bool {
        self.holders[place as usize] > 0
    }

    /// Hold a place with so many resident blocks.
    pub fn hold(&mut self, place: u32, resident: u32) {
        let holders = &mut self.holders[place as usize];
        if *holders == 0 {
            self.resident += u64::from(resident);
        }
        *holders += 1;
    }

    /// Let go of a place with so many resident blocks; whether nobody holds it now.
    pub fn release(&mut self, place: u32, resident: u32) -> bool {
        let holders = &mut self.holders[place as usize];
        *holders -= 1;
        let free = *holders == 0;
        if free {
            self.resident -= u64::from(resident);
        }
        free
    }

    /// Take notice of blocks that arrived at a place.
    pub fn arrived(&mut self, place: u32, blocks: u32) {
        if self.is_held(place) {
            self.resident += u64::from(blocks);
        }
    }

    /// Resident blocks that somebody holds.
    pub fn resident(&self) -> u64 {
        self.resident
    }
}

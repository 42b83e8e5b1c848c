//! Blocks that one request holds of a block pool.

/// Neighboring slots whose blocks of one copy a request holds, in the order of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    pub slot: u32,
    pub blocks: u32,
    /// Number of the block among those of its key: see `Run::copy`.
    pub copy: u32,
}

/// Blocks of a request: leading blocks that have their keys, then others.
#[derive(Debug, Clone, Default)]
pub(super) struct Holds {
    /// Positions of the blocks with a key.
    pub keyed_at: Vec<Hold>,
    /// Number of blocks with a key.
    pub keyed: u32,
    pub blocks: u32,
}

impl Holds {
    /// Appends blocks with a key.
    pub fn push(&mut self, slot: u32, blocks: u32, copy: u32) {
        self.keyed += blocks;
        match self.keyed_at.last_mut() {
            Some(last) if last.copy == copy && last.slot + last.blocks == slot => {
                last.blocks += blocks;
            }
            _ => self.keyed_at.push(Hold { slot, blocks, copy }),
        }
    }

    /// Returns the copy of the block in the slot before a given slot, if it is the last block with a key.
    pub fn copy_before(&self, slot: u32) -> Option<u32> {
        let last = self.keyed_at.last()?;
        (last.slot + last.blocks == slot).then_some(last.copy)
    }

    pub fn heap_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Hold>() * self.keyed_at.capacity()
    }
}

//! Blocks on another machine that continue a run of this machine.

use crate::store::Part;

/// The continuation, on one other machine, of a run of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteRun {
    /// The machine.
    pub owner: u32,
    /// Its parts, by the tiers there.
    pub parts: Vec<Part>,
}

impl RemoteRun {
    /// The blocks of the run before a block; `None` if there are none.
    pub fn before(mut self, end: u32) -> Option<Self> {
        self.parts.retain(|part| part.start < end);
        if let Some(last) = self.parts.last_mut() {
            last.end = last.end.min(end);
        }
        (!self.parts.is_empty()).then_some(self)
    }

    /// The block after its last one.
    pub fn end(&self) -> u32 {
        self.parts.last().map_or(0, |part| part.end)
    }
}

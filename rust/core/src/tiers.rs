//! The numbers of the tiers, and routes between them.

/// The tier that computes; the tiers below it are numbered from fast to slow.
pub const GPU: usize = 0;
/// The tier below the GPU: the GPU loads from it, other machines read it, and their blocks are written to it.
pub const STAGING: usize = 1;
/// The number of another machine, in place of a tier's.
pub const REMOTE: usize = 255;

/// The two tiers between which KV moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// The tier that is read.
    pub from: usize,
    /// The tier that is written.
    pub to: usize,
}

impl Route {
    /// Returns the route from a tier to another one.
    pub fn new(from: usize, to: usize) -> Self {
        Self { from, to }
    }

    /// Returns the route from a tier to the one above.
    pub fn up_from(from: usize) -> Self {
        Self { from, to: from - 1 }
    }

    /// Returns true if KV moves to a faster tier.
    pub fn is_up(&self) -> bool {
        self.to < self.from
    }
}

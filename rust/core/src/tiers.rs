//! The numbers of the tiers.

/// The tier that computes; the tiers below it are numbered from fast to slow.
pub const GPU: usize = 0;
/// The tier below the GPU: the GPU loads from it, other machines read it, and their blocks are written to it.
pub const STAGING: usize = 1;
/// The number of another machine, in place of a tier's.
pub const REMOTE: usize = 255;

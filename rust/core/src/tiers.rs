//! The numbers of the tiers.

/// The tier that computes; those below it are numbered from fast to slow.
pub const GPU: usize = 0;
/// The tier below it, from which it is loaded, which other machines read, and on which what they have lands.
pub const STAGING: usize = 1;
/// In place of a tier: another machine.
pub const REMOTE: usize = 255;

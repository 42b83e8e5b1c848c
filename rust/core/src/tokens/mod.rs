//! Tokens from hash ids (seed 002): seed of an id, first draw of a seed, windows of a corpus.
//!
//! - [`seed`]: the child seed of a text, the first 8 bytes of its SHA-256.
//! - [`mersenne`]: Python's `random.Random(seed).randrange(stop)`, bit for bit, many seeds at once.
//! - [`windows`]: rows of token ids written from one start offset per id.

pub mod mersenne;
pub mod seed;
pub mod windows;

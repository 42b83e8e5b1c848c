//! Child seeds: the first 8 bytes, big-endian, of the SHA-256 of a text (seed 002, "Seed Derivation").

use sha2::{Digest, Sha256};
use std::io::Write;

/// The seed of one text.
pub fn seed_of(text: &[u8]) -> u64 {
    let digest = Sha256::digest(text);
    let mut first = [0u8; 8];
    first.copy_from_slice(&digest[..8]);
    u64::from_be_bytes(first)
}

/// The seeds of `"{prefix}{id}"` for each id, in order. Cost: one SHA-256 per id.
///
/// The first draw of each seed is the start of a block's tokens in the corpus:
///
/// ```
/// use kvsim_core::tokens::mersenne::first_randrange;
/// use kvsim_core::tokens::seed::{seed_of, seeds_of_ids};
///
/// let seeds = seeds_of_ids(b"42:hash_id:", &[7, 8]);
/// assert_eq!(seeds[0], seed_of(b"42:hash_id:7"));
/// let starts = first_randrange(&seeds, 1_000).unwrap();
/// assert!(starts.iter().all(|&start| start < 1_000));
/// ```
pub fn seeds_of_ids(prefix: &[u8], ids: &[i64]) -> Vec<u64> {
    let mut text = prefix.to_vec();
    ids.iter()
        .map(|id| {
            text.truncate(prefix.len());
            write!(text, "{id}").expect("writing into memory");
            seed_of(&text)
        })
        .collect()
}

/// The seeds of `prefix` followed by each name, in order.
pub fn seeds_of_names(prefix: &[u8], names: &[&[u8]]) -> Vec<u64> {
    let mut text = prefix.to_vec();
    names
        .iter()
        .map(|name| {
            text.truncate(prefix.len());
            text.extend_from_slice(name);
            seed_of(&text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `int.from_bytes(hashlib.sha256(b"42:worker.corpus").digest()[:8], "big")`.
    #[test]
    fn a_child_seed_is_the_head_of_the_digest() {
        assert_eq!(seed_of(b"42:worker.corpus"), 1454493709370820210);
    }

    #[test]
    fn ids_are_hashed_as_decimal_text() {
        let names: [&[u8]; 3] = [b"0", b"-1", b"9223372036854775807"];
        assert_eq!(
            seeds_of_ids(b"7:hash_id:", &[0, -1, i64::MAX]),
            seeds_of_names(b"7:hash_id:", &names)
        );
    }
}

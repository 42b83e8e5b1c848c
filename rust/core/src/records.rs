//! The history of a store: the digest of its records and, once enabled, its evictions.

use crate::digest::{Digest, Record};
use crate::tiers::GPU;

/// A block that entered a tier (true) or left it: the tier, the direction, and the block's key.
pub type Change = (usize, bool, u64);

/// The rolling hash of a machine's records, the log of its evictions, and the log of entering and leaving
/// blocks.
#[derive(Debug, Default)]
pub struct Records {
    digest: Digest,
    evictions: Option<Vec<(u64, usize, u64)>>,
    changes: Option<Vec<Change>>,
    /// Requests that computed blocks which were found, and the blocks found in all.
    pub not_loaded: Vec<(u32, u32)>,
}

impl Records {
    /// The rolling hash so far.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// Adds a record of an event outside the store.
    pub fn note(&mut self, kind: u8, now_ns: u64, subject: u64, value: u64) {
        self.digest.record(kind, now_ns, subject, value);
    }

    /// Starts logging (time, tier, blocks) of each eviction for [`Records::take_evictions`].
    pub fn log_evictions(&mut self) {
        self.evictions = Some(Vec::new());
    }

    /// Returns the evictions logged since the last call.
    pub fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
        self.evictions
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Starts logging the blocks that enter and leave each tier, for [`Records::take_changes`].
    pub fn log_changes(&mut self) {
        self.changes = Some(Vec::new());
    }

    /// Returns the changes logged since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.changes
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// True if changes are logged.
    pub(crate) fn logs_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Logs a change, if changes are logged.
    pub(crate) fn changed(&mut self, tier: usize, stored: bool, key: u64) {
        if let Some(log) = &mut self.changes {
            log.push((tier, stored, key));
        }
    }

    /// Records that one block of a key left a tier; [`Records::log_eviction`] records the number of one
    /// eviction.
    pub(crate) fn evicted_key(&mut self, tier: usize, key: u64, now_ns: u64) {
        self.digest
            .word(Record::Evict as u64 | (tier as u64) << 8 | now_ns << 16);
        self.digest.word(key);
    }

    /// Records that so many blocks, with unspecified keys, left the GPU.
    pub(crate) fn evicted_blocks(&mut self, blocks: u64, now_ns: u64) {
        self.evicted_from(GPU, blocks, now_ns);
    }

    /// Records that so many blocks, with unspecified keys, left a tier.
    pub(crate) fn evicted_from(&mut self, tier: usize, blocks: u64, now_ns: u64) {
        if blocks > 0 {
            let kind = Record::Evict as u8;
            self.digest.record(kind, now_ns, tier as u64, blocks);
            self.log_eviction(tier, blocks, now_ns);
        }
    }

    /// Logs an eviction, if evictions are logged.
    pub(crate) fn log_eviction(&mut self, tier: usize, blocks: u64, now_ns: u64) {
        if let Some(log) = &mut self.evictions {
            log.push((now_ns, tier, blocks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_are_kept_from_the_asking_on_and_handed_over_once() {
        let mut records = Records::default();
        records.evicted_blocks(3, 10);
        assert_eq!(records.take_evictions(), []);
        records.log_evictions();
        records.evicted_blocks(0, 20);
        records.evicted_blocks(2, 30);
        records.log_eviction(1, 4, 40);
        assert_eq!(records.take_evictions(), [(30, 0, 2), (40, 1, 4)]);
        assert_eq!(records.take_evictions(), []);
    }

    #[test]
    fn no_eviction_is_no_record_and_each_one_changes_the_digest() {
        let mut records = Records::default();
        let before = records.digest();
        records.evicted_blocks(0, 10);
        assert_eq!(records.digest(), before);
        records.evicted_blocks(1, 10);
        let once = records.digest();
        assert_ne!(once, before);
        records.evicted_key(1, 7, 10);
        assert_ne!(records.digest(), once);
    }
}

//! A sample of the ids of rows: leading blocks seen early, exactly, and of the others those with small hashes.

use std::hash::Hasher;

use super::id_hash::{mixed, IdHash};
use super::intern::IdTable;

/// Share and seed of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Share of the ids, above 0 and below 1.
    pub rate: f64,
    /// Seed of the hashes.
    pub seed: u64,
}

impl Sample {
    /// Blocks that each sampled id stands for.
    pub fn inverse(&self) -> u64 {
        (1.0 / self.rate).round().max(1.0) as u64
    }
}

/// Distinct ids that are counted exactly, the first ones of prompts.
const EXACT_IDS: u32 = 1 << 14;
/// Leading ids of a row that may be counted exactly: so many, or four times what a sampled id stands for.
const EXACT_DEPTH: u64 = 256;
/// The group of an id that is counted exactly.
pub const EXACT: u8 = u8::MAX;
/// Disjoint groups of sampled ids.
pub const GROUPS: u8 = 8;

/// A hash whose small values are spread among ids counted up as by chance (splitmix64), unlike those of `mixed`.
#[inline]
fn scattered(id: u64) -> u64 {
    let id = id.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let id = (id ^ id >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let id = (id ^ id >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    id ^ id >> 31
}

/// A row's ids: all of them, and the leading ones counted exactly.
#[derive(Clone, Copy, Debug, Default)]
pub struct SampledRow {
    /// Number of ids.
    pub ids: u32,
    /// Leading ids that are counted exactly.
    pub exact: u32,
}

/// A sampled id.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Its position in its row.
    pub at: u32,
    /// Its group.
    pub group: u8,
}

/// Takes the sampled ids of rows; an id that is not sampled is hashed and nothing else.
///
/// An id is a block with all before it, so blocks counted exactly are whole beginnings of prompts: the shared ones,
/// whose many references a sample would take all or none of, are among them.
pub struct Sampler {
    below: u64,
    seed: u64,
    depth: u32,
    /// True for the numbers of ids counted exactly.
    is_exact: Vec<bool>,
    exact: u32,
    row: SampledRow,
    /// True while all ids of the row were counted exactly.
    at_head: bool,
    /// The sampled ids.
    pub taken: Vec<Taken>,
    /// The rows since the last `clear`.
    pub rows: Vec<SampledRow>,
}

impl Sampler {
    /// A sampler at the first row.
    pub fn new(sample: Sample) -> Self {
        Self {
            below: (sample.rate * 2f64.powi(64)) as u64,
            seed: scattered(mixed(sample.seed)),
            depth: EXACT_DEPTH.max(4 * sample.inverse()) as u32,
            is_exact: Vec::new(),
            exact: 0,
            row: SampledRow::default(),
            at_head: true,
            taken: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Number of ids of the current row.
    pub fn ids(&self) -> u32 {
        self.row.ids
    }

    /// Number of distinct ids that are counted exactly.
    pub fn exact_ids(&self) -> u32 {
        self.exact
    }

    /// Takes the next ids of the row; fails with the index of an id that gets no number.
    #[inline]
    pub fn take(
        &mut self,
        values: &[u64],
        ids: &mut IdTable,
        out: &mut Vec<u32>,
    ) -> Result<(), usize> {
        for (k, &value) in values.iter().enumerate() {
            let hash = scattered(value ^ self.seed);
            if self.at_head || hash < self.below {
                self.take_one(value, hash, ids, out).ok_or(k)?;
            }
            self.row.ids += 1;
        }
        Ok(())
    }

    fn take_one(
        &mut self,
        value: u64,
        hash: u64,
        ids: &mut IdTable,
        out: &mut Vec<u32>,
    ) -> Option<()> {
        let at = self.row.ids;
        if self.at_head {
            self.at_head = at < self.depth && self.counts_exactly(value, ids)?;
            self.row.exact += u32::from(self.at_head);
        }
        if self.at_head || hash < self.below {
            let group = if self.at_head {
                EXACT
            } else {
                hash as u8 % GROUPS
            };
            out.push(ids.number(value)?);
            self.taken.push(Taken { at, group });
        }
        Some(())
    }

    /// True if an id behind ids counted exactly is counted exactly too.
    fn counts_exactly(&mut self, value: u64, ids: &mut IdTable) -> Option<bool> {
        if self.exact == EXACT_IDS && !ids.is_known(value) {
            return Some(false);
        }
        let number = ids.number(value)? as usize;
        if number < self.is_exact.len() {
            return Some(self.is_exact[number]);
        }
        self.is_exact.resize(number, false);
        self.is_exact.push(self.exact < EXACT_IDS);
        self.exact += u32::from(self.exact < EXACT_IDS);
        Some(self.is_exact[number])
    }

    /// The value of an id that is a text or an integer beyond 64 bits.
    pub fn value_of(text: &str) -> u64 {
        let mut hash = IdHash::default();
        hash.write(text.as_bytes());
        hash.finish()
    }

    /// Starts a row.
    pub fn start_row(&mut self) {
        self.row = SampledRow::default();
        self.at_head = true;
    }

    /// Ends a row that was accepted.
    pub fn end_row(&mut self) {
        self.rows.push(self.row);
    }

    /// Forgets the rows, not the ids.
    pub fn clear(&mut self) {
        self.taken.clear();
        self.rows.clear();
    }
}

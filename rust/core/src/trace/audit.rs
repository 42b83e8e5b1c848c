//! Findings over whole traces: broken chains, changing sizes, unknown members, another block size.

use std::collections::BTreeSet;

use super::columns::Counter;
use super::intern::{IdTable, Seen};
use super::problem::Finding;
use crate::ids::NONE;

/// Audits block ids: chains of whole blocks, each block always of one size.
#[derive(Default)]
pub struct ChainAudit {
    broken: Counter,
    sizes: Counter,
}

impl ChainAudit {
    /// Counts the ids of a row of `input` tokens in blocks of `block_size`. Refuses a row in which an id
    /// occurs twice, with the position of the second occurrence, and then counts nothing.
    #[inline]
    pub fn note(
        &mut self,
        ids: &mut IdTable,
        row: &[u32],
        line: u64,
        input: u64,
        block_size: u64,
    ) -> Result<(), usize> {
        let mut parent = NONE;
        let mut odd = false;
        let last = row.len().wrapping_sub(1);
        let whole = block_size.min(u64::from(u32::MAX)) as u32;
        let mut k = 0;
        while k < row.len() {
            let known = ids.known_run(parent, &row[k..last], whole);
            if known > 0 {
                k += known;
                parent = row[k - 1];
            }
            let id = row[k];
            let tokens = if k == last {
                input - k as u64 * block_size
            } else {
                block_size
            };
            let tokens = tokens.min(block_size) as u32;
            let here = Seen { parent, tokens };
            match ids.first_seen(id) {
                None => ids.note_seen(here, line),
                Some(seen) => odd |= seen != here,
            }
            parent = id;
            k += 1;
        }
        if odd {
            self.count(ids, row, line, input, block_size)
        } else {
            Ok(()) // an id that occurs twice has two predecessors, so it cannot be here
        }
    }

    #[cold]
    fn count(
        &mut self,
        ids: &IdTable,
        row: &[u32],
        line: u64,
        input: u64,
        size: u64,
    ) -> Result<(), usize> {
        if let Some(at) = repeated(row) {
            return Err(at);
        }
        let mut parent = NONE;
        let mut left = input;
        for &id in row {
            let tokens = left.min(size) as u32;
            left -= u64::from(tokens);
            let (Some(seen), Some(first)) = (ids.first_seen(id), ids.first_line(id)) else {
                continue; // never: the row was counted
            };
            let name = || ids.name(id);
            if seen.parent != parent {
                self.broken.hit(line, || {
                    format!("id {} of lines {first} and {line}", name())
                });
            }
            if seen.tokens != tokens {
                self.sizes.hit(line, || {
                    format!(
                        "id {} stands for {} tokens at line {first} and for {tokens} at line {line}",
                        name(),
                        seen.tokens
                    )
                });
            }
            parent = id;
        }
        Ok(())
    }

    /// True if an id stood behind another one than at first.
    pub fn is_broken(&self) -> bool {
        self.broken.count > 0
    }

    /// Appends the findings, if any.
    pub fn findings(self, out: &mut Vec<Finding>) {
        let broken = |c: &Counter| {
            format!(
                "{} block references stand behind another block than where their id first stood, so the ids form \
                 no prefix tree; first {}",
                c.count, c.example
            )
        };
        self.broken.into("broken-chain", broken, out);
        let sizes = |c: &Counter| {
            format!(
                "{} block references give an id another size than before; first {}",
                c.count, c.example
            )
        };
        self.sizes.into("id-size", sizes, out);
    }
}

/// The first position whose id occurred before in the row.
fn repeated(row: &[u32]) -> Option<usize> {
    let mut order: Vec<u32> = (0..row.len() as u32).collect();
    order.sort_unstable_by_key(|&k| (row[k as usize], k));
    order
        .windows(2)
        .filter(|w| row[w[0] as usize] == row[w[1] as usize])
        .map(|w| w[1] as usize)
        .min()
}

/// Names of members that no reader recognizes, listed once.
#[derive(Default)]
pub struct UnknownKeys {
    names: BTreeSet<String>,
    rows: Counter,
}

impl UnknownKeys {
    const LISTED: usize = 20;

    /// Counts a row with members that no reader recognizes.
    pub fn note<'a>(&mut self, line: u64, keys: impl Iterator<Item = &'a str>) {
        self.rows.hit(line, String::new);
        for key in keys {
            if self.names.len() < Self::LISTED && !self.names.contains(key) {
                self.names.insert(key.chars().take(60).collect());
            }
        }
    }

    /// Appends the findings, if any.
    pub fn findings(self, out: &mut Vec<Finding>) {
        let list: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let list = list.join(", ");
        let text = |c: &Counter| {
            format!(
                "{} rows carry members that are kept and not used: {list}",
                c.count
            )
        };
        self.rows.into("unknown-key", text, out);
    }
}

/// Power-of-two block sizes that fit the rows read so far.
#[derive(Clone, Copy)]
pub struct BlockSizes(u32);

impl Default for BlockSizes {
    fn default() -> Self {
        BlockSizes((1 << 17) - 1)
    }
}

impl BlockSizes {
    /// Rules out the sizes that do not fit a row of so many input tokens and ids.
    pub fn note(&mut self, input: u64, ids: u64) {
        let mut left = self.0;
        while left != 0 {
            let k = left.trailing_zeros();
            left &= left - 1;
            let floor = input >> k;
            let ceil = floor + u64::from(input & ((1 << k) - 1) != 0);
            if ids != floor && ids != ceil {
                self.0 &= !(1 << k);
            }
        }
    }

    /// The size that fits every row, if there is exactly one.
    pub fn only(self) -> Option<u64> {
        (self.0.count_ones() == 1).then(|| 1 << self.0.trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::{repeated, BlockSizes, ChainAudit, IdTable};

    #[test]
    fn an_id_that_stands_twice_is_found() {
        assert_eq!(repeated(&[1, 2, 3]), None);
        assert_eq!(repeated(&[1, 2, 1, 2]), Some(2));
        for row in [[5u64, 6, 5], [5, 5, 6], [5, 6, 6]] {
            let mut ids = IdTable::default();
            let dense: Vec<u32> = row.iter().map(|&id| ids.number(id).unwrap()).collect();
            assert!(ChainAudit::default()
                .note(&mut ids, &dense, 1, 48, 16)
                .is_err());
        }
    }

    #[test]
    fn lengths_and_counts_name_the_block_size() {
        let mut sizes = BlockSizes::default();
        sizes.note(2358, 147);
        assert_eq!(sizes.only(), Some(16));
        sizes.note(512, 1);
        assert_eq!(sizes.only(), None);
    }
}

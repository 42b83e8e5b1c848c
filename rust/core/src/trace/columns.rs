//! Requests as flat columns, filled row by row; a refused row leaves no trace.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::intern::{IdTable, Seen, NONE};
use super::problem::{Finding, Skipped};

/// Closed loop is off: the row's own arrival counts.
pub const OPEN_LOOP: i64 = -1;
pub const NO_SESSION: i32 = -1;

/// Everything read, one entry a request.
#[derive(Default)]
pub struct Columns {
    pub arrival_ns: Vec<i64>,
    pub input_tokens: Vec<i64>,
    pub output_tokens: Vec<i64>,
    pub id_offsets: Vec<i64>,
    pub block_ids: Vec<u32>,
    pub session: Vec<i32>,
    pub turn: Vec<i32>,
    pub think_ns: Vec<i64>,
    pub is_conversational_turn: Vec<bool>,
    pub session_names: Vec<Arc<str>>,
    /// The members no reader knows, as written, one text a row; empty unless they are asked for.
    pub extra: Vec<String>,
}

/// What a reader hands back beside the columns.
#[derive(Default)]
pub struct Reading {
    pub columns: Columns,
    pub ids: IdTable,
    pub skipped: Skipped,
    pub findings: Vec<Finding>,
    pub lines: u64,
    pub bytes: u64,
    /// An arrival earlier than the one before it was let through.
    pub unordered: bool,
}

/// Session names to numbers, and how many turns each has had.
#[derive(Default)]
pub struct Sessions {
    numbers: HashMap<Arc<str>, i32>,
    pub names: Vec<Arc<str>>,
    pub turns: Vec<i32>,
}

impl Sessions {
    pub fn number(&mut self, name: &str) -> i32 {
        if let Some(&n) = self.numbers.get(name) {
            return n;
        }
        let n = self.names.len() as i32;
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), n);
        self.names.push(name);
        self.turns.push(0);
        n
    }

    pub fn get(&self, name: &str) -> Option<i32> {
        self.numbers.get(name).copied()
    }
}

/// Counts a kind of remark and remembers its first place.
#[derive(Default)]
pub struct Counter {
    pub count: u64,
    pub line: u64,
    pub example: String,
}

impl Counter {
    pub fn hit(&mut self, line: u64, example: impl FnOnce() -> String) {
        if self.count == 0 {
            self.line = line;
            self.example = example();
        }
        self.count += 1;
    }

    /// Add the finding, if it ever happened.
    pub fn into(
        self,
        kind: &'static str,
        text: impl FnOnce(&Self) -> String,
        out: &mut Vec<Finding>,
    ) {
        if self.count > 0 {
            let text = text(&self);
            out.push(Finding {
                kind,
                count: self.count,
                line: self.line,
                text,
            });
        }
    }
}

/// Whether ids are what they claim: chains of whole blocks, each always of one size.
#[derive(Default)]
pub struct ChainAudit {
    broken: Counter,
    sizes: Counter,
}

impl ChainAudit {
    /// Note the ids of an accepted row; returns the position of an id that stands in it twice.
    pub fn repeated(ids: &IdTable, row: &[u32]) -> Option<usize> {
        let mut parent = NONE;
        let chained = row.iter().all(|&id| {
            let good = ids
                .seen
                .get(id as usize)
                .map_or(true, |s| s.parent == parent);
            parent = id;
            good
        });
        let fresh = ids.seen.len() as u32;
        // An id that comes twice in a row has two predecessors; known chains need no further look, and
        // new ids stand in rising order unless one comes back.
        let rising = row
            .iter()
            .filter(|&&id| id >= fresh)
            .try_fold(fresh, |next, &id| (id >= next).then_some(id + 1))
            .is_some();
        if chained && rising {
            return None;
        }
        let mut order: Vec<u32> = (0..row.len() as u32).collect();
        order.sort_unstable_by_key(|&k| (row[k as usize], k));
        order
            .windows(2)
            .filter(|w| row[w[0] as usize] == row[w[1] as usize])
            .map(|w| w[1] as usize)
            .min()
    }

    /// Note the ids of an accepted row of `input` tokens in blocks of `block_size`.
    #[inline]
    pub fn note(&mut self, ids: &mut IdTable, row: &[u32], line: u64, input: u64, block_size: u64) {
        let mut parent = NONE;
        let mut left = input;
        for &id in row {
            let tokens = left.min(block_size) as u32;
            left -= u64::from(tokens);
            match ids.seen.get(id as usize) {
                None => ids.seen.push(Seen {
                    parent,
                    tokens,
                    first_line: line.min(u64::from(u32::MAX)) as u32,
                }),
                Some(&seen) => {
                    if seen.parent != parent {
                        self.broken.hit(line, || {
                            format!(
                                "id {} of lines {} and {line}",
                                ids.name(id),
                                seen.first_line
                            )
                        });
                    }
                    if seen.tokens != tokens {
                        self.sizes.hit(line, || {
                            format!(
                                "id {} stands for {} tokens at line {} and for {tokens} at line {line}",
                                ids.name(id),
                                seen.tokens,
                                seen.first_line
                            )
                        });
                    }
                }
            }
            parent = id;
        }
    }

    pub fn findings(self, out: &mut Vec<Finding>) {
        self.broken.into(
            "broken-chain",
            |c| {
                format!(
                    "{} block references stand behind another block than where their id first stood, so the ids \
                     form no prefix tree; first {}",
                    c.count, c.example
                )
            },
            out,
        );
        self.sizes.into(
            "id-size",
            |c| {
                format!(
                    "{} block references give an id another size than before; first {}",
                    c.count, c.example
                )
            },
            out,
        );
    }
}

/// Names of members no reader knows, listed once.
#[derive(Default)]
pub struct UnknownKeys {
    names: BTreeSet<String>,
    rows: Counter,
}

impl UnknownKeys {
    const LISTED: usize = 20;

    pub fn note<'a>(&mut self, line: u64, keys: impl Iterator<Item = &'a str>) {
        self.rows.hit(line, String::new);
        for key in keys {
            if self.names.len() < Self::LISTED && !self.names.contains(key) {
                self.names.insert(key.chars().take(60).collect());
            }
        }
    }

    pub fn findings(self, out: &mut Vec<Finding>) {
        let list: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let list = list.join(", ");
        self.rows.into(
            "unknown-key",
            |c| {
                format!(
                    "{} rows carry members that are kept and not used: {list}",
                    c.count
                )
            },
            out,
        );
    }
}

/// Which power-of-two block sizes the rows read so far would fit.
#[derive(Clone, Copy)]
pub struct BlockSizes(u32);

impl Default for BlockSizes {
    fn default() -> Self {
        BlockSizes((1 << 17) - 1)
    }
}

impl BlockSizes {
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

    /// The one size that fits every row, if there is exactly one.
    pub fn only(self) -> Option<u64> {
        (self.0.count_ones() == 1).then(|| 1 << self.0.trailing_zeros())
    }
}

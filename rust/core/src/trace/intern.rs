//! Names of blocks to dense numbers in order of first appearance, and what each block was seen as.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// No block: the parent of a first block, or a slot that is free.
pub const NONE: u32 = u32::MAX;

/// One multiplication and a fold: the keys are 64-bit ids, and no order is ever read from the map.
#[derive(Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(self.0 ^ value ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }
}

/// What a block was first seen as: the id before it, and its tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The number of the id before it.
    pub parent: u32,
    /// Tokens that it holds.
    pub tokens: u32,
}

/// The names given so far, of one kind.
pub enum Names {
    /// Ids that are unsigned integers.
    Numbers(Vec<u64>),
    /// Ids that are texts.
    Texts(Vec<Arc<str>>),
}

/// Dense numbers for ids. Small ids go through a table, others through a hash map.
pub struct IdTable {
    direct: Vec<u32>,
    numbers: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    texts: HashMap<Arc<str>, u32>,
    /// Whether the texts are the digits of integers, some of which are negative or beyond 64 bits.
    of_integers: bool,
    /// By number: the id as the trace writes it.
    pub names: Names,
    /// By number: what the block was first seen as.
    pub seen: Vec<Seen>,
    /// The line on which each block first stood.
    pub first_line: Vec<u32>,
}

impl Default for IdTable {
    fn default() -> Self {
        IdTable {
            direct: Vec::new(),
            numbers: HashMap::default(),
            texts: HashMap::new(),
            of_integers: false,
            names: Names::Numbers(Vec::new()),
            seen: Vec::new(),
            first_line: Vec::new(),
        }
    }
}

impl IdTable {
    /// How many different ids there are.
    pub fn len(&self) -> usize {
        match &self.names {
            Names::Numbers(names) => names.len(),
            Names::Texts(names) => names.len(),
        }
    }

    /// Whether no id was seen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the trace calls a block.
    #[cold]
    pub fn name(&self, dense: u32) -> String {
        match &self.names {
            Names::Numbers(names) => names[dense as usize].to_string(),
            Names::Texts(names) => format!("{:?}", names[dense as usize]),
        }
    }

    /// The dense number of an id; None when the ids before were texts, or 2³²−1 exist.
    #[inline]
    pub fn number(&mut self, id: u64) -> Option<u32> {
        if let Some(&dense) = usize::try_from(id).ok().and_then(|i| self.direct.get(i)) {
            if dense != NONE {
                return Some(dense);
            }
        }
        self.number_slow(id)
    }

    fn number_slow(&mut self, id: u64) -> Option<u32> {
        if self.of_integers {
            return self.intern(&id.to_string());
        }
        let next = u32::try_from(self.len()).ok().filter(|&n| n != NONE)?;
        let Names::Numbers(names) = &mut self.names else {
            return None;
        };
        if id >= self.direct.len() as u64 && id < (1 << 20) + 4 * names.len() as u64 {
            let old = self.direct.len() as u64;
            let size = (id + 1).next_power_of_two().max(1 << 14);
            self.direct.resize(size as usize, NONE);
            if !self.numbers.is_empty() {
                for (dense, &name) in names.iter().enumerate() {
                    if (old..size).contains(&name) {
                        self.direct[name as usize] = dense as u32;
                        self.numbers.remove(&name);
                    }
                }
            }
        }
        match self.direct.get_mut(id as usize) {
            Some(slot) if *slot != NONE => return Some(*slot),
            Some(slot) => *slot = next,
            None => match self.numbers.entry(id) {
                std::collections::hash_map::Entry::Occupied(e) => return Some(*e.get()),
                std::collections::hash_map::Entry::Vacant(e) => {
                    e.insert(next);
                }
            },
        }
        names.push(id);
        Some(next)
    }

    /// As `number`, for an id that is a text.
    pub fn text(&mut self, id: &str) -> Option<u32> {
        if let Names::Numbers(names) = &self.names {
            if !names.is_empty() {
                return None;
            }
            self.names = Names::Texts(Vec::new());
        }
        if self.of_integers {
            return None;
        }
        self.intern(id)
    }

    /// As `number`, for an integer of any size and sign, by its canonical digits. From the first one on the
    /// names of all ids are texts.
    #[cold]
    pub fn integer(&mut self, digits: &str) -> Option<u32> {
        match &self.names {
            Names::Numbers(numbers) => {
                let texts: Vec<Arc<str>> = numbers
                    .iter()
                    .map(|number| Arc::from(number.to_string()))
                    .collect();
                self.texts = texts.iter().cloned().zip(0..).collect();
                self.names = Names::Texts(texts);
                self.of_integers = true;
                self.direct.clear();
                self.numbers.clear();
            }
            Names::Texts(_) if !self.of_integers => return None,
            Names::Texts(_) => {}
        }
        self.intern(digits)
    }

    fn intern(&mut self, id: &str) -> Option<u32> {
        if let Some(&dense) = self.texts.get(id) {
            return Some(dense);
        }
        let next = u32::try_from(self.len()).ok().filter(|&n| n != NONE)?;
        let name: Arc<str> = Arc::from(id);
        if let Names::Texts(names) = &mut self.names {
            names.push(Arc::clone(&name));
        }
        self.texts.insert(name, next);
        Some(next)
    }

    /// Forget the newest names, down to `len`.
    pub fn roll_back(&mut self, len: usize) {
        self.seen.truncate(len);
        self.first_line.truncate(len);
        match &mut self.names {
            Names::Numbers(names) => {
                for id in names.drain(len.min(names.len())..) {
                    match self.direct.get_mut(id as usize) {
                        Some(slot) => *slot = NONE,
                        None => {
                            self.numbers.remove(&id);
                        }
                    }
                }
            }
            Names::Texts(names) => {
                for id in names.drain(len.min(names.len())..) {
                    self.texts.remove(&id);
                }
                if names.is_empty() {
                    self.names = Names::Numbers(Vec::new());
                    self.of_integers = false;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IdTable;

    fn add(table: &mut IdTable, id: u64) -> u32 {
        table.number(id).unwrap()
    }

    #[test]
    fn ids_keep_their_number_when_the_table_grows() {
        let mut table = IdTable::default();
        let ids: Vec<u64> = (0..3_000_000u64)
            .map(|k| {
                if k % 3 == 0 {
                    k
                } else {
                    k.wrapping_mul(0x9e37_79b9_7f4a_7c15)
                }
            })
            .collect();
        for (k, &id) in ids.iter().enumerate().take(400_000) {
            assert_eq!(add(&mut table, id), k as u32);
        }
        for (k, &id) in ids.iter().enumerate().take(400_000) {
            assert_eq!(add(&mut table, id), k as u32);
        }
        table.roll_back(10);
        assert_eq!(add(&mut table, ids[9]), 9);
        assert_eq!(add(&mut table, ids[11]), 10);
        assert_eq!(add(&mut table, u64::MAX), 11);
        assert!(table.text("a").is_none());
    }

    #[test]
    fn integers_of_any_size_are_named_by_their_digits() {
        let mut table = IdTable::default();
        assert_eq!(table.number(7), Some(0));
        assert_eq!(table.number(u64::MAX), Some(1));
        assert_eq!(table.integer("-1"), Some(2));
        assert_eq!(table.number(7), Some(0));
        assert_eq!(table.integer("18446744073709551616"), Some(3));
        assert_eq!(table.number(u64::MAX), Some(1));
        assert_eq!(table.number(8), Some(4));
        assert_eq!(table.integer("-1"), Some(2));
        assert_eq!(table.text("7"), None, "a text is no integer");
        table.roll_back(2);
        assert_eq!(table.integer("-1"), Some(2));
        table.roll_back(0);
        assert_eq!(table.text("7"), Some(0));
        assert_eq!(table.integer("-1"), None);
    }

    #[test]
    fn texts_and_numbers_do_not_mix() {
        let mut table = IdTable::default();
        assert_eq!(table.text("0x1f"), Some(0));
        assert_eq!(table.text("0x1f"), Some(0));
        assert_eq!(table.number(3), None);
        table.roll_back(0);
        assert_eq!(table.number(3), Some(0));
    }
}

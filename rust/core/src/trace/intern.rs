//! Names of blocks to dense numbers in order of first appearance, with the facts of each block's first
//! appearance.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::id_hash::IdHash;

use crate::ids::NONE;

/// The first appearance of a block: the id before it, and its tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Number of the preceding id.
    pub parent: u32,
    /// Tokens of the block.
    pub tokens: u32,
}

/// The names so far, of one kind.
pub enum Names {
    /// Ids that are unsigned integers.
    Numbers(Vec<u64>),
    /// Ids that are texts.
    Texts(Vec<Arc<str>>),
}

/// Dense numbers for ids. Small ids go through a table, others through a hash map.
pub struct IdTable {
    direct: Vec<u32>,
    numbers: HashMap<u64, u32, BuildHasherDefault<IdHash>>,
    texts: HashMap<Arc<str>, u32>,
    /// True if the texts are the digits of integers, some negative or beyond 64 bits.
    pub of_integers: bool,
    /// By number from `first` on: the id as the trace writes it.
    pub names: Names,
    /// By number from `first` on: the block's first appearance.
    seen: Vec<Seen>,
    /// Line of each block's first appearance.
    first_line: Vec<u32>,
    /// Numbers before this one are forgotten, except the kept numbers.
    first: u32,
    kept: HashMap<u32, Kept, BuildHasherDefault<IdHash>>,
}

/// Data of a kept number.
struct Kept {
    name: Name,
    seen: Seen,
    first_line: u32,
}

enum Name {
    Number(u64),
    Text(Arc<str>),
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
            first: 0,
            kept: HashMap::default(),
        }
    }
}

impl IdTable {
    /// Number of ids so far.
    pub fn len(&self) -> usize {
        let listed = match &self.names {
            Names::Numbers(names) => names.len(),
            Names::Texts(names) => names.len(),
        };
        self.first as usize + listed
    }

    /// The first appearance of a block; None if the block is new.
    #[inline]
    pub fn first_seen(&self, dense: u32) -> Option<Seen> {
        if dense < self.first {
            return self.kept.get(&dense).map(|kept| kept.seen);
        }
        self.seen.get((dense - self.first) as usize).copied()
    }

    /// The line of a block's first appearance, if stored.
    pub fn first_line(&self, dense: u32) -> Option<u32> {
        if dense < self.first {
            return self.kept.get(&dense).map(|kept| kept.first_line);
        }
        self.first_line.get((dense - self.first) as usize).copied()
    }

    /// Stores the first appearance of the newest block.
    #[inline]
    pub fn note_seen(&mut self, seen: Seen, line: u64) {
        self.seen.push(seen);
        self.first_line.push(line.min(u64::from(u32::MAX)) as u32);
    }

    /// Forgets all ids except `numbers`; a forgotten id that recurs gets a new number.
    pub fn keep(&mut self, numbers: &[u32]) {
        let mut kept = HashMap::default();
        for &number in numbers {
            let known = (self.first_seen(number), self.first_line(number));
            let (Some(seen), Some(first_line)) = known else {
                continue;
            };
            let known = self.kept.remove(&number).map(|kept| kept.name);
            let name = known.unwrap_or_else(|| {
                let at = (number - self.first) as usize;
                match &self.names {
                    Names::Numbers(names) => Name::Number(names[at]),
                    Names::Texts(names) => Name::Text(Arc::clone(&names[at])),
                }
            });
            kept.insert(
                number,
                Kept {
                    name,
                    seen,
                    first_line,
                },
            );
        }
        self.first = self.len() as u32;
        self.direct = Vec::new();
        self.numbers = HashMap::default();
        self.texts = HashMap::new();
        for (&number, known) in &kept {
            match &known.name {
                Name::Number(id) => drop(self.numbers.insert(*id, number)),
                Name::Text(text) => drop(self.texts.insert(Arc::clone(text), number)),
            }
        }
        match &mut self.names {
            Names::Numbers(names) => names.clear(),
            Names::Texts(names) => names.clear(),
        }
        self.seen.clear();
        self.first_line.clear();
        self.kept = kept;
    }

    /// True if no id was read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The trace's name of a block.
    #[cold]
    pub fn name(&self, dense: u32) -> String {
        let shown = |text: &str| match self.of_integers {
            true => text.to_owned(),
            false => format!("{text:?}"),
        };
        if let Some(kept) = self.kept.get(&dense) {
            return match &kept.name {
                Name::Number(id) => id.to_string(),
                Name::Text(text) => shown(text),
            };
        }
        let at = (dense - self.first) as usize;
        match &self.names {
            Names::Numbers(names) => names[at].to_string(),
            Names::Texts(names) => shown(&names[at]),
        }
    }

    /// The dense number of an id; None if earlier ids were texts, or if 2³²−1 ids exist.
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
        // Once ids were forgotten, the next ids may have any value: no table.
        let dense_so_far = self.first == 0;
        if dense_so_far && id >= self.direct.len() as u64 && id < (1 << 20) + 4 * names.len() as u64
        {
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

    /// The dense number of an id that is a text; see `number`.
    pub fn text(&mut self, id: &str) -> Option<u32> {
        if let Names::Numbers(names) = &self.names {
            if !names.is_empty() || self.first > 0 {
                return None;
            }
            self.names = Names::Texts(Vec::new());
        }
        if self.of_integers {
            return None;
        }
        self.intern(id)
    }

    /// The dense number of an integer of any size and sign, by its canonical digits. From the first such id
    /// on, the names of all ids are texts.
    #[cold]
    pub fn integer(&mut self, digits: &str) -> Option<u32> {
        match &self.names {
            Names::Numbers(_) => self.name_by_digits(),
            Names::Texts(_) if !self.of_integers => return None,
            Names::Texts(_) => {}
        }
        self.intern(digits)
    }

    /// Names every id so far by its digits instead of its number, kept ids included.
    fn name_by_digits(&mut self) {
        let Names::Numbers(numbers) = &self.names else {
            return;
        };
        let digits = |number: &u64| -> Arc<str> { Arc::from(number.to_string()) };
        let texts: Vec<Arc<str>> = numbers.iter().map(digits).collect();
        self.texts = texts.iter().cloned().zip(self.first..).collect();
        for (&number, kept) in &mut self.kept {
            if let Name::Number(id) = kept.name {
                let text = digits(&id);
                self.texts.insert(Arc::clone(&text), number);
                kept.name = Name::Text(text);
            }
        }
        self.names = Names::Texts(texts);
        self.of_integers = true;
        self.direct.clear();
        self.numbers.clear();
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

    /// Forgets the newest names, down to `len`.
    pub fn roll_back(&mut self, len: usize) {
        let len = len - self.first as usize;
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
                if names.is_empty() && self.first == 0 {
                    self.names = Names::Numbers(Vec::new());
                    self.of_integers = false;
                }
            }
        }
    }
}

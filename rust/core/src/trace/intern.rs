//! Names of blocks to dense numbers in order of first appearance, with the facts of each block's first
//! appearance.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use super::id_hash::IdHash;
use super::number_index::NumberIndex;
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
    Numbers(NumberIndex),
    /// Ids that are texts.
    Texts(Vec<Arc<str>>),
}

/// Dense numbers for ids.
pub struct IdTable {
    texts: HashMap<Arc<str>, u32>,
    /// True if the texts are the digits of integers, some negative or beyond 64 bits.
    pub of_integers: bool,
    /// By number from `first` on: the id as the trace writes it.
    pub names: Names,
    seen: FirstSeen,
    /// Numbers before this one are forgotten, except the kept numbers.
    first: u32,
    kept: HashMap<u32, Kept, BuildHasherDefault<IdHash>>,
    kept_numbers: HashMap<u64, u32, BuildHasherDefault<IdHash>>,
}

/// The first appearances of blocks by number.
///
/// Most blocks are whole and follow the block numbered before them: one bit each. The others, among them the
/// first new block of each row, have an entry.
#[derive(Default)]
struct FirstSeen {
    len: u32,
    whole_tokens: u32,
    listed: Vec<u64>,
    entries: Vec<Listed>,
}

/// A block with an entry of its own, by its number less the first one.
struct Listed {
    at: u32,
    seen: Seen,
    line: u32,
}

impl FirstSeen {
    #[inline]
    fn get(&self, at: u32, number: u32) -> Option<Seen> {
        if self.is_plain(at) {
            return Some(Seen {
                parent: number - 1,
                tokens: self.whole_tokens,
            });
        }
        if at >= self.len {
            return None;
        }
        let entry = self.entries.partition_point(|e| e.at < at);
        self.entries.get(entry).map(|e| e.seen)
    }

    /// The line of a block, that of the last entry up to it.
    fn line(&self, at: u32) -> Option<u32> {
        let after = self.entries.partition_point(|e| e.at <= at);
        (at < self.len).then(|| self.entries[after - 1].line)
    }

    /// True if a block is whole and follows the block numbered before it.
    #[inline(always)]
    fn is_plain(&self, at: u32) -> bool {
        at < self.len && self.listed[at as usize / 64] >> (at % 64) & 1 == 0
    }

    #[inline]
    fn push(&mut self, seen: Seen, line: u32, number: u32) {
        let at = self.len;
        if at % 64 == 0 {
            self.listed.push(0);
        }
        if at == 0 {
            self.whole_tokens = seen.tokens;
        }
        let whole = seen.tokens == self.whole_tokens;
        let same_row = self.entries.last().is_some_and(|e| e.line == line);
        if !whole || !same_row || Some(seen.parent) != number.checked_sub(1) {
            self.listed[at as usize / 64] |= 1 << (at % 64);
            self.entries.push(Listed { at, seen, line });
        }
        self.len += 1;
    }

    fn truncate(&mut self, len: u32) {
        while self.entries.last().is_some_and(|e| e.at >= len) {
            self.entries.pop();
        }
        self.len = self.len.min(len);
        self.listed.truncate((self.len as usize).div_ceil(64));
        if let (Some(word), used @ 1..) = (self.listed.last_mut(), self.len % 64) {
            *word &= (1 << used) - 1;
        }
    }
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
            texts: HashMap::new(),
            of_integers: false,
            names: Names::Numbers(NumberIndex::new(true)),
            seen: FirstSeen::default(),
            first: 0,
            kept: HashMap::default(),
            kept_numbers: HashMap::default(),
        }
    }
}

impl IdTable {
    /// Number of ids so far.
    pub fn len(&self) -> usize {
        let listed = match &self.names {
            Names::Numbers(names) => names.count(),
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
        self.seen.get(dense - self.first, dense)
    }

    /// Leading ids that follow `parent` as at their first appearance, in blocks of `tokens`, each numbered after the
    /// one before it.
    #[inline]
    pub fn known_run(&self, parent: u32, ids: &[u32], tokens: u32) -> usize {
        if parent == NONE || parent < self.first || tokens != self.seen.whole_tokens {
            return 0;
        }
        let follows =
            |&(&id, next): &(&u32, u32)| id == next && self.seen.is_plain(id - self.first);
        ids.iter().zip(parent + 1..).take_while(follows).count()
    }

    /// The line of a block's first appearance, if stored.
    pub fn first_line(&self, dense: u32) -> Option<u32> {
        if dense < self.first {
            return self.kept.get(&dense).map(|kept| kept.first_line);
        }
        self.seen.line(dense - self.first)
    }

    /// Stores the first appearance of the newest block.
    #[inline]
    pub fn note_seen(&mut self, seen: Seen, line: u64) {
        let number = self.first + self.seen.len;
        let line = line.min(u64::from(u32::MAX)) as u32;
        self.seen.push(seen, line, number);
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
                    Names::Numbers(names) => Name::Number(names.id(at)),
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
        self.kept_numbers = HashMap::default();
        self.texts = HashMap::new();
        for (&number, known) in &kept {
            match &known.name {
                Name::Number(id) => drop(self.kept_numbers.insert(*id, number)),
                Name::Text(text) => drop(self.texts.insert(Arc::clone(text), number)),
            }
        }
        match &mut self.names {
            // a forgotten id gets a new number: no id is known by its value
            Names::Numbers(names) => *names = NumberIndex::new(false),
            Names::Texts(names) => names.clear(),
        }
        self.seen = FirstSeen::default();
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
            Names::Numbers(names) => names.id(at).to_string(),
            Names::Texts(names) => shown(&names[at]),
        }
    }

    /// The dense number of an id; None if earlier ids were texts, or if 2³²−1 ids exist.
    #[inline]
    pub fn number(&mut self, id: u64) -> Option<u32> {
        if let Names::Numbers(names) = &mut self.names {
            if let Some(at) = names.find(id) {
                return Some(self.first + at as u32);
            }
        }
        self.new_number(id)
    }

    /// True if an id has a number.
    pub fn is_known(&mut self, id: u64) -> bool {
        match &mut self.names {
            Names::Numbers(names) => names.find(id).is_some(),
            Names::Texts(_) => false,
        }
    }

    /// Appends the dense numbers of ids; fails with the index of an id that has none, as `number`.
    pub fn numbers(&mut self, ids: &[u64], out: &mut Vec<u32>) -> Result<(), usize> {
        if ids.is_empty() {
            return Ok(());
        }
        if let Names::Numbers(names) = &mut self.names {
            if let Some(at) = names.find_run(ids) {
                let from = self.first + at as u32;
                out.extend(from..from + ids.len() as u32);
                return Ok(());
            }
            std::hint::black_box(names.load(ids));
        }
        for (k, &id) in ids.iter().enumerate() {
            out.push(self.number(id).ok_or(k)?);
        }
        Ok(())
    }

    fn new_number(&mut self, id: u64) -> Option<u32> {
        if self.of_integers {
            return self.intern(&id.to_string());
        }
        let next = u32::try_from(self.len()).ok().filter(|&n| n != NONE)?;
        let Names::Numbers(names) = &mut self.names else {
            return None;
        };
        if let Some(&kept) = self.kept_numbers.get(&id) {
            return Some(kept);
        }
        names.add(id);
        Some(next)
    }

    /// The dense number of an id that is a text; see `number`.
    pub fn text(&mut self, id: &str) -> Option<u32> {
        if let Names::Numbers(names) = &self.names {
            if names.count() > 0 || self.first > 0 {
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
        let digits = |number: u64| -> Arc<str> { Arc::from(number.to_string()) };
        let texts: Vec<Arc<str>> = (0..numbers.count())
            .map(|at| digits(numbers.id(at)))
            .collect();
        self.texts = texts.iter().cloned().zip(self.first..).collect();
        for (&number, kept) in &mut self.kept {
            if let Name::Number(id) = kept.name {
                let text = digits(id);
                self.texts.insert(Arc::clone(&text), number);
                kept.name = Name::Text(text);
            }
        }
        self.names = Names::Texts(texts);
        self.of_integers = true;
        self.kept_numbers.clear();
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
        self.seen.truncate(len as u32);
        match &mut self.names {
            Names::Numbers(names) => names.truncate(len),
            Names::Texts(names) => {
                for id in names.drain(len.min(names.len())..) {
                    self.texts.remove(&id);
                }
                if names.is_empty() && self.first == 0 {
                    self.names = Names::Numbers(NumberIndex::new(true));
                    self.of_integers = false;
                }
            }
        }
    }
}

//! Lists of integers as `DELTA_BINARY_PACKED`, read from one column chunk as they are asked for.

use super::delta::Deltas;
use super::thrift::Reader;

/// The delta encoding, the levels' encoding, and the level of an entry that is there.
const DELTA: i64 = 5;
const RLE: i64 = 3;
const PRESENT: u64 = 2;
/// Values read together.
const WINDOW: usize = 32;
/// More bytes or entries in a page than this are no page of a trace, and more lists no group of its rows: a few bytes
/// may state any number of equal levels.
const MOST_IN_PAGE: usize = 1 << 30;
const MOST_LISTS: usize = 1 << 22;

/// Lists of integers that are never absent, unlike the lists themselves.
#[derive(Default)]
pub struct Lists {
    /// List r has the values `offsets[r]..offsets[r + 1]`.
    pub offsets: Vec<i64>,
    /// The pages not read to their end, the next one last.
    pages: Vec<Deltas>,
    /// The values instead of pages.
    values: Vec<u64>,
    /// Values read.
    at: usize,
}

impl Lists {
    /// Lists whose values are known.
    pub fn of_values(offsets: Vec<i64>, values: Vec<u64>) -> Self {
        Self {
            offsets,
            values,
            ..Self::default()
        }
    }

    /// So many lists of a chunk whose pages are compressed by Snappy, or not at all; None if it has another form.
    pub fn of_chunk(chunk: &[u8], is_snappy: bool, count: usize) -> Option<Self> {
        let mut lists = Self::default();
        let mut reader = Reader { bytes: chunk };
        if count > MOST_LISTS {
            return None;
        }
        while !reader.bytes.is_empty() {
            let mut fields = Vec::new();
            reader.structure(0, &mut fields)?;
            let field = |name: i64| fields.iter().find(|f| f.field == name).map(|f| f.value);
            if [1, 502, 503, 504].map(field) != [Some(0), Some(DELTA), Some(RLE), Some(RLE)] {
                return None;
            }
            let stored = reader.take(usize::try_from(field(3)?).ok()?)?;
            let plain = match is_snappy {
                true => snap::raw::decompress_len(stored).ok()?,
                false => stored.len(),
            };
            let entries = usize::try_from(field(501)?).ok()?;
            if plain.max(entries) > MOST_IN_PAGE || usize::try_from(field(2)?) != Ok(plain) {
                return None;
            }
            let page = match is_snappy {
                true => snap::raw::Decoder::new().decompress_vec(stored).ok()?,
                false => stored.to_vec(),
            };
            lists.page(page, entries as u64, count as u64)?;
        }
        lists.pages.reverse();
        let whole = lists.offsets.len() == count + 1 && lists.offsets[0] == 0;
        whole.then_some(lists)
    }

    /// Reads the levels of a page: where lists begin, at most so many.
    fn page(&mut self, page: Vec<u8>, entries: u64, most: u64) -> Option<()> {
        let mut reader = Reader { bytes: &page };
        let mut levels = || {
            let size = u32::from_le_bytes(*reader.bytes.first_chunk()?);
            reader.take(4)?;
            Some(Levels::of(reader.take(size as usize)?))
        };
        let (mut repeated, mut defined) = (levels()?, levels()?);
        let (mut left, mut count) = (entries, self.offsets.pop().unwrap_or(0));
        let first = count;
        while left > 0 {
            let n = repeated.same(1)?.min(defined.same(2)?).min(left);
            let (again, there) = (repeated.value == 1, defined.value == PRESENT);
            match (again, there) {
                (true, true) => count += n as i64,
                (true, false) => return None,
                _ if self.offsets.len() as u64 + n > most => return None,
                (false, _) => {
                    let starts = (0..n as i64).map(|k| count + k * i64::from(there));
                    self.offsets.extend(starts);
                    count += n as i64 * i64::from(there);
                }
            }
            (repeated.left, defined.left) = (repeated.left - n, defined.left - n);
            left -= n;
        }
        self.offsets.push(count);
        let at = page.len() - reader.bytes.len();
        let values = Deltas::of(page, at)?;
        let fits = values.left as i64 == count - first;
        fits.then(|| self.pages.push(values))
    }

    /// Calls `each` with the values of a list, some at a time, until it fails. Lists are read in their order, and may
    /// be left out. Returns None if the chunk is damaged.
    pub fn list<E>(
        &mut self,
        r: usize,
        mut each: impl FnMut(&[u64]) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        let (start, end) = (self.offsets[r] as usize, self.offsets[r + 1] as usize);
        let mut some = Vec::with_capacity(WINDOW);
        while self.at < end {
            let is_asked = self.at >= start;
            let until = if is_asked { end } else { start };
            some.clear();
            self.take(WINDOW.min(until - self.at), &mut some)?;
            if is_asked {
                if let Err(error) = each(&some) {
                    return Some(Err(error));
                }
            }
        }
        Some(Ok(()))
    }

    fn take(&mut self, mut count: usize, out: &mut Vec<u64>) -> Option<()> {
        if !self.values.is_empty() {
            out.extend_from_slice(self.values.get(self.at..self.at + count)?);
            self.at += count;
            return Some(());
        }
        self.at += count;
        while count > 0 {
            let page = self.pages.last_mut()?;
            let now = count.min(page.left);
            page.take(now, out)?;
            count -= now;
            if page.left == 0 {
                self.pages.pop();
            }
        }
        Some(())
    }
}

/// Levels of one bit or two, as runs of equal ones or packed in groups of eight.
struct Levels<'a> {
    reader: Reader<'a>,
    /// The current level, and how many entries have it.
    value: u64,
    left: u64,
    /// Packed levels that follow, and the bits of the last group read.
    packed: u64,
    bits: u64,
}

impl<'a> Levels<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self {
            reader: Reader { bytes },
            value: 0,
            left: 0,
            packed: 0,
            bits: 0,
        }
    }

    /// Reads on if needed, and returns how many entries have the current level of so many bits.
    fn same(&mut self, width: u64) -> Option<u64> {
        while self.left == 0 {
            if self.packed == 0 {
                let head = self.reader.varint()?;
                if head & 1 == 0 {
                    (self.value, self.left) = (u64::from(self.reader.byte()?), head >> 1);
                    continue;
                }
                self.packed = (head >> 1).checked_mul(8)?;
                continue; // there may be no group
            }
            if self.packed % 8 == 0 {
                let group = self.reader.take(width as usize)?.iter().rev();
                self.bits = group.fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            }
            (self.value, self.left) = (self.bits & ((1 << width) - 1), 1);
            self.bits >>= width;
            self.packed -= 1;
        }
        Some(self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_no_packed_groups_is_passed_over() {
        let mut levels = Levels::of(&[1, 3, 0b1110_0100, 0b0001_1011, 6, 2]);
        let mut found = Vec::new();
        while let Some(same) = levels.same(2) {
            found.push((levels.value, same));
            levels.left = 0;
        }
        let packed = [0, 1, 2, 3, 3, 2, 1, 0].map(|level| (level, 1));
        assert_eq!(found, [&packed[..], &[(2, 3)]].concat());
    }
}

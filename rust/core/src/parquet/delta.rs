//! `DELTA_BINARY_PACKED`: each value as its difference from the value before, packed in as few bits as its
//! miniblock of 32 needs.

use super::bits::{pack, width};
use super::thrift::{varint, zigzag, Reader};

const BLOCK: usize = 128;
const MINIBLOCK: usize = 32;

/// Overflow of differences, which follows the column's physical type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wrap {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
}

impl Wrap {
    fn difference(self, value: i64, before: i64) -> i64 {
        match self {
            Self::I32 => i64::from((value as i32).wrapping_sub(before as i32)),
            Self::I64 => value.wrapping_sub(before),
        }
    }
}

/// Appends the values.
pub fn encode(out: &mut Vec<u8>, values: &[i64], wrap: Wrap) {
    varint(out, BLOCK as u64);
    varint(out, (BLOCK / MINIBLOCK) as u64);
    varint(out, values.len() as u64);
    let Some(&first) = values.first() else {
        return varint(out, 0);
    };
    varint(out, zigzag(first));
    let mut differences = [0i64; BLOCK];
    let mut before = first;
    for block in values[1..].chunks(BLOCK) {
        for (slot, &value) in differences.iter_mut().zip(block) {
            *slot = wrap.difference(value, before);
            before = value;
        }
        encode_block(out, &differences[..block.len()]);
    }
}

fn encode_block(out: &mut Vec<u8>, differences: &[i64]) {
    let least = differences.iter().copied().min().unwrap_or(0);
    let above = |difference: i64| difference.wrapping_sub(least) as u64;
    varint(out, zigzag(least));
    let mut widths = [0u8; BLOCK / MINIBLOCK];
    for (own, miniblock) in widths.iter_mut().zip(differences.chunks(MINIBLOCK)) {
        *own = width(miniblock.iter().fold(0, |bits, &d| bits | above(d)));
    }
    out.extend_from_slice(&widths);
    for (own, miniblock) in widths.iter().zip(differences.chunks(MINIBLOCK)) {
        let filled = std::iter::repeat_n(0, MINIBLOCK - miniblock.len());
        pack(out, miniblock.iter().map(|&d| above(d)).chain(filled), *own);
    }
}

/// The values of a page, read as they are asked for.
pub struct Deltas {
    /// The page, and `PADDING` zeros.
    page: Vec<u8>,
    /// The miniblock after the current one, or the next block.
    at: usize,
    /// Values of a miniblock, and miniblocks of a block.
    shape: (usize, usize),
    /// Values not read yet.
    pub left: usize,
    /// The value before the next one, and the least difference of the block.
    value: u64,
    least: u64,
    /// Bits of a difference in each miniblock of the block that is left, the next one last.
    widths: Vec<u8>,
    /// Of the current miniblock: where it begins, its bits a difference, and values read.
    start: usize,
    width: usize,
    read: usize,
}

/// Bytes behind a page, so that each difference is read by one load.
const PADDING: usize = 16;

impl Deltas {
    /// The values that begin at a position of a page; None if their head is damaged.
    pub fn of(mut page: Vec<u8>, at: usize) -> Option<Self> {
        let mut reader = Reader {
            bytes: page.get(at..)?,
        };
        let mut number = || usize::try_from(reader.varint()?).ok();
        let (block, minis, left) = (number()?, number()?, number()?);
        let size = block.checked_div(minis)?;
        if block > 1 << 16 || size == 0 || size % MINIBLOCK != 0 {
            return None;
        }
        let value = reader.signed()? as u64;
        let at = page.len() - reader.bytes.len();
        page.extend([0; PADDING]);
        Some(Self {
            page,
            at,
            shape: (size, minis),
            left,
            value,
            least: 0,
            widths: Vec::new(),
            // the first value as the last of a miniblock without differences
            start: 0,
            width: 0,
            read: size - 1,
        })
    }

    /// Appends the next values; None if the page ends before them.
    pub fn take(&mut self, mut count: usize, out: &mut Vec<u64>) -> Option<()> {
        self.left = self.left.checked_sub(count)?;
        while count > 0 {
            if self.read == self.shape.0 {
                self.next_miniblock()?;
            }
            let now = count.min(self.shape.0 - self.read);
            let (mut value, least) = (self.value, self.least);
            if self.width == 0 {
                let step = |k| value.wrapping_add(least.wrapping_mul(k));
                out.extend((1..=now as u64).map(step));
                value = step(now as u64);
            } else {
                let mask = u64::MAX >> (64 - self.width);
                let bits = (self.read..self.read + now).map(|k| k * self.width);
                out.extend(bits.map(|bit| {
                    let word = self.page.get(self.start + bit / 8..);
                    let word = word.and_then(<[u8]>::first_chunk).copied();
                    let above = u128::from_le_bytes(word.unwrap_or_default()) >> (bit % 8);
                    value = value.wrapping_add(least).wrapping_add(above as u64 & mask);
                    value
                }));
            }
            self.value = value;
            self.read += now;
            count -= now;
        }
        Some(())
    }

    fn next_miniblock(&mut self) -> Option<()> {
        let end = self.page.len() - PADDING;
        if self.widths.is_empty() {
            let mut reader = Reader {
                bytes: self.page.get(self.at..end)?,
            };
            self.least = reader.signed()? as u64;
            self.widths.extend(reader.take(self.shape.1)?.iter().rev());
            self.at = end - reader.bytes.len();
        }
        self.width = usize::from(self.widths.pop()?);
        (self.start, self.read) = (self.at, 0);
        self.at += self.shape.0 * self.width / 8;
        (self.width <= 64 && self.at <= end).then_some(())
    }
}

//! `DELTA_BINARY_PACKED`: each value as its difference from the value before, packed in as few bits as its
//! miniblock of 32 needs.

use super::bits::{pack, width};
use super::thrift::{varint, zigzag};

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

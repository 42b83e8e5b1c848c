//! `RLE_DICTIONARY`: each value as its index in a list of the distinct values, with run lengths of equal
//! values.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::bits::{pack, width};
use super::thrift::varint;

/// Most distinct values of a dictionary.
const MOST: usize = 1 << 14;
/// A column with more than `VARIED` distinct values among its first `GLANCE` gets no dictionary.
const GLANCE: usize = 1024;
const VARIED: usize = 256;
/// Values that are packed together.
const GROUP: usize = 8;

/// A hash of integers; the order of the map reaches no result.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_i64(i64::from(byte));
        }
    }

    fn write_i64(&mut self, value: i64) {
        self.0 = (self.0 ^ value as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 ^= self.0 >> 32;
    }
}

/// The distinct values in order of first appearance and the index of each value; `None` if there are many.
pub fn distinct(values: &[i64]) -> Option<(Vec<i64>, Vec<u32>)> {
    let mut slots = HashMap::<i64, u32, BuildHasherDefault<Spread>>::default();
    let (mut words, mut codes) = (Vec::new(), Vec::with_capacity(values.len()));
    for (row, &value) in values.iter().enumerate() {
        let code = *slots.entry(value).or_insert_with(|| {
            words.push(value);
            (words.len() - 1) as u32
        });
        codes.push(code);
        if words.len() > MOST || (row == GLANCE && words.len() > VARIED) {
            return None;
        }
    }
    Some((words, codes))
}

/// Appends indices into `words` distinct values, after a byte with the bits per index.
pub fn encode(out: &mut Vec<u8>, codes: &[u32], words: usize) {
    let bits = width(words.saturating_sub(1) as u64).max(1);
    out.push(bits);
    let (mut at, mut pending) = (0, 0);
    while at < codes.len() {
        let same = codes[at..].iter().take_while(|&&c| c == codes[at]).count();
        if same >= GROUP {
            packed(out, &codes[pending..at], bits);
            varint(out, (same as u64) << 1);
            let code = codes[at].to_le_bytes();
            out.extend_from_slice(&code[..usize::from(bits).div_ceil(8)]);
            at += same;
            pending = at;
        } else {
            at = (at + GROUP).min(codes.len());
        }
    }
    packed(out, &codes[pending..], bits);
}

fn packed(out: &mut Vec<u8>, codes: &[u32], bits: u8) {
    if codes.is_empty() {
        return;
    }
    let groups = codes.len().div_ceil(GROUP);
    varint(out, (groups as u64) << 1 | 1);
    let filled = std::iter::repeat_n(0, groups * GROUP - codes.len());
    pack(out, codes.iter().map(|&c| u64::from(c)).chain(filled), bits);
}

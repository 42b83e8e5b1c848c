//! A hash of block ids: fast, and the same in every run.

use std::hash::Hasher;

/// One multiplication and a fold: keys are 64-bit ids, and the map's order is never read.
#[derive(Default)]
pub struct IdHash(u64);

impl Hasher for IdHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = mixed(self.0 ^ value);
    }
}

/// The hash of one id.
#[inline]
pub fn mixed(id: u64) -> u64 {
    let wide = u128::from(id ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
    (wide >> 64) as u64 ^ wide as u64
}

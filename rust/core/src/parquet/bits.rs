//! Bit-packed integers, the lowest bit first.

/// Number of bits of the largest value.
pub fn width(largest: u64) -> u8 {
    (64 - largest.leading_zeros()) as u8
}

/// Appends every value in `width` bits; the last byte is padded with zeros.
pub fn pack(out: &mut Vec<u8>, values: impl Iterator<Item = u64>, width: u8) {
    if width == 0 {
        return;
    }
    let (mut held, mut bits) = (0u128, 0u32);
    for value in values {
        held |= u128::from(value) << bits;
        bits += u32::from(width);
        if bits >= 64 {
            out.extend_from_slice(&(held as u64).to_le_bytes());
            held >>= 64;
            bits -= 64;
        }
    }
    let left = bits.div_ceil(8) as usize;
    out.extend_from_slice(&held.to_le_bytes()[..left]);
}

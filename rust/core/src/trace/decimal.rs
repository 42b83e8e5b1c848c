//! Decimal text to integers, exactly: no float is involved.

/// `text` × `unit` rounded half to even, or None if it does not fit or is not a JSON-like number.
///
/// `46.927` at 1,000,000 ns per ms is 46,927,000. Exponents are accepted.
pub fn scaled(text: &[u8], unit: u64) -> Option<i64> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        _ => (false, text),
    };
    let split = digits.iter().position(|c| matches!(c, b'e' | b'E'));
    let (mantissa, exponent) = match split {
        Some(at) => (
            &digits[..at],
            std::str::from_utf8(&digits[at + 1..])
                .ok()?
                .parse::<i32>()
                .ok()?,
        ),
        None => (digits, 0),
    };
    let mut value: u128 = 0;
    let mut scale = exponent;
    let mut seen_point = false;
    let mut seen_digit = false;
    let mut lost = false; // non-zero digits beyond 128 bits
    for &c in mantissa {
        match c {
            b'.' if !seen_point => seen_point = true,
            b'0'..=b'9' => {
                seen_digit = true;
                if value < 1_000_000_000_000_000_000_000_000 {
                    value = value * 10 + u128::from(c - b'0');
                    scale -= i32::from(seen_point);
                } else {
                    lost |= c != b'0';
                    scale += i32::from(!seen_point);
                }
            }
            _ => return None,
        }
    }
    if !seen_digit {
        return None;
    }
    let mut product = value.checked_mul(u128::from(unit))?;
    if product == 0 {
        return Some(0);
    }
    while scale > 0 {
        product = product.checked_mul(10)?;
        if product > u128::from(u64::MAX) {
            return None;
        }
        scale -= 1;
    }
    let rounded = if scale < -38 {
        0
    } else {
        let divisor = 10u128.pow(scale.unsigned_abs());
        let (whole, rest) = (product / divisor, product % divisor);
        let half = divisor / 2;
        let up = rest > half || (rest == half && divisor > 1 && (lost || whole % 2 == 1));
        whole + u128::from(up)
    };
    let magnitude = i64::try_from(rounded).ok()?;
    Some(if negative { -magnitude } else { magnitude })
}

/// Appends integers as a JSON list, `[1, 2, 3]`; the one after another is counted up in its digits.
pub fn push_list(values: impl Iterator<Item = u64>, out: &mut Vec<u8>) {
    // up to 20 digits, a comma and a space, copied as one piece of fixed length
    let mut text = [0; 24];
    let (mut digits, mut last) = (0, 0u64);
    out.push(b'[');
    for value in values {
        let next = digits > 0 && last.checked_add(1) == Some(value);
        if !(next && count_up(&mut text[..digits])) {
            digits = write_digits(value, &mut text);
            text[digits..digits + 2].copy_from_slice(b", ");
        }
        last = value;
        let from = out.len();
        out.extend_from_slice(&text);
        out.truncate(from + digits + 2);
    }
    if digits > 0 {
        out.truncate(out.len() - 2);
    }
    out.push(b']');
}

/// Adds one to a number in digits; false if it needs one digit more.
fn count_up(digits: &mut [u8]) -> bool {
    for digit in digits.iter_mut().rev() {
        if *digit != b'9' {
            *digit += 1;
            return true;
        }
        *digit = b'0';
    }
    false
}

/// Writes the digits of a number to the front of `out`, and returns how many they are.
fn write_digits(mut value: u64, out: &mut [u8]) -> usize {
    let mut digits = [0; 20];
    let mut from = digits.len();
    while from == digits.len() || value > 0 {
        from -= 1;
        digits[from] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    let count = digits.len() - from;
    out[..count].copy_from_slice(&digits[from..]);
    count
}

#[cfg(test)]
mod tests {
    use super::{push_list, scaled};

    #[test]
    fn lists_are_written_as_json() {
        for values in [
            vec![],
            vec![0],
            vec![8, 9, 10, 11, 99, 100, 7],
            vec![u64::MAX, 0, 1, 999_999_999, 1_000_000_000],
        ] {
            let mut out = Vec::new();
            push_list(values.iter().copied(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("{values:?}"));
        }
    }

    #[test]
    fn milliseconds_become_nanoseconds_by_text() {
        let ms = |t: &str| scaled(t.as_bytes(), 1_000_000);
        assert_eq!(ms("46.927"), Some(46_927_000));
        assert_eq!(ms("0"), Some(0));
        assert_eq!(ms("3000"), Some(3_000_000_000));
        assert_eq!(ms("1e3"), Some(1_000_000_000));
        assert_eq!(ms("1.5E-3"), Some(1_500));
        assert_eq!(ms("-2.5"), Some(-2_500_000));
        assert_eq!(ms("9007199254740993"), None);
        assert_eq!(ms("8007199254740.993001"), Some(8_007_199_254_740_993_001));
        assert_eq!(ms("1e309"), None);
        assert_eq!(ms("1e-309"), Some(0));
        assert_eq!(ms("0.0000005"), Some(0));
        assert_eq!(ms("0.0000015"), Some(2));
        assert_eq!(ms("."), None);
    }
}

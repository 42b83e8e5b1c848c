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

#[cfg(test)]
mod tests {
    use super::scaled;

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

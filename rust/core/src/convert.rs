//! Conversions to narrower integers, checked: a number that does not fit is a fault of the core, never a smaller number.
//!
//! Clippy denies a narrowing `as` in the packages that move blocks and requests; they convert here.

/// Converts a number to another integer type.
///
/// # Panics
/// If the number is out of the type's range: a fault of the core, which Python reports in one line.
#[inline]
#[track_caller]
#[must_use]
pub fn fit<To>(from: impl TryInto<To>) -> To {
    let Ok(to) = from.try_into() else {
        out_of_range() // in a closure it would not know the caller
    };
    to
}

#[cold]
#[inline(never)]
#[track_caller]
fn out_of_range() -> ! {
    panic!("a count is out of the range of its type")
}

/// Cuts a number's fraction off: below 0, and for a NaN, 0; above the range, the largest.
#[inline]
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_is_kept() {
        assert_eq!(fit::<u32>(u64::from(u32::MAX)), u32::MAX);
        assert_eq!((whole(-1.0), whole(f64::NAN), whole(2.9)), (0, 0, 2));
    }

    #[test]
    #[should_panic(expected = "out of the range")]
    fn what_does_not_fit_is_no_smaller_number() {
        let _: u32 = fit(1_u64 << 32);
    }
}

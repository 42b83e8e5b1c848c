//! Dates with the time of day to nanoseconds since 1970, exactly.

/// `2023-11-16 18:15:46.6805900`, also with `T` and with an offset such as `+00:00` or `Z`.
pub fn nanoseconds(text: &str) -> Option<i64> {
    let (date, time) = text.split_once([' ', 'T'])?;
    let [year, month, day] = numbers(date, '-')?;
    let (time, offset_s) = offset(time)?;
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(clock, ':')?;
    if !(1970..2262).contains(&year) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let ns: i64 = format!("{fraction:0<9}").parse().ok()?;
    let days = days_since_1970(year, month, day)?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s;
    seconds.checked_mul(1_000_000_000)?.checked_add(ns)
}

/// So many numbers of one to four digits.
fn numbers<const N: usize>(text: &str, by: char) -> Option<[i64; N]> {
    let mut parts = text.split(by);
    let mut found = [0; N];
    for number in &mut found {
        let part = parts.next()?;
        if !(1..=4).contains(&part.len()) || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// The time of day without its offset from UTC, and that offset in seconds.
fn offset(time: &str) -> Option<(&str, i64)> {
    if let Some(plain) = time.strip_suffix('Z') {
        return Some((plain, 0));
    }
    let Some(at) = time.find(['+', '-']) else {
        return Some((time, 0));
    };
    let [hours, minutes] = numbers(&time[at + 1..], ':')?;
    if hours > 23 || minutes > 59 {
        return None;
    }
    let seconds = hours * 3_600 + minutes * 60;
    let sign = if time.as_bytes()[at] == b'-' { -1 } else { 1 };
    Some((&time[..at], sign * seconds))
}

/// Days from 1970-01-01 in the Gregorian calendar; None for a date that does not exist.
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [
        31,
        if leap { 29 } else { 28 },
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let length = lengths.get(usize::try_from(month).ok()?.checked_sub(1)?)?;
    if !(1..=*length).contains(&day) {
        return None;
    }
    let before = year - 1;
    let leaps = before / 4 - before / 100 + before / 400 - 477; // 477 leap days before 1970
    let months: i64 = lengths.iter().take(month as usize - 1).sum();
    Some((year - 1970) * 365 + leaps + months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn dates_are_exact() {
        assert_eq!(nanoseconds("1970-01-01 00:00:00"), Some(0));
        assert_eq!(
            nanoseconds("2000-03-01 00:00:00"),
            Some(951_868_800_000_000_000)
        );
        assert_eq!(
            nanoseconds("2023-11-16 18:15:46.6805900"),
            Some(1_700_158_546_680_590_000)
        );
        assert_eq!(
            nanoseconds("2024-05-10 00:00:00.009930+00:00"),
            Some(1_715_299_200_009_930_000)
        );
        assert_eq!(
            nanoseconds("2024-05-10T02:00:00+02:00"),
            nanoseconds("2024-05-10 00:00:00Z")
        );
        for bad in [
            "",
            "2023-02-29 00:00:00",
            "2023-11-16",
            "2023-11-16 25:00:00",
            "2023-13-01 00:00:00",
            "2023-11-16 00:00:00+24:00",
            "2023-11-16 00:00:00+9223372036854775807:00",
            "2023-11-16 00:00:00+-1:00",
            "x y",
        ] {
            assert_eq!(nanoseconds(bad), None, "{bad}");
        }
    }
}

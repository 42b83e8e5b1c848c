//! Values of named members, read strictly: lengths, times, names and truth values, for all readers of JSON.

use std::borrow::Cow;

use super::super::decimal;
use super::super::problem::Refusal;
use super::Cursor;

/// Largest accepted length; a larger one is treated as damage.
pub const MOST_TOKENS: u64 = i32::MAX as u64;

/// A length in tokens.
#[inline]
pub fn length(c: &mut Cursor, key: &str, per_token: u64) -> Result<u64, Refusal> {
    let value = integer(c, key, 1, MOST_TOKENS)?;
    Ok(if per_token > 1 {
        (value / per_token).max(1)
    } else {
        value
    })
}

/// Reads an integer from `least` to `most`.
#[inline]
pub fn integer(c: &mut Cursor, key: &str, least: u64, most: u64) -> Result<u64, Refusal> {
    let from = c.at;
    if let Some(value) = whole_number(c).filter(|v| (least..=most).contains(v)) {
        return Ok(value);
    }
    c.at = from;
    odd_integer(c, key, least, most)
}

/// A run of at most 18 digits that ends a value; after None the cursor's position is undefined.
#[inline]
fn whole_number(c: &mut Cursor) -> Option<u64> {
    let from = c.at;
    let mut value = 0u64;
    while c.peek().is_ascii_digit() && c.at < from + 18 {
        value = value * 10 + u64::from(c.peek() - b'0');
        c.at += 1;
    }
    let plain = c.at > from && (c.at == from + 1 || c.text[from] != b'0');
    (plain && matches!(c.peek(), b',' | b'}' | b' ')).then_some(value)
}

#[cold]
fn odd_integer(c: &mut Cursor, key: &str, least: u64, most: u64) -> Result<u64, Refusal> {
    let from = c.at;
    if c.at >= c.text.len() {
        return Err(c.unexpected("an integer"));
    }
    let expected = format!("an integer from {least} to {most}");
    let number = matches!(c.peek(), b'-' | b'0'..=b'9');
    if number {
        let text = c.number()?;
        let value = std::str::from_utf8(text)
            .ok()
            .and_then(|t| t.parse::<u64>().ok());
        if let Some(value) = value.filter(|v| (least..=most).contains(v)) {
            return Ok(value);
        }
    }
    let got = c.excerpt(from);
    let what = if number {
        let least_said = if least == 1 { "≥ 1" } else { "≥ 0" };
        format!("{key} must be an integer {least_said}")
    } else {
        format!("{key} is no number")
    };
    let hint = if got.starts_with('"') {
        "write it without quotes"
    } else {
        ""
    };
    Err(c
        .problem(from, "length", what)
        .got(got)
        .expected(expected)
        .hint(hint))
}

/// Reads an integer from -`most` to `most`.
pub fn signed(c: &mut Cursor, key: &str, most: u64) -> Result<i64, Refusal> {
    let from = c.at;
    let negative = c.peek() == b'-' && c.text.get(from + 1).is_some_and(u8::is_ascii_digit);
    c.at += usize::from(negative);
    let Some(value) = whole_number(c).filter(|&v| v <= most) else {
        c.at = from;
        let got = c.excerpt(from);
        let what = format!("{key} must be an integer");
        let expected = format!("an integer from -{most} to {most}");
        return Err(c
            .problem(from, "priority", what)
            .got(got)
            .expected(expected));
    };
    Ok(if negative {
        -(value as i64)
    } else {
        value as i64
    })
}

/// A time in units of `unit` nanoseconds, decimal text scaled exactly.
#[inline]
pub fn time(c: &mut Cursor, key: &str, unit: u64) -> Result<i64, Refusal> {
    let from = c.at;
    let wrong = |c: &Cursor, what: &str| {
        let got = c.excerpt(from);
        let hint = if got.starts_with('"') {
            "write it without quotes"
        } else {
            ""
        };
        c.problem(from, "time", format!("{key} {what}"))
            .got(got)
            .expected("a finite number ≥ 0")
            .hint(hint)
    };
    if c.at < c.text.len() && !matches!(c.peek(), b'-' | b'0'..=b'9') {
        return Err(wrong(c, "is no number"));
    }
    if let Some(whole) = whole_number(c).and_then(|v| i64::try_from(v.checked_mul(unit)?).ok()) {
        return Ok(whole);
    }
    c.at = from;
    let text = c.number()?;
    let value = decimal::scaled(text, unit).ok_or_else(|| wrong(c, "is out of range"))?;
    if value < 0 {
        return Err(wrong(c, "is negative"));
    }
    Ok(value)
}

/// Reads a value, or null as none.
pub fn optional<T>(
    c: &mut Cursor,
    value: impl FnOnce(&mut Cursor) -> Result<T, Refusal>,
) -> Result<Option<T>, Refusal> {
    if c.peek() == b'n' {
        c.skip_value()?;
        return Ok(None);
    }
    value(c).map(Some)
}

/// A name: a string, an integer by its digits, or null for none.
pub fn name<'a>(c: &mut Cursor<'a>, key: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
    let from = c.at;
    match c.peek() {
        b'"' => return Ok(Some(c.string()?)),
        b'n' => {
            c.skip_value()?;
            return Ok(None);
        }
        b'-' | b'0'..=b'9' => {
            let text = c.number()?;
            if let Ok(text) = std::str::from_utf8(text) {
                if text.bytes().all(|b| b == b'-' || b.is_ascii_digit()) {
                    return Ok(Some(Cow::Borrowed(text)));
                }
            }
        }
        _ if c.at >= c.text.len() => return Err(c.unexpected("a name")),
        _ => {}
    }
    Err(c
        .problem(from, "session", format!("{key} is no name"))
        .got(c.excerpt(from))
        .expected("a string or an integer"))
}

/// Reads `true` or `false`.
pub fn truth(c: &mut Cursor, key: &str) -> Result<bool, Refusal> {
    let from = c.at;
    match c.skip_value()? {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(c
            .problem(from, "json", format!("{key} is no truth value"))
            .got(c.excerpt(from))
            .expected("true or false")),
    }
}

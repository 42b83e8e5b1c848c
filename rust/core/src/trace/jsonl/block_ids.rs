//! The array of block ids: most of a trace's bytes, so plain runs of digits are read eight at a time.

use std::borrow::Cow;

use super::super::intern::IdTable;
use super::super::json::Cursor;
use super::super::problem::Refusal;
use super::super::sampler::Sampler;
use super::destination::Destination;

/// An id that is not a plain run of digits.
enum Odd<'a> {
    Text(Cow<'a, str>),
    Number(u64),
    /// The digits of an integer beyond 64 bits, or below 0.
    Integer(&'a str),
}

impl Odd<'_> {
    fn number(&self, ids: &mut IdTable) -> Option<u32> {
        match self {
            Self::Text(text) => ids.text(text),
            Self::Number(value) => ids.number(*value),
            Self::Integer(digits) => ids.integer(digits),
        }
    }

    fn value(&self) -> u64 {
        match self {
            Self::Number(value) => *value,
            Self::Text(text) => Sampler::value_of(text),
            Self::Integer(digits) => Sampler::value_of(digits),
        }
    }
}

/// Reads an id that is an integer of any size and sign, or a text.
#[cold]
fn odd_id<'a>(c: &mut Cursor<'a>) -> Result<Odd<'a>, Refusal> {
    let from = c.at;
    let wrong = |c: &Cursor, what: &str| {
        Err(c
            .problem(from, "id", what)
            .got(c.excerpt(from))
            .expected("an integer, or a string"))
    };
    match c.peek() {
        b'"' => {
            let text = c.string()?;
            if text.is_empty() {
                return wrong(c, "empty block id");
            }
            Ok(Odd::Text(text))
        }
        b'-' | b'0'..=b'9' => {
            let text = c.number()?;
            match std::str::from_utf8(text)
                .ok()
                .and_then(|t| t.parse::<u64>().ok())
            {
                Some(value) => Ok(Odd::Number(value)),
                None if is_integer(text) => Ok(Odd::Integer(canonical(text))),
                None => wrong(c, "block id that is no integer"),
            }
        }
        _ if c.at >= c.text.len() => Err(c.unexpected("a block id")),
        _ => wrong(c, "not a block id"),
    }
}

fn is_integer(text: &[u8]) -> bool {
    text.strip_prefix(b"-")
        .unwrap_or(text)
        .iter()
        .all(u8::is_ascii_digit)
}

/// The digits of an integer as they are hashed: JSON has no leading zeros, but a zero with a sign.
fn canonical(text: &[u8]) -> &str {
    match text {
        b"-0" => "0",
        _ => std::str::from_utf8(text).unwrap_or_default(),
    }
}

#[cold]
fn mixed_ids(c: &Cursor, from: usize, mixed: bool) -> Refusal {
    if !mixed {
        return c.problem(from, "id", "more than 2³²−1 distinct block ids");
    }
    c.problem(from, "id", "block ids of two kinds in one trace")
        .got(c.excerpt(from))
        .expected("integers only, or strings only")
}

/// Reads the array of ids and interns them, or the sampled ones; false for null.
pub fn block_ids(c: &mut Cursor, into: &mut Destination) -> Result<bool, Refusal> {
    if c.peek() != b'[' {
        return no_ids(c);
    }
    c.at += 1;
    if c.take(b']') {
        return Ok(true);
    }
    let text = c.text;
    let byte = |at: usize| text.get(at).copied().unwrap_or(0);
    let mut at = c.at;
    let mut plain = Plain::default();
    loop {
        while matches!(byte(at), b' ' | b'\t' | b'\r') {
            at += 1;
        }
        let from = at;
        let value;
        (value, at) = plain_number(text, at);
        match value {
            Some(value) if matches!(byte(at), b',' | b']' | b' ') => {
                if plain.len == 0 {
                    plain.from = from;
                }
                plain.push(value);
                if byte(at) == b',' {
                    at = plain.push_alike(text, from, at);
                }
                if plain.len == WINDOW {
                    plain.flush(c, into)?;
                }
            }
            _ => {
                plain.flush(c, into)?;
                c.at = from;
                let odd = odd_id(c)?;
                at = c.at;
                let (ids, out) = (&mut *into.ids, &mut *into.references);
                let pushed = match &mut into.sampler {
                    Some(sampler) => sampler.take(&[odd.value()], ids, out).ok(),
                    None => odd.number(ids).map(|dense| out.push(dense)),
                };
                pushed.ok_or_else(|| no_number(c, from, ids))?;
            }
        }
        if byte(at) == b',' {
            at += 1;
            continue;
        }
        plain.flush(c, into)?;
        c.at = at;
        if c.take(b']') {
            return Ok(true);
        }
        if !c.take(b',') {
            return Err(c.unexpected("a comma or ] in the array of block ids"));
        }
        at = c.at;
    }
}

/// Ids looked up together.
pub const WINDOW: usize = 32;

/// Ids that are plain runs of digits, not looked up yet, and where the first one stands.
#[derive(Default)]
struct Plain {
    values: [u64; WINDOW],
    len: usize,
    from: usize,
}

impl Plain {
    #[inline(always)]
    fn push(&mut self, value: u64) {
        self.values[self.len] = value;
        self.len += 1;
    }

    /// Adds the ids after the newest one, whose digits are `text[from..end]`, that differ from it in a last digit
    /// counted up by one each: they are compared, not read. Returns where to read on.
    #[inline(always)]
    fn push_alike(&mut self, text: &[u8], from: usize, end: usize) -> usize {
        let apart = end + 1 + usize::from(text.get(end + 1) == Some(&b' ')) - from;
        let (value, last) = (self.values[self.len - 1], text[end - 1]);
        let word = |at: usize| Some(u128::from_le_bytes(*text.get(at..)?.first_chunk()?));
        let (Some(mut wanted), 1..=16) = (word(from), apart) else {
            return end;
        };
        let read = u128::MAX >> (128 - 8 * apart);
        let one = 1 << (8 * (end - from - 1));
        let mut alike = 0;
        for out in self.values[self.len..]
            .iter_mut()
            .take(usize::from(b'9' - last))
        {
            wanted += one;
            if word(from + (alike + 1) * apart).is_none_or(|w| (w ^ wanted) & read != 0) {
                break;
            }
            alike += 1;
            *out = value + alike as u64;
        }
        self.len += alike;
        from + alike * apart + (end - from)
    }

    #[inline]
    fn flush(&mut self, c: &Cursor, into: &mut Destination) -> Result<(), Refusal> {
        let values = &self.values[..std::mem::take(&mut self.len)];
        let taken = into.take(values);
        taken.map_err(|at| no_number(c, nth_from(c.text, self.from, at), into.ids))
    }
}

/// The position of the n-th number (from 0) after the one at `from` in a list.
#[cold]
fn nth_from(text: &[u8], from: usize, n: usize) -> usize {
    let mut at = from;
    for _ in 0..n {
        let comma = text[at..].iter().position(|&c| c == b',').unwrap_or(0);
        let rest = &text[at + comma + 1..];
        at += comma + 1 + rest.iter().take_while(|c| !c.is_ascii_digit()).count();
    }
    at
}

#[cold]
pub fn no_number(c: &Cursor, from: usize, ids: &IdTable) -> Refusal {
    mixed_ids(c, from, !ids.is_empty() && ids.len() < u32::MAX as usize)
}

/// The unsigned integer at `at`, None unless it is digits that fit 64 bits without a leading zero; and its end.
#[inline(always)]
fn plain_number(text: &[u8], from: usize) -> (Option<u64>, usize) {
    let (mut value, digits) = digits_of_eight(text, from);
    let mut at = from + digits;
    if digits == 8 {
        let (low, digits) = digits_of_eight(text, at);
        value = value * TENS[digits] + low;
        at += digits;
    }
    while let Some(digit) = text.get(at).filter(|d| d.is_ascii_digit()) {
        let digit = u64::from(digit - b'0');
        match value.checked_mul(10).and_then(|v| v.checked_add(digit)) {
            Some(more) => value = more,
            None => return (None, from),
        }
        at += 1;
    }
    let plain = at > from && (at == from + 1 || text[from] != b'0');
    (plain.then_some(value), at)
}

/// Powers of ten up to the eighth.
const TENS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// The number at `at` and its digit count, from eight bytes at once. (0, 0) near the end of the text; after
/// eight digits more may follow.
#[inline(always)]
fn digits_of_eight(text: &[u8], at: usize) -> (u64, usize) {
    let Some(&bytes) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
        return (0, 0);
    };
    let word = u64::from_le_bytes(bytes) ^ 0x3030_3030_3030_3030;
    let others = (word.wrapping_add(0x7676_7676_7676_7676) | word) & 0x8080_8080_8080_8080;
    let digits = others.trailing_zeros() as usize / 8;
    if digits == 0 {
        return (0, 0);
    }
    let word = word << (64 - 8 * digits);
    let pairs = word.wrapping_mul(10).wrapping_add(word >> 8);
    let low = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let high = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    (low.wrapping_add(high) >> 32, digits)
}

#[cold]
fn no_ids(c: &mut Cursor) -> Result<bool, Refusal> {
    if c.excerpt(c.at) == "null" {
        c.skip_value()?;
        return Ok(false);
    }
    if c.at >= c.text.len() {
        return Err(c.unexpected("an array of block ids"));
    }
    let wrong = c.problem(c.at, "id", "block ids are not an array");
    Err(wrong
        .got(c.excerpt(c.at))
        .expected("an array such as [0, 1, 2]"))
}

#[cfg(test)]
mod tests {
    use super::{block_ids, digits_of_eight, Cursor, Destination, IdTable};

    /// The names of the ids of a list in JSON, or the column of its refusal.
    fn read(text: &str, ids: &mut IdTable) -> Result<Vec<String>, u64> {
        let mut references = Vec::new();
        let mut into = Destination {
            ids: &mut *ids,
            references: &mut references,
            sampler: None,
            ordinal: 0,
        };
        let read = block_ids(&mut Cursor::new(text.as_bytes(), 1, true), &mut into);
        read.map_err(|refusal| refusal.col)?;
        Ok(references.iter().map(|&number| ids.name(number)).collect())
    }

    #[test]
    fn ids_that_count_up_are_read_as_any_others() {
        let mut ids: Vec<u64> = (0..1_234)
            .chain(95..108)
            .chain([7, 8, 8, 9, 19, 20])
            .collect();
        for power in 3..20 {
            let near = 10u64.pow(power);
            ids.extend(near - 45..near + 3);
            ids.extend([near + 4, near + 14, near + 5]);
        }
        for comma in [",", ", ", ",  ", " ,", " , "] {
            for list in [&ids[..], &ids[..1_240], &ids[3..9], &ids[9..11]] {
                let names: Vec<String> = list.iter().map(u64::to_string).collect();
                let text = format!("[{}]", names.join(comma));
                assert_eq!(read(&text, &mut IdTable::default()), Ok(names), "{comma:?}");
            }
        }
        for (text, column) in [
            ("[10, 11, 12, 13 14, 15]", 17),
            ("[10, 11, 12, 013, 14, 15]", 14),
            ("[10, 11, 12, 13.5, 14, 15]", 14),
            ("[10, 11, 12, 13, ]", 18),
        ] {
            assert_eq!(read(text, &mut IdTable::default()), Err(column), "{text}");
        }
    }

    #[test]
    fn an_id_of_another_kind_is_refused_where_it_stands() {
        let mut texts = IdTable::default();
        assert!(read("[\"a\"]", &mut texts).is_ok());
        assert_eq!(read("[21, 22, 23]", &mut texts), Err(2));
        assert_eq!(super::nth_from(b"[21, 22,23]", 1, 2), 8);
    }

    #[test]
    fn eight_bytes_give_their_leading_digits() {
        for (text, value, digits) in [
            ("12345678,", 12_345_678, 8),
            ("1, 234567", 1, 1),
            ("182790]  ", 182_790, 6),
            ("0,0,0,0,0", 0, 1),
            ("9999999\u{ff}", 9_999_999, 7),
            ("x2345678", 0, 0),
            ("123", 0, 0),
        ] {
            assert_eq!(
                digits_of_eight(text.as_bytes(), 0),
                (value, digits),
                "{text}"
            );
        }
    }
}

//! Refusals of lines that are no row.

use super::super::super::json::Cursor;
use super::super::super::problem::Refusal;

#[cold]
pub fn given_twice(c: &Cursor, from: usize) -> Refusal {
    c.problem(from, "duplicate-key", "member given twice")
        .got(c.excerpt(from))
}

#[cold]
pub fn not_an_object(c: &Cursor) -> Refusal {
    let rest = &c.text[c.at.min(c.text.len())..];
    if rest.first() == Some(&b'[') {
        return c
            .problem(c.at, "json", "a JSON array where rows should be")
            .got(c.excerpt(c.at))
            .expected("one object a line")
            .hint("jq -c '.[]' FILE writes it so");
    }
    let text = |b: &u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'{' | b'[');
    if rest.iter().take(2).all(text) && rest.contains(&b',') && !rest.contains(&b'{') {
        return c
            .problem(c.at, "json", "a line of CSV where a JSON object should be")
            .got(c.excerpt(c.at))
            .hint("--trace-format names the format");
    }
    c.unexpected("a row such as {\"timestamp\": 0, …}")
}

//! A strict JSON scanner over one line; every refusal states its column.
//!
//! - `refusal`    texts of refusals: column, excerpt, expected value
//! - `text`       strings and their escapes
//! - `value`      numbers, and skipping any value
//! - `object`     the members of an object
//! - [`field`]    the value of a named member: lengths, times, names, truth values

pub mod field;
mod object;
mod refusal;
mod text;
mod value;

use super::problem::Refusal;

/// A position in one line of JSON.
pub struct Cursor<'a> {
    /// The line, without its line feed.
    pub text: &'a [u8],
    /// Index of the next byte.
    pub at: usize,
    /// The line's number, from 1.
    pub line: u64,
    /// True if the line is the file's last and has no line feed, so it may have been cut.
    pub last: bool,
}

impl<'a> Cursor<'a> {
    /// The start of a line.
    pub fn new(text: &'a [u8], line: u64, last: bool) -> Self {
        Cursor {
            text,
            at: 0,
            line,
            last,
        }
    }

    /// The next byte; 0 at the end.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// Skips spaces, tabs and carriage returns.
    #[inline(always)]
    pub fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r') && self.at < self.text.len() {
            self.at += 1;
        }
    }

    /// Skips white space, then consumes `wanted` if it is next.
    #[inline(always)]
    pub fn take(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.peek() == wanted;
        self.at += usize::from(found);
        found
    }

    /// Refuses anything but white space up to the end of the line.
    pub fn end(&mut self) -> Result<(), Refusal> {
        self.skip_space();
        if self.at < self.text.len() {
            return Err(self
                .unexpected("the end of the line")
                .hint("one row a line"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Cursor;

    fn skip(text: &str) -> Result<(), String> {
        let mut c = Cursor::new(text.as_bytes(), 1, true);
        c.skip_value()
            .and_then(|_| c.end())
            .map_err(|p| format!("{}: {}", p.col, p.what))
    }

    #[test]
    fn values_are_checked_whole() {
        for good in [
            "0",
            "-1.5e+3",
            "[]",
            "{}",
            "[1,[2,{\"a\":null}],true]",
            "\"\\u00e9\\n\"",
            "{\"a\":{}}",
        ] {
            assert_eq!(skip(good), Ok(()), "{good}");
        }
        for bad in [
            "01",
            "1.",
            "-",
            "+1",
            ".5",
            "NaN",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "[1",
            "\"a",
            "\"\\x\"",
            "1 2",
            "tru",
            "\"\\ud800\"",
            "[1}",
            "\"\t\"",
            "{\"a\":1,}",
            "",
        ] {
            assert!(skip(bad).is_err(), "{bad}");
        }
        assert!(skip(&"[".repeat(1000)).is_err());
    }

    #[test]
    fn strings_resolve_their_escapes() {
        let mut c = Cursor::new(br#""a\ud83d\ude00\"\u00e9""#, 1, true);
        assert_eq!(c.string().unwrap(), "a😀\"é");
    }
}

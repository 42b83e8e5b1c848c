//! A strict JSON scanner over one line; every refusal names its column.

use std::borrow::Cow;

use super::problem::{Problem, Refusal};

const DEEPEST: usize = 128;

/// A position in one line of JSON.
pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub at: usize,
    pub line: u64,
    /// The line is the file's last and has no line feed: it may have been cut.
    pub last: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8], line: u64, last: bool) -> Self {
        Cursor {
            text,
            at: 0,
            line,
            last,
        }
    }

    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    #[inline(always)]
    pub fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\r') && self.at < self.text.len() {
            self.at += 1;
        }
    }

    /// Skip white space, then take `wanted` if it is next.
    #[inline(always)]
    pub fn take(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let found = self.peek() == wanted;
        self.at += usize::from(found);
        found
    }

    /// The column of a byte of this line, counted in characters from 1.
    #[cold]
    pub fn column(&self, at: usize) -> u64 {
        let before = &self.text[..at.min(self.text.len())];
        String::from_utf8_lossy(before).chars().count() as u64 + 1
    }

    #[cold]
    pub fn problem(&self, at: usize, kind: &'static str, what: impl Into<String>) -> Refusal {
        Problem::new(self.line, self.column(at), kind, what)
    }

    /// The refusal of what stands here where `expected` should.
    #[cold]
    pub fn unexpected(&self, expected: &str) -> Refusal {
        if self.at >= self.text.len() {
            let what = if self.last {
                "unterminated JSON (file may be truncated)"
            } else {
                "unterminated JSON"
            };
            return self.problem(self.at, "json", what).expected(expected);
        }
        if self.peek() == 0 {
            return self
                .problem(self.at, "encoding", "NUL byte")
                .expected(expected);
        }
        self.problem(self.at, "json", "not JSON")
            .got(self.excerpt(self.at))
            .expected(expected)
    }

    /// The beginning of the line, for a message.
    #[cold]
    pub fn excerpt_row(&self) -> String {
        let text = String::from_utf8_lossy(&self.text[..self.text.len().min(200)]);
        let mut shown: String = text.trim_end().chars().take(48).collect();
        if shown.len() < self.text.len() {
            shown.push('…');
        }
        shown
    }

    /// The next characters from a byte, up to a value's end, for a message.
    #[cold]
    pub fn excerpt(&self, from: usize) -> String {
        let rest = &self.text[from.min(self.text.len())..];
        let quoted = rest.first() == Some(&b'"');
        let stop = |(i, c): (usize, char)| {
            i > 0
                && if quoted {
                    c == '"'
                } else {
                    matches!(c, ',' | '}' | ']' | ' ' | '\r' | ':')
                }
        };
        let text = String::from_utf8_lossy(&rest[..rest.len().min(160)]);
        let end = text.char_indices().find(|&ic| stop(ic));
        let cut = end.map_or(text.len(), |(i, c)| {
            i + if quoted { c.len_utf8() } else { 0 }
        });
        let mut shown: String = text[..cut].chars().take(40).collect();
        if shown.len() < cut {
            shown.push('…');
        }
        shown
    }

    /// A string: its text, escapes resolved. The cursor stands at the opening quote.
    pub fn string(&mut self) -> Result<Cow<'a, str>, Refusal> {
        if self.peek() != b'"' {
            return Err(self.unexpected("a string"));
        }
        let open = self.at;
        let from = open + 1;
        let mut at = from;
        let mut escaped = false;
        loop {
            match self.text.get(at) {
                None => {
                    self.at = at;
                    return Err(self.unexpected("the string's closing \""));
                }
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    at += 2;
                }
                Some(c) if *c < 0x20 => {
                    let kind = if *c == 0 { "encoding" } else { "json" };
                    return Err(self
                        .problem(at, kind, "control character in a string")
                        .got(format!("byte 0x{c:02x}"))
                        .expected("it escaped, such as \\n"));
                }
                Some(_) => at += 1,
            }
        }
        let raw = &self.text[from..at];
        self.at = at + 1;
        let text = std::str::from_utf8(raw).map_err(|e| {
            let bad = from + e.valid_up_to();
            self.problem(bad, "encoding", "not UTF-8")
                .got(format!("byte 0x{:02x}", self.text[bad]))
        })?;
        if escaped {
            self.unescape(text, from).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(text))
        }
    }

    fn unescape(&self, text: &str, from: usize) -> Result<String, Refusal> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text.char_indices();
        let hex = |at: usize| {
            let digits = text.get(at..at + 4)?;
            let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain
                .then(|| u32::from_str_radix(digits, 16).ok())
                .flatten()
        };
        while let Some((i, c)) = rest.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            let bad = |what: &str| {
                self.problem(from + i, "json", what)
                    .got(text[i..].chars().take(6).collect::<String>())
            };
            let Some((_, e)) = rest.next() else {
                return Err(bad("unfinished escape"));
            };
            match e {
                '"' | '\\' | '/' => out.push(e),
                'b' => out.push('\u{8}'),
                'f' => out.push('\u{c}'),
                'n' => out.push('\n'),
                'r' => out.push('\r'),
                't' => out.push('\t'),
                'u' => {
                    let high = hex(i + 2).ok_or_else(|| bad("unfinished \\u escape"))?;
                    for _ in 0..4 {
                        rest.next();
                    }
                    let mut code = high;
                    if (0xd800..0xdc00).contains(&high) && text[i + 6..].starts_with("\\u") {
                        if let Some(low @ 0xdc00..=0xdfff) = hex(i + 8) {
                            code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                            for _ in 0..6 {
                                rest.next();
                            }
                        }
                    }
                    let c = char::from_u32(code).ok_or_else(|| {
                        bad("half of a surrogate pair").expected("a character of Unicode")
                    })?;
                    out.push(c);
                }
                _ => return Err(bad("unknown escape")),
            }
        }
        Ok(out)
    }

    /// The text of a number, checked against JSON's grammar.
    pub fn number(&mut self) -> Result<&'a [u8], Refusal> {
        let from = self.at;
        let mut at = from;
        let get = |at: usize| self.text.get(at).copied().unwrap_or(0);
        let digits = |mut at: usize| {
            while get(at).is_ascii_digit() {
                at += 1;
            }
            at
        };
        at += usize::from(get(at) == b'-');
        let whole = at;
        at = digits(at);
        let mut good = at > whole && (get(whole) != b'0' || at == whole + 1);
        if get(at) == b'.' {
            let part = at + 1;
            at = digits(part);
            good &= at > part;
        }
        if matches!(get(at), b'e' | b'E') {
            at += 1;
            at += usize::from(matches!(get(at), b'+' | b'-'));
            let part = at;
            at = digits(part);
            good &= at > part;
        }
        if !good {
            if at >= self.text.len() {
                self.at = at;
            }
            return Err(self.not_a_number(from));
        }
        self.at = at;
        Ok(&self.text[from..at])
    }

    #[cold]
    fn not_a_number(&self, from: usize) -> Refusal {
        if self.at >= self.text.len() {
            return self.unexpected("a number");
        }
        let got = self.excerpt(from);
        let hint = match got.as_bytes().first() {
            Some(b'"') => "write it without quotes",
            Some(b'N' | b'I' | b'n') => "JSON has no NaN or Infinity, and null is no value here",
            _ => "",
        };
        self.problem(from, "json", "not a JSON number")
            .got(got)
            .expected("a number")
            .hint(hint)
    }

    /// Step over any one value, checking it.
    pub fn skip_value(&mut self) -> Result<&'a [u8], Refusal> {
        self.skip_space();
        let from = self.at;
        let mut closers: Vec<u8> = Vec::new();
        loop {
            self.skip_space();
            match self.peek() {
                b'"' => {
                    self.string()?;
                }
                b'{' | b'[' => {
                    let object = self.peek() == b'{';
                    self.at += 1;
                    if closers.len() >= DEEPEST {
                        let what = format!("JSON nested deeper than {DEEPEST}");
                        return Err(self.problem(self.at - 1, "json", what));
                    }
                    let closer = if object { b'}' } else { b']' };
                    if !self.take(closer) {
                        closers.push(closer);
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                b't' | b'f' | b'n' => self.literal()?,
                _ => {
                    self.number()?;
                }
            }
            loop {
                let Some(&closer) = closers.last() else {
                    return Ok(&self.text[from..self.at]);
                };
                if self.take(b',') {
                    if closer == b'}' {
                        self.key()?;
                    }
                    break;
                }
                if !self.take(closer) {
                    return Err(self.unexpected("a comma or the closing bracket"));
                }
                closers.pop();
            }
        }
    }

    fn literal(&mut self) -> Result<(), Refusal> {
        for word in ["true", "false", "null"] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(());
            }
        }
        Err(self.unexpected("a JSON value"))
    }

    /// A member's name and its colon, where the name is printable ASCII without escapes; else None, and the
    /// cursor may stand anywhere.
    #[inline]
    pub fn plain_key(&mut self) -> Option<&'a [u8]> {
        let text = self.text;
        if self.peek() != b'"' {
            return None;
        }
        let from = self.at + 1;
        let rest = text.get(from..)?;
        let len = rest
            .iter()
            .position(|&c| !matches!(c, b' '..=b'~') || matches!(c, b'"' | b'\\'))?;
        if rest[len] != b'"' {
            return None;
        }
        self.at = from + len + 1;
        if !self.take(b':') {
            return None;
        }
        self.skip_space();
        Some(&rest[..len])
    }

    /// A member's name and its colon.
    #[inline]
    pub fn key(&mut self) -> Result<Cow<'a, str>, Refusal> {
        self.skip_space();
        if self.peek() != b'"' {
            return Err(self.unexpected("a member's name in quotes"));
        }
        let name = self.string()?;
        if !self.take(b':') {
            return Err(self.unexpected("a colon"));
        }
        self.skip_space();
        Ok(name)
    }

    /// Nothing but white space may follow.
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

//! JSON strings, with escapes resolved.

use std::borrow::Cow;

use super::super::problem::Refusal;
use super::Cursor;

impl<'a> Cursor<'a> {
    /// A string with escapes resolved. The cursor is at the opening quote.
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
}

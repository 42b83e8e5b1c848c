//! Numbers by JSON's grammar, and skipping any value, which is checked.

use super::super::problem::Refusal;
use super::Cursor;

const DEEPEST: usize = 128;

impl<'a> Cursor<'a> {
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

    /// Skips any one value and checks it.
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
}

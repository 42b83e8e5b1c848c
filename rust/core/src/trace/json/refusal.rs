//! Texts of refusals: position, found value, expected value.

use super::super::problem::{Problem, Refusal};
use super::Cursor;

impl Cursor<'_> {
    /// The column of a byte of this line, counted in characters from 1.
    #[cold]
    pub fn column(&self, at: usize) -> u64 {
        let before = &self.text[..at.min(self.text.len())];
        String::from_utf8_lossy(before).chars().count() as u64 + 1
    }

    /// A refusal at byte `at` of this line.
    #[cold]
    pub fn problem(&self, at: usize, kind: &'static str, what: impl Into<String>) -> Refusal {
        Problem::new(self.line, self.column(at), kind, what)
    }

    /// The refusal of the value at the cursor where `expected` was required.
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
}

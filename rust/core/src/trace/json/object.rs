//! The members of an object: their names, and a callback for their values.

use std::borrow::Cow;

use super::super::problem::Refusal;
use super::Cursor;

impl<'a> Cursor<'a> {
    /// A member's name and its colon if the name is printable ASCII without escapes; after None the cursor's
    /// position is undefined.
    #[inline]
    fn plain_key(&mut self) -> Option<&'a [u8]> {
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
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, Refusal> {
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

    /// Visits the members of an object whose brace was consumed. `member` gets each name with its position,
    /// with the cursor at the value, and reads the value. Names are UTF-8; a name may occur twice.
    #[inline]
    pub fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, [u8]>, usize) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.skip_space();
            let from = self.at;
            let key = match self.plain_key() {
                Some(key) => Cow::Borrowed(key),
                None => {
                    self.at = from;
                    bytes_of(self.key()?)
                }
            };
            member(self, key, from)?;
            if self.take(b',') {
                continue;
            }
            if self.take(b'}') {
                return Ok(());
            }
            return Err(self.unexpected("a comma or }"));
        }
    }

    /// Visits the members as [`Cursor::members`] does, and refuses a repeated name.
    pub fn distinct_members(
        &mut self,
        mut member: impl FnMut(&mut Self, &str) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut seen: Vec<Cow<'a, [u8]>> = Vec::new();
        self.members(|c, key, from| {
            if seen.len() > 1000 {
                return Err(c.problem(from, "json", "more than 1000 members in an object"));
            }
            let name = String::from_utf8_lossy(&key);
            if seen.contains(&key) {
                let twice = c.problem(from, "duplicate-key", "member given twice");
                return Err(twice.got(name));
            }
            member(c, &name)?;
            drop(name);
            seen.push(key);
            Ok(())
        })
    }
}

fn bytes_of(name: Cow<str>) -> Cow<[u8]> {
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(name.as_bytes()),
        Cow::Owned(name) => Cow::Owned(name.into_bytes()),
    }
}

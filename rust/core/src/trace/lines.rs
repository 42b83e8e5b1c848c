//! Lines out of bytes, one buffer for all of them.

use std::io::{self, Read};

use super::problem::{Problem, Refusal};
use super::source::is_damage;
use super::ReadError;

const CHUNK: usize = 1 << 18;
/// A line longer than this is refused: it bounds the memory on endless input.
pub const LONGEST_LINE: usize = 1 << 27;

/// Splits a source at line feeds; a line is borrowed until the next is asked for.
pub struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    finished: bool,
    /// Decompressed bytes handed out so far.
    pub bytes: u64,
}

/// One line without its feed.
pub struct Line<'a> {
    /// Its bytes.
    pub text: &'a [u8],
    /// From 1.
    pub number: u64,
    /// The file ended before a line feed came.
    pub cut: bool,
}

/// Why there is no next line.
#[derive(Debug)]
pub enum LineError {
    /// The source failed.
    Read(io::Error),
    /// Line number of a line beyond `LONGEST_LINE`, or of one that grows without looking like text.
    TooLong(u64),
    /// Line number of a line that is not UTF-8.
    NotText(u64),
}

impl<R: Read> Lines<R> {
    /// Reads lines from a source of bytes.
    pub fn new(source: R) -> Self {
        Lines {
            source,
            buffer: vec![0; CHUNK],
            start: 0,
            end: 0,
            number: 0,
            finished: false,
            bytes: 0,
        }
    }

    /// Gives the source back, read as far as it was.
    pub fn into_source(self) -> R {
        self.source
    }

    /// The next line, or None at the end.
    pub fn next_line(&mut self) -> Result<Option<Line<'_>>, LineError> {
        let mut searched = self.start;
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[searched..self.end]) {
                let from = self.start;
                let to = searched + at;
                self.start = to + 1;
                return Ok(Some(self.hand_out(from, to, false)));
            }
            searched = self.end;
            if self.finished {
                if self.start == self.end {
                    return Ok(None);
                }
                let (from, to) = (self.start, self.end);
                self.start = self.end;
                return Ok(Some(self.hand_out(from, to, true)));
            }
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                searched -= self.start;
                self.end -= self.start;
                self.start = 0;
            }
            if self.end == self.buffer.len() {
                if self.buffer[..self.end.min(64)].contains(&0) {
                    return Err(LineError::NotText(self.number + 1));
                }
                if self.buffer.len() >= LONGEST_LINE {
                    return Err(LineError::TooLong(self.number + 1));
                }
                let more = self.buffer.len();
                if self.buffer.try_reserve_exact(more).is_err() {
                    return Err(LineError::Read(io::ErrorKind::OutOfMemory.into()));
                }
                self.buffer.resize(2 * more, 0);
            }
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.finished = true,
                Ok(n) => self.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(LineError::Read(e)),
            }
        }
    }

    fn hand_out(&mut self, from: usize, to: usize, cut: bool) -> Line<'_> {
        self.number += 1;
        self.bytes += (to - from) as u64 + 1;
        Line {
            text: &self.buffer[from..to],
            number: self.number,
            cut,
        }
    }
}

/// What a source that cannot give its next line means for the trace.
pub fn line_problem(error: LineError, next: u64) -> Result<Refusal, ReadError> {
    Ok(match error {
        LineError::TooLong(line) => Problem::new(line, 0, "json", "line too long")
            .expected(format!("at most {LONGEST_LINE} bytes"))
            .hint("one row a line"),
        LineError::NotText(line) => Problem::new(line, 0, "encoding", "NUL bytes and no line end")
            .expected("JSON text, one row a line"),
        LineError::Read(e) if is_damage(&e) => Problem::new(
            next,
            0,
            "truncated",
            "compressed data end early or are damaged",
        )
        .got(e.to_string()),
        LineError::Read(e) => return Err(ReadError::Io(e)),
    })
}

#[cfg(test)]
mod tests {
    use super::Lines;

    #[test]
    fn lines_come_whole_over_buffer_edges() {
        let long = "x".repeat(700_000);
        let text = format!("a\n\n{long}\r\nb");
        let mut lines = Lines::new(text.as_bytes());
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            seen.push((line.text.len(), line.number, line.cut));
        }
        let expected = [
            (1, 1, false),
            (0, 2, false),
            (700_001, 3, false),
            (1, 4, true),
        ];
        assert_eq!(seen, expected);
    }
}

//! Lines of a byte source, in one buffer for all lines.

use std::io::{self, Read};

use super::columns::Reading;
use super::problem::{Problem, Refusal};
use super::source::is_damage;
use super::ReadError;

const CHUNK: usize = 1 << 18;
/// Longest accepted line; it bounds the memory on endless input.
pub const LONGEST_LINE: usize = 1 << 27;

/// Splits a source at line feeds; a line is borrowed until the next call.
pub struct Lines<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    number: u64,
    finished: bool,
    /// Decompressed bytes returned so far.
    pub bytes: u64,
}

/// One line without its line feed.
pub struct Line<'a> {
    /// Its bytes.
    pub text: &'a [u8],
    /// From 1.
    pub number: u64,
    /// True if the file ended before a line feed.
    pub cut: bool,
}

/// Reasons why there is no next line.
#[derive(Debug)]
pub enum LineError {
    /// The source failed.
    Read(io::Error),
    /// Line number of a line beyond `LONGEST_LINE`, or of a long line that is not text.
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

    /// Returns the source, at its current position.
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

/// A destination of lines that are rows.
pub trait Rows {
    /// Reads a line; a refused line leaves no trace.
    fn line(&mut self, line: &Line) -> Result<(), Refusal>;

    /// Returns a problem as an error, or counts it if bad rows are skipped.
    fn refuse(&mut self, problem: Refusal) -> Result<(), Refusal>;

    /// Rows read and not taken yet.
    fn waiting(&self) -> usize;
}

/// Reads lines into rows, a part at a time.
pub struct Reader<R> {
    lines: Lines<R>,
    /// The last line read.
    pub number: u64,
    next_pulse: u64,
    ended: bool,
}

/// Bytes between two calls of `pulse`, which may stop the reading.
const PULSE_BYTES: u64 = 1 << 24;

impl<R: Read> Reader<R> {
    /// A reader at the first line.
    pub fn new(source: R) -> Self {
        Self {
            lines: Lines::new(source),
            number: 0,
            next_pulse: PULSE_BYTES,
            ended: false,
        }
    }

    /// Reads until `most` rows are buffered; returns true if there may be more. `pulse` is called at intervals with the
    /// bytes read and may stop the reading.
    pub fn read(
        &mut self,
        rows: &mut impl Rows,
        most: usize,
        mut pulse: impl FnMut(u64) -> bool,
    ) -> Result<bool, ReadError> {
        while !self.ended && rows.waiting() < most {
            if self.lines.bytes >= self.next_pulse {
                self.next_pulse = self.lines.bytes + PULSE_BYTES;
                if !pulse(self.lines.bytes) {
                    return Err(ReadError::Stopped);
                }
            }
            let problem = match self.lines.next_line() {
                Ok(None) => {
                    self.ended = true;
                    break;
                }
                Ok(Some(line)) => {
                    self.number = line.number;
                    rows.line(&line)
                }
                Err(error) => {
                    self.ended = true;
                    Err(line_problem(error, self.number + 1)?)
                }
            };
            if let Err(problem) = problem {
                rows.refuse(problem).map_err(ReadError::Trace)?;
            }
        }
        Ok(!self.ended)
    }

    /// Adds the number of lines and bytes to `reading`, and returns the source.
    pub fn finish(self, mut reading: Reading) -> (Reading, R) {
        reading.lines = self.number;
        reading.bytes = self.lines.bytes;
        (reading, self.lines.into_source())
    }
}

/// The problem of the trace for a source that has no next line.
fn line_problem(error: LineError, next: u64) -> Result<Refusal, ReadError> {
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

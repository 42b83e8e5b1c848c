//! Rows of token ids: each block a window of the corpus, cut from one start offset.

use std::fmt;
use std::ops::Range;

/// The source of token ids: `0..size`, or a list of real ids.
#[derive(Clone, Copy)]
pub enum Corpus<'a> {
    /// Token `k` of the corpus is the id `k`.
    Counting(u32),
    /// The tokenized text.
    Listed(&'a [u32]),
}

/// The rows to write, in columns. A row is its blocks, the last cut to the row's length, then its tail.
pub struct Rows<'a> {
    /// Tokens of each row.
    pub lengths: &'a [i64],
    /// The ids of row `r` are `block_ids[id_offsets[r]..id_offsets[r + 1]]`.
    pub id_offsets: &'a [i64],
    /// Dense ids: indices into `starts`.
    pub block_ids: &'a [u32],
    /// Start offset in the corpus by dense id.
    pub starts: &'a [u32],
    /// Start offset by row of the tokens beyond its ids; ignored if there are none.
    pub tail_starts: &'a [u32],
    /// Tokens per id.
    pub block_size: usize,
    /// First token of every block.
    pub separator: Option<u32>,
}

/// Reasons why rows cannot be written.
#[derive(Debug, PartialEq, Eq)]
pub enum WindowError {
    /// A column does not fit the others.
    Shape(&'static str),
    /// A row's ids name more blocks than its length has.
    TooManyIds {
        /// The row, from 0.
        row: usize,
    },
    /// A window is longer than the corpus, or starts outside it.
    OutsideCorpus {
        /// The row, from 0.
        row: usize,
    },
    /// The rows' tokens do not fill the buffer exactly.
    Buffer {
        /// Tokens of all rows.
        tokens: usize,
        /// Tokens that the buffer holds.
        available: usize,
    },
}

impl fmt::Display for WindowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WindowError::Shape(what) => write!(f, "{what} does not fit the other columns"),
            WindowError::TooManyIds { row } => {
                write!(f, "row {row} has more ids than its length has blocks")
            }
            WindowError::OutsideCorpus { row } => {
                write!(
                    f,
                    "row {row} asks for a window that the corpus does not hold"
                )
            }
            WindowError::Buffer { tokens, available } => {
                write!(f, "{tokens} tokens for a buffer of {available}")
            }
        }
    }
}

impl Corpus<'_> {
    fn size(&self) -> usize {
        match self {
            Corpus::Counting(size) => *size as usize,
            Corpus::Listed(tokens) => tokens.len(),
        }
    }

    /// Write the window from `start`, wrapping to the corpus's beginning once.
    fn copy(&self, start: usize, out: &mut [u32]) {
        let (head, rest) = out.split_at_mut(out.len().min(self.size() - start));
        self.copy_run(start, head);
        self.copy_run(0, rest);
    }

    fn copy_run(&self, start: usize, out: &mut [u32]) {
        match self {
            Corpus::Counting(_) => {
                for (token, id) in out.iter_mut().zip(start as u32..) {
                    *token = id;
                }
            }
            Corpus::Listed(tokens) => out.copy_from_slice(&tokens[start..start + out.len()]),
        }
    }
}

impl Rows<'_> {
    /// Write the tokens of `rows` one after another into `out`, which they must fill exactly.
    ///
    /// Cost: one pass over `out`; nothing is allocated.
    pub fn write(
        &self,
        corpus: Corpus<'_>,
        rows: Range<usize>,
        out: &mut [u32],
    ) -> Result<(), WindowError> {
        self.check(&rows, out.len())?;
        let mut rest = out;
        for row in rows {
            let (tokens, after) = rest.split_at_mut(self.lengths[row] as usize);
            rest = after;
            self.write_row(corpus, row, tokens)?;
        }
        Ok(())
    }

    fn check(&self, rows: &Range<usize>, available: usize) -> Result<(), WindowError> {
        let count = self.lengths.len();
        if rows.start > rows.end || rows.end > count {
            return Err(WindowError::Shape("the range of rows"));
        }
        if self.id_offsets.len() != count + 1 || self.tail_starts.len() != count {
            return Err(WindowError::Shape("a column of rows"));
        }
        if self.block_size == 0 {
            return Err(WindowError::Shape("a block size of 0"));
        }
        let lengths = &self.lengths[rows.clone()];
        if lengths.iter().any(|&length| length < 0) {
            return Err(WindowError::Shape("a negative length"));
        }
        let tokens: usize = lengths.iter().map(|&length| length as usize).sum();
        if tokens != available {
            return Err(WindowError::Buffer { tokens, available });
        }
        Ok(())
    }

    fn write_row(
        &self,
        corpus: Corpus<'_>,
        row: usize,
        tokens: &mut [u32],
    ) -> Result<(), WindowError> {
        let (first, last) = (
            self.id_offsets[row] as usize,
            self.id_offsets[row + 1] as usize,
        );
        let ids = self
            .block_ids
            .get(first..last)
            .ok_or(WindowError::Shape("an id offset"))?;
        if ids.len() > tokens.len().div_ceil(self.block_size) {
            return Err(WindowError::TooManyIds { row });
        }
        let covered = tokens.len().min(ids.len() * self.block_size);
        let (blocks, tail) = tokens.split_at_mut(covered);
        for (block, &id) in blocks.chunks_mut(self.block_size).zip(ids) {
            let start = *self
                .starts
                .get(id as usize)
                .ok_or(WindowError::Shape("a start offset"))?;
            let mut window = block;
            if let Some(separator) = self.separator {
                window[0] = separator;
                window = &mut window[1..];
            }
            copy_checked(corpus, start, window, row)?;
        }
        if tail.is_empty() {
            return Ok(());
        }
        copy_checked(corpus, self.tail_starts[row], tail, row)
    }
}

fn copy_checked(
    corpus: Corpus<'_>,
    start: u32,
    window: &mut [u32],
    row: usize,
) -> Result<(), WindowError> {
    if start as usize >= corpus.size() || window.len() > corpus.size() {
        return Err(WindowError::OutsideCorpus { row });
    }
    corpus.copy(start as usize, window);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: [u32; 5] = [10, 11, 12, 13, 14];

    fn rows<'a>(lengths: &'a [i64], id_offsets: &'a [i64], separator: Option<u32>) -> Rows<'a> {
        Rows {
            lengths,
            id_offsets,
            block_ids: &[0, 1, 0],
            starts: &[3, 1],
            tail_starts: &[4, 2],
            block_size: 4,
            separator,
        }
    }

    #[test]
    fn a_window_wraps_once_and_the_last_block_is_partial() {
        let rows = rows(&[6, 4], &[0, 2, 3], None);
        let mut out = [0; 10];
        rows.write(Corpus::Listed(&LISTED), 0..2, &mut out).unwrap();
        assert_eq!(out, [13, 14, 10, 11, 11, 12, 13, 14, 10, 11]);
        rows.write(Corpus::Counting(5), 0..2, &mut out).unwrap();
        assert_eq!(out, [3, 4, 0, 1, 1, 2, 3, 4, 0, 1]);
    }

    #[test]
    fn what_lies_beyond_the_ids_starts_where_its_row_says() {
        let rows = rows(&[9, 3], &[0, 2, 2], Some(99));
        let mut out = [0; 12];
        rows.write(Corpus::Counting(5), 0..2, &mut out).unwrap();
        assert_eq!(out, [99, 3, 4, 0, 99, 1, 2, 3, 4, 2, 3, 4]);
    }

    #[test]
    fn a_range_of_rows_fills_its_own_buffer() {
        let rows = rows(&[6, 4], &[0, 2, 3], None);
        let mut out = [0; 4];
        rows.write(Corpus::Counting(5), 1..2, &mut out).unwrap();
        assert_eq!(out, [3, 4, 0, 1]);
        let wrong = rows.write(Corpus::Counting(5), 0..1, &mut out);
        assert_eq!(
            wrong,
            Err(WindowError::Buffer {
                tokens: 6,
                available: 4
            })
        );
    }

    #[test]
    fn rows_that_cannot_be_written_are_refused() {
        let mut out = [0; 4];
        let crowded = rows(&[4], &[0, 2], None);
        let crowded = Rows {
            tail_starts: &[0],
            ..crowded
        };
        assert_eq!(
            crowded.write(Corpus::Counting(5), 0..1, &mut out),
            Err(WindowError::TooManyIds { row: 0 })
        );
        let short = Rows {
            id_offsets: &[0, 1],
            ..crowded
        };
        assert_eq!(
            short.write(Corpus::Counting(3), 0..1, &mut out),
            Err(WindowError::OutsideCorpus { row: 0 })
        );
    }
}

//! A table being written.

use std::io::{self, Write};

use super::bits::pack;
use super::delta::{self, Wrap};
use super::dictionary;
use super::footer::{file_metadata, page_header};
use super::schema::{Chunk, Encoding, Field, Kind};

const MAGIC: &[u8; 4] = b"PAR1";

/// The values of one column in one row group.
#[derive(Clone, Copy, Debug)]
pub enum Cells<'a> {
    /// Numbers, and 0 or 1 for `Kind::Bool`.
    Numbers(&'a [i64]),
    /// Indices into a list of texts, each below its length.
    Texts(&'a [u32], &'a [String]),
}

impl Cells<'_> {
    /// Number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(values) => values.len(),
            Self::Texts(codes, _) => codes.len(),
        }
    }

    /// True if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The dictionary of a column, and the number of its words.
struct Words<'a> {
    page: &'a [u8],
    count: usize,
}

/// Writes a table; equal calls give equal bytes. Cost: one row group in memory, and 100 bytes for each
/// column of each group until the end.
///
/// ```
/// use kvsim_core::parquet::{Cells, Field, Kind, TableWriter};
/// let field = Field { name: "time_ns".into(), kind: Kind::I64, meaning: "start".into() };
/// let mut table = TableWriter::new(Vec::new(), vec![field]).unwrap();
/// table.begin_group(3).unwrap();
/// table.column(Cells::Numbers(&[1, 2, 3])).unwrap();
/// let file = table.finish().unwrap();
/// assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"));
/// ```
pub struct TableWriter<W: Write> {
    out: W,
    at: u64,
    fields: Vec<Field>,
    groups: Vec<Vec<Chunk>>,
    rows: u64,
    compressor: snap::raw::Encoder,
}

impl<W: Write> TableWriter<W> {
    /// Starts a table of these columns.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(mut out: W, fields: Vec<Field>) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let compressor = snap::raw::Encoder::new();
        Ok(Self {
            out,
            at: MAGIC.len() as u64,
            fields,
            groups: Vec::new(),
            rows: 0,
            compressor,
        })
    }

    /// Starts a row group; its columns follow, each with that many values.
    ///
    /// # Errors
    /// `InvalidInput` if the group before lacks columns.
    pub fn begin_group(&mut self, rows: usize) -> io::Result<()> {
        self.whole()?;
        self.groups.push(Vec::with_capacity(self.fields.len()));
        self.rows = rows as u64;
        Ok(())
    }

    /// Writes the next column of the row group.
    ///
    /// # Errors
    /// Errors of `out`; `InvalidInput` for one column too many, another number of values, or texts in a
    /// column of numbers.
    pub fn column(&mut self, cells: Cells<'_>) -> io::Result<()> {
        let next = self.groups.last().map_or(self.fields.len(), Vec::len);
        let kind = self.fields.get(next).map(|field| field.kind);
        let Some(kind) = kind.filter(|_| cells.len() as u64 == self.rows) else {
            return Err(refused(
                "no such column, or not as many values as the others",
            ));
        };
        let chunk = match (cells, kind) {
            (Cells::Texts(codes, words), Kind::Text) => self.texts(codes, words)?,
            (Cells::Numbers(values), Kind::Bool) => self.flags(values)?,
            (Cells::Numbers(values), Kind::U8 | Kind::I16 | Kind::I32 | Kind::I64) => {
                self.numbers(values, kind)?
            }
            _ => return Err(refused("texts and numbers in one column")),
        };
        if let Some(group) = self.groups.last_mut() {
            group.push(chunk);
        }
        Ok(())
    }

    /// Writes the end of the table and returns `out`.
    ///
    /// # Errors
    /// Errors of `out`; `InvalidInput` if the last group lacks columns.
    pub fn finish(mut self) -> io::Result<W> {
        self.whole()?;
        let metadata = file_metadata(&self.fields, &self.groups);
        self.out.write_all(&metadata)?;
        self.out.write_all(&(metadata.len() as u32).to_le_bytes())?;
        self.out.write_all(MAGIC)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn whole(&self) -> io::Result<()> {
        match self.groups.last() {
            Some(group) if group.len() != self.fields.len() => {
                Err(refused("a row group lacks columns"))
            }
            _ => Ok(()),
        }
    }

    fn texts(&mut self, codes: &[u32], words: &[String]) -> io::Result<Chunk> {
        let mut page = Vec::new();
        for word in words {
            page.extend_from_slice(&(word.len() as u32).to_le_bytes());
            page.extend_from_slice(word.as_bytes());
        }
        let mut slots = Vec::new();
        dictionary::encode(&mut slots, codes, words.len());
        let dictionary = Words {
            page: &page,
            count: words.len(),
        };
        self.chunk(Kind::Text, Encoding::Dictionary, Some(dictionary), &slots)
    }

    fn flags(&mut self, values: &[i64]) -> io::Result<Chunk> {
        let mut page = Vec::new();
        pack(
            &mut page,
            values.iter().map(|&value| u64::from(value != 0)),
            1,
        );
        self.chunk(Kind::Bool, Encoding::Plain, None, &page)
    }

    fn numbers(&mut self, values: &[i64], kind: Kind) -> io::Result<Chunk> {
        let wrap = if kind == Kind::I64 {
            Wrap::I64
        } else {
            Wrap::I32
        };
        let mut deltas = Vec::new();
        delta::encode(&mut deltas, values, wrap);
        if let Some((words, codes)) = dictionary::distinct(values) {
            let bytes = if kind == Kind::I64 { 8 } else { 4 };
            let mut slots = Vec::new();
            dictionary::encode(&mut slots, &codes, words.len());
            if words.len() * bytes + slots.len() < deltas.len() {
                let mut page = Vec::with_capacity(words.len() * bytes);
                for word in &words {
                    page.extend_from_slice(&word.to_le_bytes()[..bytes]);
                }
                let dictionary = Words {
                    page: &page,
                    count: words.len(),
                };
                return self.chunk(kind, Encoding::Dictionary, Some(dictionary), &slots);
            }
        }
        self.chunk(kind, Encoding::Delta, None, &deltas)
    }

    /// Writes the pages of a column: its dictionary, if it has one, then its values.
    fn chunk(
        &mut self,
        kind: Kind,
        encoding: Encoding,
        dictionary: Option<Words<'_>>,
        page: &[u8],
    ) -> io::Result<Chunk> {
        let (start, rows) = (self.at, self.rows);
        let mut plain_bytes = 0;
        if let Some(words) = &dictionary {
            plain_bytes += self.page(Encoding::Plain, true, words.count, words.page)?;
        }
        let data_at = self.at;
        plain_bytes += self.page(encoding, false, rows as usize, page)?;
        Ok(Chunk {
            kind,
            encoding,
            rows,
            dictionary_at: dictionary.map(|_| start),
            data_at,
            plain_bytes,
            stored_bytes: self.at - start,
        })
    }

    /// Writes one page and returns its uncompressed size.
    fn page(
        &mut self,
        encoding: Encoding,
        dictionary: bool,
        values: usize,
        page: &[u8],
    ) -> io::Result<u64> {
        let packed = self
            .compressor
            .compress_vec(page)
            .map_err(io::Error::other)?;
        let header = page_header(encoding, dictionary, values, page.len(), packed.len());
        self.out.write_all(&header)?;
        self.out.write_all(&packed)?;
        self.at += (header.len() + packed.len()) as u64;
        Ok((header.len() + page.len()) as u64)
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

//! Rows of JSON or of WEKA sessions, some at a time.

use std::io::Read;
use std::sync::Arc;

use super::columns::{Columns, Reading};
use super::intern::IdTable;
use super::jsonl::{Batch, JsonRows, Schema};
use super::lines::{Reader, Rows};
use super::sampler::Sampler;
use super::weka::WekaRows;
use super::{ReadError, Settings};

/// Rows read at a time where they are replayed as they come.
const BATCH_ROWS: usize = 64;

/// A reader that returns a part of the rows at a time. Memory: the rows not taken yet, and the table of ids.
pub struct RowReader<R> {
    reader: Reader<R>,
    rows: FormatRows,
    batches: Option<Batches>,
}

/// The rows of a format so far.
enum FormatRows {
    Json(Box<JsonRows>),
    Weka(Box<WekaRows>),
}

impl FormatRows {
    fn out(&self) -> &Reading {
        match self {
            Self::Json(rows) => &rows.out,
            Self::Weka(rows) => &rows.out,
        }
    }

    /// The rows and, of JSON rows that are sampled, the sampler.
    fn parts(&mut self) -> (&mut Reading, Option<&mut Sampler>) {
        match self {
            Self::Json(rows) => (&mut rows.out, rows.sampler.as_mut()),
            Self::Weka(rows) => (&mut rows.out, None),
        }
    }
}

/// Returns the next rows, None after the last ones.
pub type Batches = Box<dyn FnMut() -> Result<Option<Batch>, ReadError> + Send + Sync>;

impl<R: Read> RowReader<R> {
    /// A reader at the first row.
    pub fn new(source: R, schema: Schema, settings: Settings) -> Self {
        Self {
            reader: Reader::new(source),
            rows: FormatRows::Json(Box::new(JsonRows::new(schema, settings))),
            batches: None,
        }
    }

    /// A reader of WEKA sessions.
    pub fn of_weka(source: R, settings: &Settings) -> Self {
        Self {
            reader: Reader::new(source),
            rows: FormatRows::Weka(Box::new(WekaRows::new(settings))),
            batches: None,
        }
    }

    /// A reader of rows that come as columns; the source is only kept for its digest.
    pub fn of_batches(source: R, schema: Schema, settings: Settings, batches: Batches) -> Self {
        Self {
            batches: Some(batches),
            ..Self::new(source, schema, settings)
        }
    }

    /// Reads until `most` rows are buffered; returns true if there may be more.
    pub fn read(
        &mut self,
        most: usize,
        mut pulse: impl FnMut(u64) -> bool,
    ) -> Result<bool, ReadError> {
        let (rows, next) = match (&mut self.rows, &mut self.batches) {
            (FormatRows::Weka(rows), _) => return self.reader.read(&mut **rows, most, pulse),
            (FormatRows::Json(rows), None) => return self.reader.read(&mut **rows, most, pulse),
            (FormatRows::Json(rows), Some(next)) => (rows, next),
        };
        while rows.waiting() < most {
            let Some(batch) = next()? else {
                return Ok(false);
            };
            let (read, bytes) = (batch.rows() as u64, batch.bytes);
            rows.push_batch(batch).map_err(ReadError::Trace)?;
            self.reader.number += read;
            if !pulse(bytes) {
                return Err(ReadError::Stopped);
            }
        }
        Ok(true)
    }

    /// Reads until so many block ids are buffered; returns true if there may be more.
    pub fn buffer(
        &mut self,
        references: usize,
        mut pulse: impl FnMut(u64) -> bool,
    ) -> Result<bool, ReadError> {
        while self.rows.out().columns.block_ids.len() < references {
            let most = self.rows.out().columns.len() + BATCH_ROWS;
            if !self.read(most, &mut pulse)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The first reason why the rows so far cannot be replayed one by one.
    pub fn needs_whole(&self) -> Option<&'static str> {
        match &self.rows {
            FormatRows::Json(rows) => rows.needs_whole(),
            FormatRows::Weka(rows) => rows.needs_whole(),
        }
    }

    /// Gives all rows to `consume`, some at a time, up to the end or to a row that cannot be replayed alone.
    pub fn each(
        &mut self,
        mut pulse: impl FnMut(u64) -> bool,
        mut consume: impl FnMut(&Columns, Option<&Sampler>),
    ) -> Result<(), ReadError> {
        loop {
            let more = self.read(BATCH_ROWS, &mut pulse)?;
            if self.needs_whole().is_some() {
                return Ok(());
            }
            let (out, sampler) = self.rows.parts();
            out.taken += out.columns.len() as u64;
            consume(&out.columns, sampler.as_deref());
            out.columns.truncate(0);
            sampler.into_iter().for_each(Sampler::clear);
            if !more {
                return Ok(());
            }
        }
    }

    /// True if no row so far has a session, a pause or a predecessor, and all rows have ids.
    pub fn alone(&self) -> bool {
        matches!(&self.rows, FormatRows::Json(rows) if rows.alone())
    }

    /// Tokens per id that the file states so far, else 0.
    pub fn block_size(&self) -> u64 {
        self.rows.out().block_size
    }

    /// True if rows hold the new input of their turn only.
    pub fn new_input_only(&self) -> bool {
        self.rows.out().new_input_only
    }

    /// The ids of the trace by number.
    pub fn ids(&self) -> &IdTable {
        &self.rows.out().ids
    }

    /// The names of sessions by number.
    pub fn session_names(&self) -> &[Arc<str>] {
        match &self.rows {
            FormatRows::Json(rows) => rows.session_names(),
            FormatRows::Weka(rows) => &rows.sessions.names,
        }
    }

    /// Returns the rows read since the last call; ids and rows continue to be numbered.
    pub fn take(&mut self) -> Columns {
        self.rows.parts().0.take()
    }

    /// Forgets all block ids except `numbers`; a forgotten id that recurs gets a new number.
    pub fn keep_ids(&mut self, numbers: &[u32]) {
        self.rows.parts().0.ids.keep(numbers);
    }

    /// Returns the rows not taken yet, with every finding, and the source.
    pub fn finish(self) -> (Reading, R) {
        let reading = match self.rows {
            FormatRows::Json(rows) => rows.finish(),
            FormatRows::Weka(rows) => rows.finish(),
        };
        self.reader.finish(reading)
    }
}

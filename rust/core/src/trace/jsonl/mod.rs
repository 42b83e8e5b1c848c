//! Rows of JSON, one a line, under any of the field's member names: Mooncake, Qwen-Bailian, LMCache.

mod block_ids;
mod remarks;
mod row;
mod rows;
mod session_turns;

use std::io::Read;

use super::columns::{Columns, Reading};
use super::lines::Reader;
use super::{ReadError, Settings};
use rows::JsonRows;

/// Member names and units of one format; an empty name is a member the format does not have.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Member of the arrival.
    pub time: String,
    /// Nanoseconds of one unit of the arrival.
    pub time_unit_ns: u64,
    /// Member of the input tokens.
    pub input: String,
    /// Member of the output tokens.
    pub output: String,
    /// Member of the block ids.
    pub ids: String,
    /// Member of the session.
    pub session: String,
    /// Member of the turn.
    pub turn: String,
    /// Member of the pause before a turn.
    pub delay: String,
    /// Member of the kind of request.
    pub label: String,
    /// Row (from 0) a closed-loop row waits for; history tokens of a prompt; whether prompts are whole.
    pub after: String,
    /// Member of the tokens of a prompt that repeat earlier turns.
    pub history: String,
    /// Member of the priority.
    pub priority: String,
    /// Member of the tokens that the ids cover, where they go on into the answer.
    pub named: String,
    /// Member of the time after its arrival at which the client gave the request up.
    pub abort: String,
    /// Member that says whether prompts are whole.
    pub structure: String,
    /// A row's own name and its predecessor's (−1 or null for none): sessions as chains of rows.
    pub chat: String,
    /// Member of the predecessor's name.
    pub parent: String,
    /// Units of the length members in a token (bytes a token, or 1).
    pub per_token: u64,
}

/// Read every row of `source`; `pulse` is called now and then with the bytes read and may stop the reading.
pub fn read<R: Read>(
    source: R,
    schema: &Schema,
    settings: &Settings,
    pulse: impl FnMut(u64) -> bool,
) -> Result<(Reading, R), ReadError> {
    let mut reader = RowReader::new(source, schema.clone(), *settings);
    reader.read(usize::MAX, pulse)?;
    Ok(reader.finish())
}

/// Reads rows some at a time. Memory: the rows that were not taken, and what is known of the ids.
pub struct RowReader<R> {
    reader: Reader<R>,
    rows: JsonRows,
}

impl<R: Read> RowReader<R> {
    /// A reader at the first row.
    pub fn new(source: R, schema: Schema, settings: Settings) -> Self {
        Self {
            reader: Reader::new(source),
            rows: JsonRows::new(schema, settings),
        }
    }

    /// Reads until `most` rows wait to be taken; whether there may be more.
    pub fn read(&mut self, most: usize, pulse: impl FnMut(u64) -> bool) -> Result<bool, ReadError> {
        self.reader.read(&mut self.rows, most, pulse)
    }

    /// Whether every row so far stands alone: without session, pause or predecessor, with ids.
    pub fn alone(&self) -> bool {
        self.rows.alone()
    }

    /// Hands over the rows read since the last time; the numbers of ids and rows go on.
    pub fn take(&mut self) -> Columns {
        self.rows.take()
    }

    /// Forgets all block ids but those with these numbers: one that is forgotten and comes again is a new one.
    pub fn keep_ids(&mut self, numbers: &[u32]) {
        self.rows.keep_ids(numbers);
    }

    /// Hands over what was read and not taken, with every finding, and the source.
    pub fn finish(self) -> (Reading, R) {
        self.reader.finish(self.rows.finish())
    }
}

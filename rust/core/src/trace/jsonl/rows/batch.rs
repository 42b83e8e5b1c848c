//! Rows that come as columns, such as those of a Parquet file.

use std::borrow::Cow;

use super::super::super::json::field::MOST_TOKENS;
use super::super::super::json::Cursor;
use super::super::super::lines::Rows;
use super::super::super::problem::Refusal;
use super::super::super::sampler::Sampler;
use super::super::block_ids::no_number;
use super::super::destination::Destination;
use super::super::row::{Row, RowConversation, RowTimes, RowTokens};
use super::super::Schema;
use super::JsonRows;
use crate::parquet::Lists;

/// Columns of integers: time, delay, input, output, turn, label, after, history, priority, named, abort.
pub const NUMBERS: usize = 11;
/// A number that a row lacks.
pub const ABSENT: i64 = i64::MIN;

/// Some rows as columns.
#[derive(Default)]
pub struct Batch {
    /// Numbers by row, times in ns; empty if no row has one.
    pub numbers: [Vec<i64>; NUMBERS],
    /// Block ids by row.
    pub ids: Lists,
    /// Sessions by row; empty if no row has one.
    pub sessions: Vec<Option<String>>,
    /// Members without a column, as JSON; empty if no row has one.
    pub extra: Vec<Option<String>>,
    /// Bytes of the file up to the end of these rows.
    pub bytes: u64,
}

impl Batch {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ids.offsets.len().saturating_sub(1)
    }

    /// The values of a row; refuses numbers out of range. `ordinal` are the rows above it.
    pub fn row(
        &self,
        row: usize,
        c: &Cursor,
        s: &Schema,
        ordinal: u64,
    ) -> Result<Row<'_>, Refusal> {
        let number = |column: usize, name: &str, least: i64, most: i64| {
            let value = self.numbers[column].get(row).copied();
            let value = value.filter(|&v| v != ABSENT);
            match value.filter(|v| !(least..=most).contains(v)) {
                None => Ok(value),
                Some(odd) => Err(c
                    .problem(0, "length", format!("{name} out of range"))
                    .got(odd.to_string())
                    .expected(format!("an integer from {least} to {most}"))),
            }
        };
        let most = MOST_TOKENS as i64;
        // the first number out of range is refused, in the order of the columns
        let mut times = RowTimes {
            time: number(0, &s.times.time, 0, i64::MAX)?,
            delay: number(1, &s.times.delay, 0, i64::MAX)?,
            abort: None,
        };
        let input = number(2, &s.tokens.input, 1, most)?.map(|v| v as u64);
        let output = number(3, &s.tokens.output, 0, most)?.map(|v| v as u64);
        let turn = number(4, &s.conversation.turn, 0, most)?.map(|v| v as i32);
        let label = number(5, &s.conversation.label, 0, 1)?.map(|v| v == 1);
        let after = number(6, &s.after, 0, ordinal as i64 - 1)?.map(|v| v as i32);
        let history = number(7, &s.tokens.history, 0, most)?;
        let priority = number(8, &s.priority, -most, most)?;
        let named = number(9, &s.tokens.named, 1, most)?.map(|v| v as u64);
        times.abort = number(10, &s.times.abort, 0, i64::MAX)?;
        let session = self.sessions.get(row).and_then(|s| s.as_deref());
        Ok(Row {
            times,
            tokens: RowTokens {
                input,
                output,
                history,
                named,
            },
            conversation: RowConversation {
                session: session.map(Cow::Borrowed),
                turn,
                label,
                ..RowConversation::default()
            },
            after,
            priority,
            ..Row::default()
        })
    }
}

impl JsonRows {
    /// Reads the rows of a batch, as lines are read.
    pub fn push_batch(&mut self, mut batch: Batch) -> Result<(), Refusal> {
        let (rows, mut ids) = (batch.rows(), std::mem::take(&mut batch.ids));
        for row in 0..rows {
            let line = self.ordinal + 1;
            let c = Cursor::new(b"", line, false);
            let result = self.settled(|rows| rows.row_of(&batch, &mut ids, row, &c));
            if let Err(problem) = result {
                self.refuse(problem)?;
            }
        }
        Ok(())
    }

    fn row_of(
        &mut self,
        batch: &Batch,
        ids: &mut Lists,
        at: usize,
        c: &Cursor,
    ) -> Result<(), Refusal> {
        let row = batch.row(at, c, &self.schema, self.ordinal)?;
        self.sampler.iter_mut().for_each(Sampler::start_row);
        let mut into = Destination {
            ids: &mut self.out.ids,
            references: &mut self.out.columns.block_ids,
            sampler: self.sampler.as_mut(),
            ordinal: self.ordinal,
        };
        let taken = ids.list(at, |ids| into.take(ids));
        taken
            .ok_or_else(|| c.problem(0, "truncated", "damaged Parquet data"))?
            .map_err(|_| no_number(c, 0, into.ids))?;
        self.accept(c, &row)?;
        if self.settings.keep_unknown {
            let extra = batch.extra.get(at).cloned().flatten();
            self.out.columns.extra.push(extra.unwrap_or_default());
        }
        Ok(())
    }
}

//! Requests as flat columns, filled row by row; a refused row leaves no trace.

use std::collections::HashMap;
use std::sync::Arc;

use super::intern::IdTable;
use super::problem::{Finding, Skipped};
use super::Order;

/// Open loop: the request arrives at the row's own time.
pub const OPEN_LOOP: i64 = -1;
/// The session of a row without a session.
pub const NO_SESSION: i32 = -1;

/// Columns that few traces have; each is empty unless a row states a value.
#[derive(Default)]
pub struct RareColumns {
    /// The row that a row waits for.
    pub after: Vec<i32>,
    /// Prompt tokens that repeat earlier turns.
    pub history_tokens: Vec<i64>,
    /// Priority, smallest first, for queues ordered by it.
    pub priority: Vec<i64>,
    /// Tokens of prompt and answer that the ids cover.
    pub named_tokens: Vec<i64>,
    /// Time from arrival until the client aborted the request.
    pub abort_after_ns: Vec<i64>,
}

/// One row of the columns that all traces have, without its ids.
#[derive(Clone, Copy, Debug)]
pub struct ColumnRow {
    /// Arrival time that the row states.
    pub arrival_ns: i64,
    /// Pause before its arrival, or [`OPEN_LOOP`].
    pub think_ns: i64,
    /// Tokens of the prompt.
    pub input_tokens: i64,
    /// Tokens of the answer.
    pub output_tokens: i64,
    /// Its session, or [`NO_SESSION`].
    pub session: i32,
    /// Its position in the session.
    pub turn: i32,
    /// True if it continues a conversation.
    pub is_conversational_turn: bool,
}

/// All rows read, one entry per request.
#[derive(Default)]
pub struct Columns {
    /// Arrival time that the row states.
    pub arrival_ns: Vec<i64>,
    /// Tokens of the prompt.
    pub input_tokens: Vec<i64>,
    /// Tokens of the answer.
    pub output_tokens: Vec<i64>,
    /// Row r has the ids `block_ids[id_offsets[r]..id_offsets[r + 1]]`.
    pub id_offsets: Vec<i64>,
    /// Block ids of all rows, numbered densely.
    pub block_ids: Vec<u32>,
    /// Session of a row, an index into `session_names`, or [`NO_SESSION`].
    pub session: Vec<i32>,
    /// Position of a row in its session, from 0.
    pub turn: Vec<i32>,
    /// Pause between the end of the row that this row waits for and its arrival, or [`OPEN_LOOP`].
    pub think_ns: Vec<i64>,
    /// True if a row continues a conversation: by its label, or as a turn after the first.
    pub is_conversational_turn: Vec<bool>,
    /// Columns that few traces have.
    pub rare: RareColumns,
    /// Sessions by their names in the trace.
    pub session_names: Vec<Arc<str>>,
    /// Members that no reader recognizes, as written, one text per row; empty unless requested.
    pub extra: Vec<String>,
}

impl Columns {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.arrival_ns.len()
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.arrival_ns.is_empty()
    }

    /// The block ids of a row.
    pub fn ids(&self, row: usize) -> &[u32] {
        &self.block_ids[self.id_offsets[row] as usize..self.id_offsets[row + 1] as usize]
    }

    /// Appends a row whose ids were pushed.
    pub fn push(&mut self, row: ColumnRow) {
        self.arrival_ns.push(row.arrival_ns);
        self.input_tokens.push(row.input_tokens);
        self.output_tokens.push(row.output_tokens);
        self.id_offsets.push(self.block_ids.len() as i64);
        self.session.push(row.session);
        self.turn.push(row.turn);
        self.think_ns.push(row.think_ns);
        self.is_conversational_turn.push(row.is_conversational_turn);
    }

    /// Removes the newest rows, down to `rows`.
    pub fn truncate(&mut self, rows: usize) {
        self.arrival_ns.truncate(rows);
        self.input_tokens.truncate(rows);
        self.output_tokens.truncate(rows);
        self.id_offsets.truncate(rows + 1);
        self.block_ids.truncate(self.id_offsets[rows] as usize);
        self.session.truncate(rows);
        self.turn.truncate(rows);
        self.think_ns.truncate(rows);
        self.is_conversational_turn.truncate(rows);
        self.rare.after.truncate(rows);
        self.rare.history_tokens.truncate(rows);
        self.rare.priority.truncate(rows);
        self.rare.named_tokens.truncate(rows);
        self.rare.abort_after_ns.truncate(rows);
        self.extra.truncate(rows);
    }
}

/// The result of a reader: the columns and what was found.
#[derive(Default)]
pub struct Reading {
    /// The rows, one column per member.
    pub columns: Columns,
    /// The ids of the trace by number.
    pub ids: IdTable,
    /// Rows that were skipped.
    pub skipped: Skipped,
    /// Remarks that do not stop the reading.
    pub findings: Vec<Finding>,
    /// Lines read.
    pub lines: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Tokens per id if the file itself states them, else 0.
    pub block_size: u64,
    /// True if rows hold only the new input of their turn.
    pub new_input_only: bool,
    /// True if a row with an arrival earlier than the row before was accepted.
    pub unordered: bool,
    /// Rows that were taken before the end.
    pub taken: u64,
}

impl Reading {
    /// Returns the rows read since the last call, without names of sessions; `after` counts rows of the whole trace.
    pub fn take(&mut self) -> Columns {
        self.taken += self.columns.len() as u64;
        let taken = std::mem::take(&mut self.columns);
        self.columns.id_offsets.push(0);
        taken
    }
}

/// Value of `after` and `history_tokens` for a row without one.
pub const NOT_GIVEN: i32 = -1;

/// Pushes a value that most files do not have: the column starts with the first row that has it, with
/// `absent` for all other rows.
pub fn push_rare<T: Copy + From<i32>>(
    column: &mut Vec<T>,
    rows: usize,
    value: Option<T>,
    absent: i32,
) {
    if column.is_empty() && value.is_none() {
        return;
    }
    column.resize(rows, T::from(absent));
    column.push(value.unwrap_or(T::from(absent)));
}

/// Session names to numbers, with the number of turns of each session.
#[derive(Default)]
pub struct Sessions {
    numbers: HashMap<Arc<str>, i32>,
    /// Name of each session, by its number.
    pub names: Vec<Arc<str>>,
    /// Turns of each session so far, by its number.
    pub turns: Vec<i32>,
}

impl Sessions {
    /// The number of a name, a new number at its first appearance.
    pub fn number(&mut self, name: &str) -> i32 {
        if let Some(&n) = self.numbers.get(name) {
            return n;
        }
        let n = self.names.len() as i32;
        let name: Arc<str> = Arc::from(name);
        self.numbers.insert(Arc::clone(&name), n);
        self.names.push(name);
        self.turns.push(0);
        n
    }

    /// Forgets the newest sessions, down to `len`.
    pub fn roll_back(&mut self, len: usize) {
        for name in self.names.drain(len..) {
            self.numbers.remove(&name);
        }
        self.turns.truncate(len);
    }

    /// The number of a name that has appeared.
    pub fn get(&self, name: &str) -> Option<i32> {
        self.numbers.get(name).copied()
    }
}

/// Counts one kind of remark and stores its first occurrence.
#[derive(Default)]
pub struct Counter {
    /// Number of occurrences.
    pub count: u64,
    /// Line of the first occurrence.
    pub line: u64,
    /// Text of the first occurrence.
    pub example: String,
}

impl Counter {
    /// Counts an occurrence at a line; calls `example` for the first occurrence only.
    pub fn hit(&mut self, line: u64, example: impl FnOnce() -> String) {
        if self.count == 0 {
            self.line = line;
            self.example = example();
        }
        self.count += 1;
    }

    /// Adds the finding, if there was any occurrence.
    pub fn into(
        self,
        kind: &'static str,
        text: impl FnOnce(&Self) -> String,
        out: &mut Vec<Finding>,
    ) {
        if self.count > 0 {
            let text = text(&self);
            out.push(Finding {
                kind,
                count: self.count,
                line: self.line,
                text,
            });
        }
    }
}

/// The finding of rows without an answer.
pub fn silent_rows(counter: &Counter) -> String {
    let rows = counter.count;
    format!("{rows} rows have no output token: they end with their prefill")
}

/// The finding of rows that arrive before the rows above them, kept or sorted.
pub fn disordered_rows(order: Order) -> impl FnOnce(&Counter) -> String {
    let sorted = order == Order::Sort;
    let verb = if sorted { "sorted" } else { "kept as they are" };
    move |counter| {
        let rows = counter.count;
        format!("{rows} rows arrive before a row above them; {verb}")
    }
}

/// The finding of lines without a row.
pub fn blank_lines(counter: &Counter) -> String {
    format!("{} blank lines", counter.count)
}

//! Requests as flat columns, filled row by row; a refused row leaves no trace.

use std::collections::HashMap;
use std::sync::Arc;

use super::intern::IdTable;
use super::problem::{Finding, Skipped};
use super::Order;

/// Closed loop is off: the row's own arrival counts.
pub const OPEN_LOOP: i64 = -1;
/// The session of a row that belongs to none.
pub const NO_SESSION: i32 = -1;

/// Everything read, one entry a request.
#[derive(Default)]
pub struct Columns {
    /// When a request arrives by its own account.
    pub arrival_ns: Vec<i64>,
    /// Tokens of the prompt.
    pub input_tokens: Vec<i64>,
    /// Tokens of the answer.
    pub output_tokens: Vec<i64>,
    /// Row r has the ids `block_ids[id_offsets[r]..id_offsets[r + 1]]`.
    pub id_offsets: Vec<i64>,
    /// Block ids of all rows, numbered densely.
    pub block_ids: Vec<u32>,
    /// The session of a row, a place in `session_names`, or [`NO_SESSION`].
    pub session: Vec<i32>,
    /// The place of a row in its session, from 0.
    pub turn: Vec<i32>,
    /// Pause between the end of the row that it waits for and its arrival, or [`OPEN_LOOP`].
    pub think_ns: Vec<i64>,
    /// Whether a row continues a conversation: its label says so, or it is a turn after the first.
    pub is_conversational_turn: Vec<bool>,
    /// The row a row waits for; empty where no row says.
    pub after: Vec<i32>,
    /// Prompt tokens that repeat earlier turns; empty where no row says.
    pub history_tokens: Vec<i64>,
    /// Who is served first where the queue orders so, the smallest; empty where no row says.
    pub priority: Vec<i64>,
    /// Tokens of prompt and answer that the ids cover; empty where no row says.
    pub named_tokens: Vec<i64>,
    /// How long after its arrival the client gave a request up; empty where none did.
    pub abort_after_ns: Vec<i64>,
    /// Sessions as the trace names them.
    pub session_names: Vec<Arc<str>>,
    /// The members no reader knows, as written, one text a row; empty unless they are asked for.
    pub extra: Vec<String>,
}

impl Columns {
    /// Rows so far.
    pub fn len(&self) -> usize {
        self.arrival_ns.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.arrival_ns.is_empty()
    }

    /// Appends a row whose ids were pushed: when it comes and after what pause, tokens of prompt and answer, its session
    /// and turn, and whether it continues a conversation.
    pub fn push(
        &mut self,
        (arrival_ns, think_ns): (i64, i64),
        (input, output): (i64, i64),
        (session, turn): (i32, i32),
        is_conversational_turn: bool,
    ) {
        self.arrival_ns.push(arrival_ns);
        self.input_tokens.push(input);
        self.output_tokens.push(output);
        self.id_offsets.push(self.block_ids.len() as i64);
        self.session.push(session);
        self.turn.push(turn);
        self.think_ns.push(think_ns);
        self.is_conversational_turn.push(is_conversational_turn);
    }

    /// Takes the newest rows back, down to `rows`.
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
        self.after.truncate(rows);
    }
}

/// What a reader hands back beside the columns.
#[derive(Default)]
pub struct Reading {
    /// What was read, a column a member.
    pub columns: Columns,
    /// The ids of the trace by number.
    pub ids: IdTable,
    /// Rows that were stepped over.
    pub skipped: Skipped,
    /// Remarks that do not stop the reading.
    pub findings: Vec<Finding>,
    /// Lines read.
    pub lines: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Tokens an id, where the file itself says so; else 0.
    pub block_size: u64,
    /// Rows hold the new input of their turn only.
    pub new_input_only: bool,
    /// An arrival earlier than the one before it was let through.
    pub unordered: bool,
}

/// No row: `after` and `history_tokens` of a row that does not say.
pub const NOT_GIVEN: i32 = -1;

/// Push a value that most files never have: the column starts with the first row that has it, others have
/// `absent`.
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

/// Session names to numbers, and how many turns each has had.
#[derive(Default)]
pub struct Sessions {
    numbers: HashMap<Arc<str>, i32>,
    /// The names given so far, by number.
    pub names: Vec<Arc<str>>,
    /// By number: turns so far.
    pub turns: Vec<i32>,
}

impl Sessions {
    /// The number of a name, a new one at its first appearance.
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

    /// Forget the newest sessions, down to `len`.
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

/// Counts a kind of remark and remembers its first place.
#[derive(Default)]
pub struct Counter {
    /// How often it happened.
    pub count: u64,
    /// The line on which it happened first.
    pub line: u64,
    /// What was there.
    pub example: String,
}

impl Counter {
    /// Counts one at a line; `example` is asked for the first time only.
    pub fn hit(&mut self, line: u64, example: impl FnOnce() -> String) {
        if self.count == 0 {
            self.line = line;
            self.example = example();
        }
        self.count += 1;
    }

    /// Add the finding, if it ever happened.
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

/// The finding of rows that arrive before those above them, and stay so or are sorted.
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

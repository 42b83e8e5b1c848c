//! Requests as flat columns, filled row by row; a refused row leaves no trace.

use std::collections::HashMap;
use std::sync::Arc;

use super::intern::IdTable;
use super::problem::{Finding, Skipped};

/// Closed loop is off: the row's own arrival counts.
pub const OPEN_LOOP: i64 = -1;
pub const NO_SESSION: i32 = -1;

/// Everything read, one entry a request.
#[derive(Default)]
pub struct Columns {
    pub arrival_ns: Vec<i64>,
    pub input_tokens: Vec<i64>,
    pub output_tokens: Vec<i64>,
    pub id_offsets: Vec<i64>,
    pub block_ids: Vec<u32>,
    pub session: Vec<i32>,
    pub turn: Vec<i32>,
    pub think_ns: Vec<i64>,
    pub is_conversational_turn: Vec<bool>,
    /// The row a row waits for; empty where no row says.
    pub after: Vec<i32>,
    /// Prompt tokens that repeat earlier turns; empty where no row says.
    pub history_tokens: Vec<i64>,
    pub session_names: Vec<Arc<str>>,
    /// The members no reader knows, as written, one text a row; empty unless they are asked for.
    pub extra: Vec<String>,
}

/// What a reader hands back beside the columns.
#[derive(Default)]
pub struct Reading {
    pub columns: Columns,
    pub ids: IdTable,
    pub skipped: Skipped,
    pub findings: Vec<Finding>,
    pub lines: u64,
    pub bytes: u64,
    /// Tokens an id, where the file itself says so; else 0.
    pub block_size: u64,
    /// Rows hold the new input of their turn only.
    pub new_input_only: bool,
    /// An arrival earlier than the one before it was let through.
    pub unordered: bool,
}

/// No row: `after` and `history_tokens` of a row that does not say.
pub const NOT_TOLD: i32 = -1;

/// Push a value that most files never have: the column starts with the first row that has it.
pub fn push_rare<T: Copy + From<i32>>(column: &mut Vec<T>, rows: usize, value: Option<T>) {
    if column.is_empty() && value.is_none() {
        return;
    }
    column.resize(rows, T::from(NOT_TOLD));
    column.push(value.unwrap_or(T::from(NOT_TOLD)));
}

/// Session names to numbers, and how many turns each has had.
#[derive(Default)]
pub struct Sessions {
    numbers: HashMap<Arc<str>, i32>,
    pub names: Vec<Arc<str>>,
    pub turns: Vec<i32>,
}

impl Sessions {
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

    pub fn get(&self, name: &str) -> Option<i32> {
        self.numbers.get(name).copied()
    }
}

/// Counts a kind of remark and remembers its first place.
#[derive(Default)]
pub struct Counter {
    pub count: u64,
    pub line: u64,
    pub example: String,
}

impl Counter {
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

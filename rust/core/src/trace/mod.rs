//! Trace files to flat columns: streaming, strict, every problem with its line and column.

pub mod audit;
pub mod columns;
pub mod csv;
pub mod datetime;
pub mod decimal;
pub mod id_hash;
pub mod intern;
pub mod json;
pub mod jsonl;
pub mod lines;
pub mod problem;
pub mod reuse;
pub mod source;
pub mod weka;

/// What to do with a row that arrives before the one above it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Refuse the trace.
    #[default]
    Error,
    /// Leave the rows as they are for the caller to sort (stably), and count them.
    Sort,
    /// Leave the rows in the order of the file.
    Keep,
}

/// How a trace is to be read, whatever its format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Tokens an id.
    pub block_size: u64,
    /// Count and step over bad rows instead of stopping at the first.
    pub skip: bool,
    /// What to do with a row that arrives before the one above it.
    pub order: Order,
    /// Keep the text of members no reader knows.
    pub keep_unknown: bool,
    /// Block ids may be negative integers and integers beyond 64 bits.
    pub any_integer: bool,
}

/// Why a reading ended early.
#[derive(Debug)]
pub enum ReadError {
    /// The trace is wrong.
    Trace(problem::Refusal),
    /// The source cannot be read.
    Io(std::io::Error),
    /// The caller's `pulse` said so.
    Stopped,
}

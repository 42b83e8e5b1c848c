//! Trace files to flat columns: streaming, strict, every problem with its line and column.

pub mod audit;
pub mod columns;
pub mod csv;
pub mod datetime;
pub mod decimal;
pub mod id_hash;
pub mod intern;
#[cfg(test)]
mod intern_tests;
pub mod json;
pub mod jsonl;
pub mod lines;
pub mod number_index;
pub mod problem;
pub mod reuse;
pub mod row_reader;
pub mod sampler;
pub mod source;
pub mod split;
pub mod weka;

/// The treatment of a row that arrives before the row above it.
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

/// Settings of a reader, whatever the format.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Tokens per id.
    pub block_size: u64,
    /// Count and skip bad rows instead of stopping at the first.
    pub skip: bool,
    /// The treatment of a row that arrives before the row above it.
    pub order: Order,
    /// Keep the text of members that no reader recognizes.
    pub keep_unknown: bool,
    /// Take a sample of the ids alone.
    pub sample: Option<sampler::Sample>,
}

/// Reasons why a reading ended early.
#[derive(Debug)]
pub enum ReadError {
    /// The trace is wrong.
    Trace(problem::Refusal),
    /// The source cannot be read.
    Io(std::io::Error),
    /// The caller's `pulse` stopped the reading.
    Stopped,
}

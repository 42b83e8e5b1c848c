//! Parquet tables, written one row group at a time; a written group is no longer in memory.
//!
//! Only the parts of the format that a run's tables need: flat columns without nulls, integers as
//! `DELTA_BINARY_PACKED` or by dictionary, whichever is smaller, texts by dictionary, pages under Snappy.
//! `lists` reads back one column: the block ids of a trace.
//! Source: <https://parquet.apache.org/docs/file-format/>.

mod bits;
mod delta;
mod dictionary;
mod footer;
mod lists;
mod schema;
mod thrift;
mod writer;

pub use lists::Lists;
pub use schema::{Field, Kind};
pub use writer::{Cells, TableWriter};

#[cfg(test)]
mod tests;

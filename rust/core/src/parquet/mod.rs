//! Parquet tables, written one row group at a time: what is on disk is no longer in memory.
//!
//! What a run's tables need of the format and no more: flat columns without nulls, integers as
//! `DELTA_BINARY_PACKED` or by dictionary, whichever takes less, texts by dictionary, pages under Snappy.
//! Source: <https://parquet.apache.org/docs/file-format/>.

mod bits;
mod delta;
mod dictionary;
mod footer;
mod schema;
mod thrift;
mod writer;

pub use schema::{Field, Kind};
pub use writer::{Cells, TableWriter};

#[cfg(test)]
mod tests;
